"""Limits: a cell that takes too much gets an error it can repair, and the session continues."""

from rlm.testing.conformance.bench import NotOffered, Repl, Unmet, expect
from rlm.testing.conformance.checks import Checks

__all__ = ["checks"]

checks = Checks("limits")

_MEMORY_BYTES = 200 << 20

_MEMORY_BOMBS = {
    "a hoard of strings": "for i in range(600): hoard.append('x' * 10**6 + str(i))",
    "one large allocation": "hoard.append(bytearray(10**10))",
}

_FORKS = """
import os, time
children = []
try:
    for _ in range(200):
        pid = os.fork()
        if pid == 0:
            time.sleep(3)
            os._exit(0)
        children.append(pid)
except (AttributeError, OSError) as error:
    print('stopped', len(children), error)
else:
    print('all allowed')
"""

_FILL = """
import os, shutil, tempfile
taken, folder = 0, None
try:
    folder = tempfile.mkdtemp()
    open(os.path.join(folder, 'first'), 'w').close()
except OSError as error:
    print('no folder', error)
else:
    try:
        while taken < (1 << 30):
            with open(os.path.join(folder, str(taken)), 'wb') as file:
                try:
                    os.posix_fallocate(file.fileno(), 0, 32 << 20)
                except (AttributeError, PermissionError):
                    file.write(bytes(32 << 20))
            taken += 32 << 20
    except OSError as error:
        print('full', taken, type(error).__name__)
    else:
        print('endless')
    shutil.rmtree(folder, ignore_errors=True)
"""


@checks("output is cut to its head and tail, and all of it is counted", kept_output_chars=1_000)
async def output(repl: Repl) -> None:
    result = await repl.run("print('start')\nfor _ in range(300): print('y' * 10**5)\nprint('end')")
    if not (result.stdout.startswith("start\n") and result.stdout.endswith("end\n")):
        raise Unmet(f"head or tail is missing: {result.stdout[:20]!r}…{result.stdout[-20:]!r}")
    if len(result.stdout) > 2_000:
        raise Unmet(f"{len(result.stdout):,} characters were kept, but 1,000 were requested")
    expect(result.stdout_chars, 300 * (10**5 + 1) + len("start\nend\n"), "characters counted")


def _add_bomb(name: str, bomb: str) -> None:
    @checks(f"{name} ends in MemoryError, and variables stay", cell_memory_bytes=_MEMORY_BYTES)
    async def memory(repl: Repl) -> None:
        result = await repl.run(f"kept = 5\nhoard = []\n{bomb}")
        expect(result.error and result.error.type, "MemoryError", "how the bomb ended")
        await repl.shows("del hoard\nkept", "5")
        await repl.lives()


for _name, _bomb in _MEMORY_BOMBS.items():
    _add_bomb(_name, _bomb)


@checks("a context does not count against a cell's memory", cell_memory_bytes=64 << 20)
async def context_is_free(repl: Repl) -> None:
    await repl.load("x" * (100 << 20))
    await repl.shows("len(context), len('y' * (20 << 20))", repr((100 << 20, 20 << 20)))


@checks("a full disk is an OSError, and the session goes on", fresh=True)
async def disk(repl: Repl) -> str:
    shown = await repl.show(_FILL)
    await repl.lives()
    if shown.startswith("no folder"):
        raise NotOffered(f"no folder to write to: {shown.removeprefix('no folder ')}")
    if shown == "endless":
        raise NotOffered("no limit on disk space below 1 GiB")
    return shown


@checks("too many processes are an OSError, and the session goes on", fresh=True)
async def processes(repl: Repl) -> str:
    shown = await repl.show(_FORKS)
    await repl.lives()
    if shown == "all allowed":
        raise NotOffered("no limit on processes below 200")
    return shown


@checks("calls beyond the host's limit are refused, and the cell can continue", fresh=True)
async def calls(repl: Repl) -> None:
    repl.host.max_prompts = 3
    code = (
        "answered = refused = 0\n"
        "for i in range(10):\n"
        "    try: llm_query(str(i)); answered += 1\n"
        "    except CallFailed: refused += 1\n"
        "answered, refused"
    )
    await repl.shows(code, "(3, 7)")
