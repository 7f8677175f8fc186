"""Death and recovery: a dead session reports it, others are unaffected, closing ends everything."""

import asyncio
from collections.abc import Awaitable

from rlm.errors import SessionError
from rlm.testing.conformance.bench import Repl, StoredContext, Unmet, expect, stored
from rlm.testing.conformance.checks import Checks

__all__ = ["checks"]

checks = Checks("recovery")

_DEATHS = {
    "os._exit": "import os; os._exit(3)",
    "a segmentation fault": "import ctypes; ctypes.string_at(1)",
    "a stack overflow in C": (
        # Python checks the depth of most recursions, and of more in each version, but not of this.
        "x = iter([1])\nfor _ in range(10**6): x = filter(None, x)\nnext(x)"
    ),
    "an abort": "import os; os.abort()",
}


def _add(name: str, code: str) -> None:
    @checks(f"{name} is a SessionError; a new session works, another one did not notice")
    async def death(repl: Repl) -> str:
        async with repl.bench.opened() as other, repl.bench.opened() as dying:
            await other.run("kept = 1")
            said = await dying.dies(code)
            for request in (dying.run("1"), dying.session.fetch("x"), dying.load("text")):
                await _is_refused(request)
            await other.shows("kept", "1")
            async with repl.bench.opened() as fresh:
                await fresh.lives()
        return said


for _name, _code in _DEATHS.items():
    _add(_name, _code)


async def _is_refused(request: Awaitable[object]) -> None:
    try:
        await request
    except SessionError:
        return
    raise Unmet("a dead session still answers")


@checks("a cancelled cell stops running", fresh=True)
async def cancelling(repl: Repl) -> None:
    cell = repl.begin("llm_query('began')\nwhile True: llm_query('again')")
    await repl.host.was_asked.wait()
    cell.cancel()
    try:
        await cell
    except asyncio.CancelledError:
        pass
    else:
        raise Unmet("execute() was cancelled and gave a result")
    await asyncio.sleep(0.3)
    asked = repl.host.prompts
    await asyncio.sleep(0.3)
    expect(repl.host.prompts, asked, "calls while no cell is running")


@checks("a context that is not JSON is a SessionError, and the session continues", fresh=True)
async def broken_context(repl: Repl) -> None:
    await _is_refused(repl.session.load("context", StoredContext("json", b"{")))
    await repl.session.load("context", stored("whole"))
    await repl.shows("context", "'whole'")


@checks("close() ends a session that waits for a call, and may be called twice", fresh=True)
async def closing(repl: Repl) -> None:
    repl.host.hold_until = 2
    cell = repl.begin("llm_query('pending')")
    await repl.host.was_asked.wait()
    async with asyncio.timeout(10):
        await asyncio.gather(repl.session.close(), repl.session.close())
    await _is_refused(cell)
    expect(repl.host.in_flight, 0, "calls still in flight after close()")
    await _is_refused(repl.run("1"))


@checks("close() ends a cell that spins", fresh=True)
async def closing_a_spin(repl: Repl) -> None:
    cell = repl.begin("llm_query('began')\nsum(range(10**12))")
    await repl.host.was_asked.wait()
    async with asyncio.timeout(10):
        await repl.session.close()
    await _is_refused(cell)


@checks("variables, modules and files of one session are not in another", fresh=True)
async def isolation(repl: Repl) -> None:
    await repl.run("import json, os\nmine = 1\njson.mine = 1\nllm_query.mine = 1")
    await repl.run("try: open('mine', 'w').close()\nexcept OSError: pass")
    async with repl.bench.opened() as other:
        await other.shows(
            "import json\n'mine' in globals(), hasattr(json, 'mine')", "(False, False)"
        )
        await other.shows("hasattr(llm_query, 'mine')", "False")
        await other.shows("import os\nos.path.exists('mine')", "False")
