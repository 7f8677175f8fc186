"""Setup code: what the engine runs in a new session, before its first cell."""

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from rlm.calls.scope import Scope, Tree
from rlm.config import RunConfig
from rlm.engine.sessions import RunSession
from rlm.errors import ConfigError
from rlm.limits import Budget, Limits
from rlm.protocols import Tool
from rlm.testing.conformance.bench import Repl, SuiteHost, Unmet, expect, stored
from rlm.testing.conformance.checks import Checks

__all__ = ["checks"]

checks = Checks("setup")

_SETUP = "base = 40\ndef more(n):\n    return base + n\nsize = len(context)"


class _Session(RunSession):
    """The session of a run, without the run."""

    def __init__(self, repl: Repl, setup_code: str) -> None:
        config = RunConfig(model="none", sub_model="none", setup_code=setup_code)
        tools: tuple[Tool, ...] = ()
        super().__init__(repl.bench.environment, config, {"context": stored("abc")}, tools)
        self.host = SuiteHost()
        self.begin()

    def begin(self) -> None:
        """Begin a run."""
        scope = Scope(run_id="suite", budget=Budget(Limits()), recorders=(), tree=Tree(1))
        self.serve(scope, self.host)

    async def shows(self, code: str, expected: str) -> None:
        result: Any = await self.run_cell(1, code)
        if result.error is not None:
            raise Unmet(f"{code!r} raised {result.error.traceback[-500:]}")
        expect(result.stdout.removesuffix("\n"), expected, code)


@contextlib.asynccontextmanager
async def _open(repl: Repl, setup_code: str) -> AsyncGenerator[_Session, None]:
    session = _Session(repl, setup_code)
    try:
        await session.open()
        yield session
    finally:
        await session.close()


@checks("its variables exist in the first cell and in later ones", fresh=True)
async def variables(repl: Repl) -> None:
    async with _open(repl, _SETUP) as session:
        await session.shows("more(2), size", "(42, 3)")
        await session.shows("base += 1\nmore(2)", "43")
        expect(sorted(session.prepared), ["base", "more", "size"], "the variables it leaves")


@checks("it can call models and await them", fresh=True)
async def calls(repl: Repl) -> None:
    code = "said = llm_query('one')\nother = await llm_query('two')\nprint('dropped')"
    async with _open(repl, code) as session:
        await session.shows("said, other", "('re:one', 're:two')")


@checks("it runs once, however many runs the session serves", fresh=True)
async def once(repl: Repl) -> None:
    async with _open(repl, "made = [llm_query('setup')]") as session:
        await session.shows("made.append(1)\nmade", "['re:setup', 1]")
        session.begin()
        await session.open()
        await session.shows("made", "['re:setup', 1]")
        expect(session.host.prompts, 1, "how often it ran")


@checks("an answer it submits is not the answer of the run", fresh=True)
async def no_answer(repl: Repl) -> None:
    async with _open(repl, "answer['content'] = 'x'\nanswer['ready'] = True\nFINAL(1)") as session:
        result = await session.run_cell(1, "answer")
        expect(result.submission, None, "what was submitted")
        expect(result.stdout.strip(), "{'content': '', 'ready': False}", "answer")


@checks("an error in it is raised with its traceback, and the session is closed", fresh=True)
async def failing(repl: Repl) -> None:
    for code, words in (("x = 1\nx / 0", "ZeroDivisionError"), ("def f(:", "SyntaxError")):
        try:
            async with _open(repl, code):
                raise Unmet(f"{code!r} was not an error")
        except ConfigError as error:
            told = str(error)
        expect(words in told and "setup_code failed" in told, True, f"what {code!r} told")
