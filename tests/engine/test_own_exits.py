"""Clients and tools that raise what ends a task: the cell gets an answer, and the run goes on."""

import asyncio
import functools
import signal
from collections.abc import Coroutine
from typing import Any

import pytest

from rlm import RLM, ScriptedClient
from rlm._util.own_exits import is_failure, named
from rlm.messages import Reply, Request

EXITS = [asyncio.CancelledError("stop"), GeneratorExit("stop"), SystemExit("stop")]
NAMES = [type(each).__name__ for each in EXITS]

pytestmark = pytest.mark.parametrize("error", EXITS, ids=NAMES)


class Model(ScriptedClient):
    """Runs one cell, and raises an error in all other calls."""

    def __init__(self, cell: str, error: BaseException | None, fails_first: bool = False) -> None:
        super().__init__()
        self.cell = cell
        self.error = error
        self.fails_first = fails_first
        self.asked = asyncio.Event()

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        if self.fails_first or "sub-LLM" in str(request.messages[0].content):
            self.asked.set()
            await asyncio.sleep(0)
            if self.error is None:
                await asyncio.Event().wait()
            assert self.error is not None
            raise self.error
        return Reply(text=f"```repl\n{self.cell}\n```")


class OwnTool:
    """A tool of a program that is no function."""

    name, description = "own", "own() - fails"

    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def call(self, arguments: dict[str, Any]) -> Any:
        await asyncio.sleep(0)
        raise self.error


def told(call: str) -> str:
    return f"try: found = {call}\nexcept Exception as error: found = str(error)\nFINAL(found)"


@pytest.mark.parametrize("call", ["llm_query('q')", "llm_query_batched(['q'] * 3)"])
@pytest.mark.parametrize("hedge", [None, 60.0], ids=["alone", "hedged"])
async def test_a_call_whose_client_ends_its_own_task_is_answered(
    error: BaseException, call: str, hedge: float | None
) -> None:
    async with RLM(Model(told(call), error), hedge_after_seconds=hedge) as rlm:
        result = await rlm.aask("q", "c")
    assert f"failed: {type(error).__name__}: stop" in str(result.answer)


async def test_a_client_that_ends_its_own_task_fails_the_run_as_a_model_does(
    error: BaseException,
) -> None:
    async with RLM(Model("", error, fails_first=True)) as rlm:
        with pytest.raises(Exception, match=f"failed: {type(error).__name__}: stop"):
            await rlm.aask("q", "c")


async def test_a_tool_that_ends_its_own_task_is_answered(error: BaseException) -> None:
    def plain() -> None:
        raise error

    async def slow() -> None:
        await asyncio.sleep(0)
        raise error

    cell = "found = []\nfor each in (own, plain, slow):\n"
    cell += "    try: each()\n    except Exception as error: found.append(str(error))\nFINAL(found)"
    async with RLM(Model(cell, None), tools=[OwnTool(error), plain, slow]) as rlm:
        result = await rlm.aask("q", "c")
    found = str(result.answer)
    assert f"own failed: {type(error).__name__}: stop" in found
    assert f"plain failed: {type(error).__name__}: stop" in found
    reason = (
        "it was cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__
    )
    assert f"slow failed: {reason}" in found


async def test_a_cancelled_run_is_cancelled_whatever_its_client_would_raise(
    error: BaseException,
) -> None:
    model = Model("llm_query('q')", None)
    async with RLM(model) as rlm:
        run = asyncio.create_task(rlm.aask("q", "c"))
        await model.asked.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run


@pytest.mark.parametrize("is_partial", [False, True])
async def test_what_a_signal_handler_raises_ends_the_program(
    error: BaseException, is_partial: bool
) -> None:
    def stop(*_: object) -> None:
        raise error

    task, usual = asyncio.current_task(), signal.getsignal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, functools.partial(stop) if is_partial else stop)
    try:
        with pytest.raises(type(error)) as raised:
            signal.raise_signal(signal.SIGUSR1)
        assert is_failure(raised.value, task) is not isinstance(error, SystemExit)
    finally:
        signal.signal(signal.SIGUSR1, usual)


async def test_only_what_nobody_asked_for_is_a_failure(error: BaseException) -> None:
    task = asyncio.current_task()
    assert is_failure(error, task)
    assert is_failure(ValueError(), task)
    assert not is_failure(KeyboardInterrupt(), task)
    assert named(error) == f"{type(error).__name__}: stop"
    found = list[bool]()

    async def guarded() -> None:
        own = asyncio.current_task()
        try:
            await asyncio.Event().wait()
        except BaseException as closing:
            found.append(is_failure(closing, own))
            raise

    async def begin(work: Coroutine[Any, Any, None]) -> None:
        work.send(None)

    closed = guarded()
    await asyncio.create_task(begin(closed))
    closed.close()
    assert found == [False]
