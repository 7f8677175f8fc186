"""The wire: what code can send to the host past the worker, and how much it can ask for."""

from rlm.testing.attacks.attempt import Attack, Outcome
from rlm.testing.attacks.judges import (
    any_of,
    hands_over_a_file,
    no_more_than,
    only_its_own_session,
    touched,
)
from rlm.testing.attacks.world import World
from rlm.worker import wire

__all__ = ["ATTACKS"]

_GROUP = "protocol"
_LLM = """b'{"model": null, "batched": true}'"""
_READY, _DONE, _CALL, _VALUE = wire.READY, wire.DONE, wire.CALL, wire.VALUE
_OWN = 4  # The fourth request of a session, after its start, a context and the toolkit.
_RESULT = "bytes(25), b'', b'forged', b'', b''"  # Zeros for the counts that come first.

_FRAMES = {
    "send garbage": "send(b'\\xff' * 1000)",
    "speak another protocol": "send(b'GET / HTTP/1.1\\r\\n\\r\\n')",
    "announce a frame of 4 GB": "send(b'\\xff\\xff\\xff\\xff' + bytes(1000))",
    "announce 60 MB and send little": (
        f"send(struct.pack('<IBII', 60 << 20, {_CALL}, 1, 1) + b'x' * 1000)"
    ),
    "send half a frame and go silent": (
        f"send(frame({_CALL}, 1, b'llm', {_LLM}, b'x' * 10**6)[:20])"
    ),
    "send half a frame and spin": (
        f"send(frame({_CALL}, 1, b'llm', {_LLM}, b'x' * 10**6)[:20])\nwhile True: pass"
    ),
    "send READY again": f"send(frame({_READY}, 1, b'{{}}'))",
    "send the result of another cell": f"send(frame({_DONE}, 9999, {_RESULT}))",
    "send a forged result of its own cell": f"send(frame({_DONE}, {_OWN}, {_RESULT}))",
    "send an invalid result": f"send(frame({_DONE}, {_OWN}, b'{{}}', b'x'))",
    "send an unrequested value": f"send(frame({_VALUE}, 3, b'{{}}', b'forged'))",
    "ask for something that does not exist": f"send(frame({_CALL}, 1, b'exec', b'{{}}'))",
    "use the same number for two requests": f"send(frame({_CALL}, 1, b'budget', b'{{}}') * 2)",
    "send JSON that is nested a million deep": (
        f"send(frame({_CALL}, 1, b'tool', b'[' * 10**6))\n"
        f"send(frame({_CALL}, 2, b'tool', b'{{\"a\":' * 10**6))"
    ),
    "send a number of a million digits": (
        f'send(frame({_CALL}, 1, b\'tool\', b\'{{"name": "lookup", "arguments": \''
        " b'{\"n\": ' + b'9' * 10**6 + b'}}'))"
    ),
    "send frames of a hundred thousand empty parts": (
        f"for number in range(50): send(frame({_CALL}, number, *[b''] * 99_999))"
    ),
    "close its end and continue": "for number in lines_out(): os.close(number)\nwhile True: pass",
}

_META = """b'{"error": {"type": "E", "message": "' + b'm' * 4_000_000 + b'", "traceback": "t"},"""
_META += """ "how": null, "texts": []}'"""
_TOOL = """b'{"name": "lookup", "arguments": {"a": ' +"""
_LARGE_FRAMES = {
    "send 30 MB of JSON lists as arguments of a tool": (
        f"send(frame({_CALL}, 1, b'tool', {_TOOL} b'[' + b'[],' * 10**7 + b'[]]' + b'}}}}'))"
    ),
    "send a million numbers that are slow to read": (
        f"send(frame({_CALL}, 1, b'tool', {_TOOL} b'[' + b'1.5e300,' * 10**6 + b'1]' + b'}}}}'))"
    ),
    "send millions of lone surrogates": (
        f"send(frame({_CALL}, 1, b'llm', {_LLM}, b'\\xed\\xa0\\x80' * 10**7))"
    ),
    "send a context of millions of JSON lists for a child run": (
        f'send(frame({_CALL}, 1, b\'rlm\', b\'{{"model": null, "batched": false, '
        "\"contexts\": [{\"kind\": \"json\"}]}', b'p', b'[' + b'[],' * 10**7 + b'[]]'))"
    ),
    "forge the names of millions of variables": (
        "some = b''.join(b'v%x\\0i%x\\0' % (n, n) for n in range(20_000))\n"
        f"send(frame({_DONE}, {_OWN}, struct.pack('<QQII?', 0, 0, 3 * 10**6, 0, False),"
        " b'', b'', b'', some * 150))"
    ),
    "send 60 million characters of forged output": (
        f"send(frame({_DONE}, {_OWN}, bytes(25), b'', b'x' * (60 << 20), b'', b''))"
    ),
    "send an error message of 4 million characters": (
        f"send(frame({_DONE}, {_OWN}, bytes(25), {_META}, b'', b'', b''))"
    ),
    "send a forged answer of 60 million characters": (
        f'meta = b\'{{"error": null, "how": "FINAL", "texts": ["submission"]}}\'\n'
        f"send(frame({_DONE}, {_OWN}, bytes(25), meta, b'', b'', b'', b'x' * (60 << 20)))"
    ),
    "send an unrequested value of 60 MB": (
        f"send(frame({_VALUE}, {_OWN}, b'{{}}', b'x' * (60 << 20)))"
    ),
    "flood the host with calls of a megabyte each": f"""
big = b'x' * (1 << 20)
for number in range(2_000): send(frame({_CALL}, number, b'llm', {_LLM}, big))
""",
}
_MAX_KEPT_CHARS = 11_000_000
"""An answer of the allowed length, and all output and errors that may be kept."""

_REPLACED = """
for module in list(sys.modules.values()):
    if getattr(module, '__name__', '').startswith(('rlm_worker', 'rlm.worker')):
        if hasattr(module, 'cut'): module.cut = lambda text, *_: text
for stream in (sys.stdout, sys.stderr):
    stream._head_limit = stream._head_room = 10**9
print('x' * 5_000_000)
sys.stderr.write('y' * 5_000_000)
raise ValueError('m' * 100_000)
"""


async def _keeps_too_much(world: World, outcome: Outcome) -> str | None:
    """More of its output or error reached the host than is allowed."""
    error = outcome.result.error if outcome.result is not None else None
    if error is not None and len(error.message) > 10_000:
        return f"an error of {len(error.message):,} characters reached the host"
    return await no_more_than(300_000)(world, outcome)


_CALLS = {
    "ask again and again past the host's limit": """
refused = 0
while True:
    try: llm_query_batched(['x'] * 10_000)
    except CallFailed: refused += 1
""",
    "make 5,000 calls at once": """
import asyncio
await asyncio.gather(*[llm_query(str(n)) for n in range(5_000)])
""",
    "flood the host with forged calls": f"""
for number in range(10_000): send(frame({_CALL}, number, b'llm', {_LLM}, b'x'))
""",
    "leave threads that print and make calls later": """
import threading
def later():
    for number in range(20):
        time.sleep(0.01)
        print('LATE', number)
        try: llm_query('late')
        except Exception: pass
for _ in range(5): threading.Thread(target=later, daemon=True).start()
""",
}

_UNREAD = f"""
for number in range(500): send(frame({_CALL}, number, b'llm', {_LLM}, b'x' * (1 << 20)))
"""

_PASS_FD = f"""
import array, socket
with open('handed', 'w+b') as file:
    inode(file.fileno())
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [file.fileno()] * 10))]
    for number in lines_out():
        try:
            line = socket.socket(fileno=os.dup(number))
            line.sendmsg([frame({_CALL}, 1, b'budget', b'{{}}')], rights)
        except OSError as error: denied(error)
"""

_PICKLE = """
import base64, pickle
class Bomb:
    def __reduce__(self):
        return open, (target['host_folder'] + '/open/unpickled.txt', 'w')
bomb = pickle.dumps(Bomb())
texts = [bomb.decode('latin-1'), base64.b64encode(bomb).decode()]
send(struct.pack('<I', len(bomb)) + bomb)
for text in texts:
    for ask in (llm_query, lambda t: lookup(value=t), lambda t: rlm_query('p', context=t), FINAL):
        try: ask(text)
        except Exception as error: denied(error)
answer = bomb
"""

ATTACKS = (
    *(
        Attack(
            name=name,
            group=_GROUP,
            code=code,
            judge=only_its_own_session,
            timeout_seconds=0.5,
            together=True,
        )
        for name, code in _FRAMES.items()
    ),
    *(
        Attack(
            name=name,
            group=_GROUP,
            code=code,
            judge=only_its_own_session,
            then="import time; time.sleep(0.3)",
            timeout_seconds=1,
            options={"cell_memory_bytes": 1 << 30},
        )
        for name, code in _CALLS.items()
    ),
    *(
        Attack(
            name=name,
            group=_GROUP,
            code=code,
            judge=no_more_than(_MAX_KEPT_CHARS),
            timeout_seconds=10,
            options={"cell_memory_bytes": 1 << 30},
        )
        for name, code in _LARGE_FRAMES.items()
    ),
    Attack(
        name="replace the worker's own limits, then print and raise",
        group=_GROUP,
        code=_REPLACED,
        judge=_keeps_too_much,
        raises="ValueError",
        options={"cell_memory_bytes": 1 << 30},
    ),
    Attack(
        name="ask for a lot and never read the answers",
        group=_GROUP,
        code=_UNREAD,
        judge=only_its_own_session,
        timeout_seconds=4,
    ),
    Attack(
        name="hand the host open files (SCM_RIGHTS)",
        group=_GROUP,
        code=_PASS_FD,
        judge=hands_over_a_file,
        then="answer",
    ),
    Attack(
        name="send the host a pickle that opens a file",
        group=_GROUP,
        code=_PICKLE,
        judge=any_of(touched, only_its_own_session),
        then="answer",
    ),
)
