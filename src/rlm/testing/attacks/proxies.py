"""Objects of the host: what cells may try to reach through their proxies, and past them."""

import asyncio

from rlm.testing.attacks.attempt import Attack, Outcome
from rlm.testing.attacks.judges import any_of
from rlm.testing.attacks.world import World
from rlm.testing.conformance.vault import evidence_in
from rlm.worker import wire

__all__ = ["ATTACKS"]

_GROUP = "proxies"
_CALL = wire.CALL

_NAMES = """
names = ['_enter', '_reveal', 'opened', 'secret', 'inner', 'inner.deep', 'opener', 'entered',
         'anything', 'echo.__func__', '__init__', '__class__', '__class__.put', '__dict__',
         '__getattribute__', '__getattr__', '__globals__', '__reduce__', '', '.', 'echo\\0opened']
"""

_CODE = {
    "use unexposed members of an object by name": _NAMES
    + """
for name in names:
    for reach in (lambda: getattr(vault, name)(), lambda: str(getattr(vault, name)),
                  lambda: call_tool('vault.' + name), lambda: call_tool('vault', name)):
        try: print(reach())
        except Exception as error: denied(error)
""",
    "forge the names of members in frames": _NAMES
    + f"""
for number, name in enumerate(names):
    for kind, tool in enumerate(('vault.' + name, name, 'vault..' + name, 'Vault.' + name)):
        call = json.dumps({{'name': tool, 'arguments': {{}}}}).encode()
        send(frame({_CALL}, 10 * number + kind, b'tool', call))
""",
    "follow a proxy's parts to the host": """
seen, waiting = set(), [vault, type(vault), vault.echo, vault.itself(), type(vault).echo]
while waiting and len(seen) < 20_000:
    each = waiting.pop()
    if id(each) in seen: continue
    seen.add(id(each))
    if isinstance(each, str): print(each[:200])
    for name in ('__wrapped__', '__globals__', '__closure__', '__dict__', '__class__', '__self__',
                 '__func__', '__code__', 'cell_contents', 'fget', '__defaults__'):
        try: waiting.append(getattr(each, name))
        except Exception: pass
    if isinstance(each, dict): waiting += each.values()
    elif isinstance(each, (list, tuple, set)): waiting += each
""",
    "add members to a proxy": """
for name in ('opened', '_enter', 'opener', 'secret'):
    try:
        setattr(type(vault), name, property(lambda self: call_tool('vault.' + name)))
        print(getattr(vault, name))
    except Exception as error: denied(error)
""",
    "set a fixed argument": """
for arguments in ((1,), (0, 1)):
    try: print(vault.reveal(*arguments))
    except Exception as error: denied(error)
for named in ({'level': 1}, {'*': [1]}, {'self': 1, 'level': 1}, {'args': [1]},
              {'kwargs': {'level': 1}}):
    for reach in (lambda: vault.reveal(**named), lambda: call_tool('vault.reveal', **named),
                  lambda: vault.reveal(named)):
        try: print(reach())
        except Exception as error: denied(error)
""",
    "change a method's default, or its returned value": """
for _ in range(3):
    got_back = vault.put(1)
    got_back.append(99)
    try: vault.put(2, got_back)
    except Exception as error: denied(error)
if vault.put(3) != []: got('a default was changed')
""",
    "call an object with huge or deeply nested arguments": """
deep = []
for _ in range(5_000): deep = [deep]
for value in ('x' * (20 << 20), b'x' * (20 << 20), deep, list(range(10**6)), {'a': deep}, {1} ):
    try: vault.echo(value)
    except (ToolFailed, RecursionError, ValueError, TypeError) as error: denied(error)
""",
    "send malformed type marks": f"""
marks = [{{'$set': 5}}, {{'$set': [[1]]}}, {{'$frozenset': {{}}}}, {{'$tuple': 'abc'}},
         {{'$bytes': 'é'}}, {{'$bytes': 5}}, {{'$bytes': 'A'}}, {{'$bytearray': None}},
         {{'$dict': [1]}}, {{'$dict': [[[], 1]]}}, {{'$dict': [[1]]}}, {{'$class': 'os'}}]
for number, mark in enumerate(marks):
    call = json.dumps({{'name': 'vault.echo', 'arguments': {{'value': mark}}}}).encode()
    send(frame({_CALL}, number, b'tool', call))
""",
    "send a set whose members all have the same hash": f"""
equal = [n * ((1 << 61) - 1) for n in range(1, 150_000)]
for number, mark in enumerate(('$set', '$frozenset', '$dict')):
    content = [[each, 0] for each in equal[:40_000]] if mark == '$dict' else equal
    call = json.dumps({{'name': 'vault.echo', 'arguments': {{'value': {{mark: content}}}}}})
    send(frame({_CALL}, number, b'tool', call.encode()))
""",
}

_LATER = """
import threading
def later():
    while True:
        time.sleep(0.01)
        try: vault.echo()
        except Exception: pass
for _ in range(4): threading.Thread(target=later, daemon=True).start()
"""


async def enters(world: World, outcome: Outcome) -> str | None:
    """It reached what no cell may reach, or learned the secret."""
    return evidence_in(world.bench.vault, outcome.output)


async def calls_after_the_end(world: World, outcome: Outcome) -> str | None:
    """A method of the object is called after the session was closed."""
    before = world.bench.vault.calls
    await asyncio.sleep(0.2)
    more = world.bench.vault.calls - before
    return f"{more} calls arrived after the session had ended" if more else None


ATTACKS = (
    *(
        Attack(
            name=name,
            group=_GROUP,
            code=code,
            judge=enters,
            timeout_seconds=5,
            options={"cell_memory_bytes": 1 << 30},
        )
        for name, code in _CODE.items()
    ),
    Attack(
        name="call an object after the session has ended",
        group=_GROUP,
        code=_LATER,
        judge=any_of(enters, calls_after_the_end),
    ),
)
