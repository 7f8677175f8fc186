"""The conformance suite: it passes where it should, and notices what is broken."""

import asyncio
import gc
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from rlm._util.text import sendable
from rlm.environments.local import LocalEnvironment
from rlm.errors import SessionError
from rlm.protocols import ContextSource, Environment, Host, Session
from rlm.results import CellError, CellResult
from rlm.testing.conformance import CHECKS, Report, check
from rlm.testing.conformance.bench import Repl
from rlm.testing.conformance.runner import Task, run_tasks
from tests.environments.plain import PlainEnvironment

GROUPS = list(dict.fromkeys(each.group for each in CHECKS))
KNOWN = {"a context does not count against a cell's memory"}
"""What the worker does not keep yet where contexts are copied into it."""

NOT_OFFERED_BY_PLAIN = {
    "a full disk is an OSError, and the session goes on",
    "too many processes are an OSError, and the session goes on",
}


async def checked(environment: Environment, only: str) -> Report:
    try:
        return await check(environment, only=only)
    finally:
        await environment.close()


def told(report: Report) -> str:
    return "\n".join(f"{row.verdict} {row.group}: {row.name} ({row.detail})" for row in report.bad)


@pytest.mark.parametrize("group", GROUPS)
async def test_local_conforms(group: str) -> None:
    report = await checked(LocalEnvironment(), f"{group}: ")
    assert {row.group for row in report.rows} == {group}
    assert {row.name for row in report.bad} <= KNOWN, told(report)


@pytest.mark.heavy
@pytest.mark.parametrize("group", GROUPS)
async def test_the_unprotected_control_conforms(group: str) -> None:
    report = await checked(PlainEnvironment(), f"{group}: ")
    assert {row.name for row in report.bad} <= KNOWN, told(report)
    not_offered = {row.name for row in report.rows if row.verdict == "not offered"}
    assert not_offered <= NOT_OFFERED_BY_PLAIN


def test_every_check_has_a_unique_name() -> None:
    names = [(each.group, each.name) for each in CHECKS]
    assert len(set(names)) == len(names) > 140


# -- environments that are broken in one way each --------------------------------------------------


class Wrapped:
    """A session that passes everything on."""

    def __init__(self, inner: Session) -> None:
        self.inner = inner

    @property
    def variables(self) -> tuple[str, ...]:
        return self.inner.variables

    async def load(self, name: str, context: ContextSource) -> None:
        await self.inner.load(name, context)

    async def execute(self, code: str, *, timeout_seconds: float) -> CellResult:
        return await self.inner.execute(code, timeout_seconds=timeout_seconds)

    async def fetch(self, name: str) -> str | None:
        return await self.inner.fetch(name)

    async def interrupt(self) -> None:
        await self.inner.interrupt()

    async def close(self) -> None:
        await self.inner.close()


class BrokenEnvironment:
    """Opens sessions of the control, changed by `wrap`, with options changed by `choose`."""

    name = "broken"

    def __init__(
        self,
        wrap: Callable[[Session], Session] = lambda session: session,
        choose: Callable[[dict[str, Any]], dict[str, Any]] = lambda options: options,
        host: Callable[[Host], Host] = lambda host: host,
    ) -> None:
        self.inner = PlainEnvironment()
        self.wrap, self.choose, self.host = wrap, choose, host

    async def open(self, host: Host, options: dict[str, Any]) -> Session:
        return self.wrap(await self.inner.open(self.host(host), self.choose(options)))

    async def close(self) -> None:
        await self.inner.close()


class DropsOutput(Wrapped):
    async def execute(self, code: str, *, timeout_seconds: float) -> CellResult:
        result = await super().execute(code, timeout_seconds=timeout_seconds)
        return replace(result, stdout=result.stdout[:1000])


class MiscountsOutput(Wrapped):
    async def execute(self, code: str, *, timeout_seconds: float) -> CellResult:
        result = await super().execute(code, timeout_seconds=timeout_seconds)
        return replace(result, stdout_chars=len(result.stdout))


class ForgetsWhenInterrupted(Wrapped):
    async def execute(self, code: str, *, timeout_seconds: float) -> CellResult:
        result = await super().execute(code, timeout_seconds=timeout_seconds)
        if result.interrupted:
            forget = "for name in ['kept', 'x']: globals().pop(name, None)"
            await super().execute(forget, timeout_seconds=5)
        return result


class HidesDeath(Wrapped):
    async def execute(self, code: str, *, timeout_seconds: float) -> CellResult:
        try:
            return await super().execute(code, timeout_seconds=timeout_seconds)
        except SessionError as error:
            return CellResult(error=CellError("SessionDied", str(error), ""))


class ManglesContexts(Wrapped):
    async def load(self, name: str, context: ContextSource) -> None:
        class Cut:
            kind = context.kind
            size_bytes = context.size_bytes

            def chunks(self, chunk_bytes: int) -> Any:
                for chunk in context.chunks(chunk_bytes):
                    yield chunk.decode("utf-8", "replace").encode()

        await super().load(name, Cut())


class SwallowsInterrupts(Wrapped):
    async def interrupt(self) -> None:
        pass


class ReversesReplies:
    def __init__(self, host: Host) -> None:
        self.host = host

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        meta, texts = await self.host.answer(kind, arguments, parts)
        return meta, list(reversed(texts))


class ReplacesSurrogates:
    def __init__(self, host: Host) -> None:
        self.host = host

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        return await self.host.answer(kind, arguments, [sendable(part) for part in parts])


class AnswersOneAtATime:
    def __init__(self, host: Host) -> None:
        self.host = host
        self.turn = asyncio.Lock()

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        async with self.turn, asyncio.timeout(0.05):
            return await self.host.answer(kind, arguments, parts)


def without(*names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda options: {name: each for name, each in options.items() if name not in names}


BROKEN: list[tuple[Callable[[], BrokenEnvironment], str]] = [
    (lambda: BrokenEnvironment(DropsOutput), "output keeps its order"),
    (lambda: BrokenEnvironment(MiscountsOutput), "output is cut to its head and tail"),
    (lambda: BrokenEnvironment(ForgetsWhenInterrupted), "an empty loop ends and keeps"),
    (lambda: BrokenEnvironment(HidesDeath), "os._exit is a SessionError"),
    (lambda: BrokenEnvironment(ManglesContexts), "characters split across chunks"),
    (lambda: BrokenEnvironment(ManglesContexts), "lone surrogates: exact"),
    (lambda: BrokenEnvironment(host=ReversesReplies), "a batch keeps its order"),
    (lambda: BrokenEnvironment(host=ReversesReplies), "a batch of 1,000 prompts"),
    (lambda: BrokenEnvironment(host=ReplacesSurrogates), "lone surrogates: exact"),
    (lambda: BrokenEnvironment(host=AnswersOneAtATime), "twenty threads have twenty"),
    (lambda: BrokenEnvironment(choose=without("kept_output_chars")), "output is cut to its head"),
    (lambda: BrokenEnvironment(choose=without("cell_memory_bytes")), "a hoard of strings"),
    (lambda: BrokenEnvironment(choose=without("max_submission_chars")), "an answer over max_"),
    (lambda: BrokenEnvironment(choose=without("tools")), "tools accept positional"),
    (lambda: BrokenEnvironment(choose=without("seed")), "hashes and random numbers"),
]


@pytest.mark.parametrize(("made", "row"), BROKEN, ids=[row for _, row in BROKEN])
async def test_the_suite_notices_broken_environments(
    made: Callable[[], BrokenEnvironment], row: str
) -> None:
    report = await checked(made(), row)
    assert [each.verdict for each in report.rows] == ["failed"], report.rows
    assert report.ok is False
    assert not report.rows[0].detail.startswith("AssertionError")


async def test_the_suite_notices_interrupts_that_do_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def quickly(tasks: list[Task], on_row: object) -> Report:
        return await run_tasks([replace(task, max_seconds=1.0) for task in tasks])

    monkeypatch.setattr("rlm.testing.conformance.run_tasks", quickly)
    report = await checked(BrokenEnvironment(SwallowsInterrupts), "interrupt() reaches a cell")
    assert [(each.verdict, each.detail) for each in report.rows] == [
        ("failed", "did not end within 1 s")
    ]


async def test_the_suite_notices_sessions_that_are_not_separate() -> None:
    class OneForAll(BrokenEnvironment):
        only: Session | None = None

        async def open(self, host: Host, options: dict[str, Any]) -> Session:
            self.only = self.only or await super().open(host, options)
            return self.only

    report = await checked(OneForAll(), "variables, modules and files of one session")
    assert [row.verdict for row in report.rows] == ["failed"]


async def test_an_environment_that_cannot_open_still_reports_every_row() -> None:
    class Closed(BrokenEnvironment):
        async def open(self, host: Host, options: dict[str, Any]) -> Session:
            raise RuntimeError("nobody is here")

    seen: list[str] = []
    report = await check(Closed(), only="names: ", on_row=lambda row: seen.append(row.name))
    assert seen == [each.name for each in CHECKS if each.group == "names"]
    assert report.counts == {"failed": len(seen)}
    assert {row.detail for row in report.rows} == {"RuntimeError: nobody is here"}


# -- the runner ------------------------------------------------------------------------------------


async def test_rows_keep_their_order_and_none_is_lost() -> None:
    order: list[str] = []

    def task(name: str, seconds: float, together: bool = True) -> Task:
        async def find() -> Any:
            await asyncio.sleep(seconds)
            order.append(name)
            if name == "broken":
                raise KeyError(name)
            return "passed", ""

        return Task(name, "group", find, together=together, max_seconds=5)

    tasks = [task("slow", 0.2), task("quick", 0), task("broken", 0.1), task("last", 0, False)]
    report = await run_tasks(tasks)
    assert order == ["quick", "broken", "slow", "last"]
    assert [row.name for row in report.rows] == ["slow", "quick", "broken", "last"]
    assert report.rows[2].detail == "KeyError: 'broken'"
    assert report.counts == {"passed": 3, "failed": 1}
    assert [row.name for row in report.bad] == ["broken"]


async def test_a_report_without_rows_is_not_ok() -> None:
    assert (await run_tasks([])).ok is False


async def test_a_cell_that_nobody_waits_for_any_more_fails_in_silence() -> None:
    """As after Ctrl-C in the middle of a check."""
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: unheard.append(told))

    class Dead:
        async def execute(self, code: str, *, timeout_seconds: float) -> CellResult:
            raise SessionError("the worker is gone")

    bench: Any = SimpleNamespace(patience=1.0)
    session: Any = Dead()
    host: Any = None
    repl = Repl(bench, session, host)
    cell = repl.begin("1")
    await asyncio.wait([cell])
    del cell
    gc.collect()
    assert unheard == []
