"""Tools that make blocking calls of an engine: nested, many at once, cancelled, and too deep."""

import asyncio
import threading
import time
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from rlm import RLM, Limits, ScriptedClient
from rlm.errors import PortalError, ToolError
from rlm.portal import MAX_NESTED_TOOLS, ToolCall, inside, portal
from rlm.tools import _function
from tests.fakes import PlanEnvironment, cell


def code(text: str) -> str:
    return f"```repl\n{text}\n```"


def engine(*script: str, **more: Any) -> RLM:
    rules = more.pop("rules", ())
    return RLM(ScriptedClient(script, rules=rules), **more)


def inner_engine(answer: str = "inner", **more: Any) -> RLM:
    return engine(rules=[("", f"FINAL({answer})")], environment=PlanEnvironment(), **more)


@pytest.mark.parametrize("environment", ["local", "inprocess"])
async def test_a_tool_may_ask_another_engine(environment: str) -> None:
    inner = engine(rules=[("", code("FINAL(len(context))"))], environment=environment)

    def count(text: str) -> str:
        """Count characters."""
        return inner.completion(text, root_prompt="How long?").response

    one = engine(
        code("FINAL([count('abc'), count('abcd')])"), tools=[count], environment=environment
    )
    assert (await one.aask("q", "c")).answer == "['3', '4']"
    await one.aclose()
    inner.close()


def test_a_tool_may_ask_engines_two_levels_deep_with_blocking_calls() -> None:
    lowest = inner_engine("lowest")

    def deepest() -> Any:
        return lowest.ask("q", "c").answer

    middle = engine(rules=[("", code("FINAL('middle of ' + deepest())"))], tools=[deepest])

    def deeper() -> Any:
        return middle.ask("q", "c").answer

    with engine(code("FINAL('top of ' + deeper())"), tools=[deeper]) as one:
        assert one.ask("q", "c").answer == "top of middle of lowest"
    middle.close()
    lowest.close()


def test_a_tool_may_ask_its_own_engine() -> None:
    def again(text: str) -> str:
        return one.completion(text, root_prompt="sub task").response

    rules = [("Query: sub task", code("FINAL(context.upper())"))]
    one = engine(code("FINAL(again('abc'))"), rules=rules, tools=[again])
    assert one.completion("c", "q").response == "ABC"
    one.close()


def test_a_tool_may_ask_its_own_persistent_engine_outside_the_conversation() -> None:
    def again(text: str) -> str:
        return one.completion(text, root_prompt="sub task").response

    rules = [("Query: sub task", code("FINAL([context.upper(), 'kept' in dir()])"))]
    one = engine(
        code("kept = 1\nFINAL(again('abc'))"),
        code("FINAL([kept, again('d')])"),
        rules=rules,
        tools=[again],
        persistent=True,
    )
    assert one.completion("c", "q").response == "['ABC', False]"
    assert one.completion("c", "q").response == "[1, \"['D', False]\"]"
    assert len(one.conversation.turns) == 2
    one.close()


def test_another_persistent_engine_keeps_variables_between_tool_calls() -> None:
    helper = engine(
        code("total = 1\nFINAL(total)"), code("total += 1\nFINAL(total)"), persistent=True
    )

    def add() -> str:
        return helper.completion("c", "q").response

    with engine(code("FINAL([add(), add()])"), tools=[add]) as one:
        assert one.ask("q", "c").answer == "['1', '2']"
    helper.close()


def test_a_tool_that_asks_its_own_chat_is_refused_instead_of_deadlocking() -> None:
    def again() -> str:
        return str(chat.ask("sub task").answer)

    def look() -> Any:
        return chat.variables()

    client = ScriptedClient([code("FINAL([again(), 1])"), code("look()"), "FINAL(done)"])
    one = RLM(client, tools=[again, look])
    chat = one.chat("text")
    assert chat.ask("First?").answer == "done"
    told = "".join(str(m.content) for r in client.requests for m in r.messages)
    assert told.count("is waiting for the code that asks it") >= 2
    assert len(chat.turns) == 1
    chat.close()
    one.close()


def test_more_tools_than_threads_that_start_runs_with_tools_do_not_deadlock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every place of the outer tools is taken while the inner tools need places."""
    monkeypatch.setattr(_function, "MAX_THREADS", 4)
    monkeypatch.setattr(_function, "_places", WeakKeyDictionary())
    most, running, lock = 0, 0, threading.Lock()
    full = threading.Barrier(4, timeout=60)

    def leaf(n: int) -> int:
        return n + 1

    inner = engine(rules=[("", code("FINAL(leaf(int(context)))"))], tools=[leaf])

    def outer(n: int) -> int:
        nonlocal most, running
        with lock:
            running += 1
            most = max(most, running)
        if n < 4:
            full.wait()
        answer = int(str(inner.ask("q", str(n)).answer))
        with lock:
            running -= 1
        return answer

    gather = "import asyncio\nFINAL(await asyncio.gather(*(outer(n) for n in range(12))))"
    with engine(code(gather), tools=[outer]) as one:
        assert one.ask("q", "c").answer == str(list(range(1, 13)))
    inner.close()
    assert most == 4


def test_three_levels_work_with_one_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_function, "MAX_THREADS", 1)
    monkeypatch.setattr(_function, "_places", WeakKeyDictionary())
    lowest = inner_engine("0")

    def third() -> int:
        return int(str(lowest.ask("q", "c").answer)) + 1

    lower = engine(rules=[("", code("FINAL(third())"))], tools=[third])

    def second() -> int:
        return int(str(lower.ask("q", "c").answer)) + 1

    upper = engine(rules=[("", code("FINAL(second())"))], tools=[second])

    def first() -> int:
        return int(str(upper.ask("q", "c").answer)) + 1

    gather = "import asyncio\nFINAL(await asyncio.gather(*(first() for n in range(3))))"
    with engine(code(gather), tools=[first]) as one:
        assert one.ask("q", "c").answer == "[3, 3, 3]"
    for each in (lowest, lower, upper):
        each.close()


async def test_time_of_a_nested_run_does_not_count_towards_the_tools_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, go_on = threading.Event(), threading.Event()
    clocks: list[_function.PausingTimeout] = []

    class Seen(_function.PausingTimeout):
        def __init__(self, seconds: float) -> None:
            super().__init__(seconds)
            clocks.append(self)

    def slow_model(prompt: str) -> str:
        asked.set()
        go_on.wait(60)
        return "FINAL(late but here)"

    monkeypatch.setattr(_function, "PausingTimeout", Seen)
    inner = RLM(slow_model, environment=PlanEnvironment())
    tool = _function.FunctionTool(lambda: inner.ask("q", "c").answer, name="t", timeout_seconds=60)
    waiting = asyncio.create_task(tool.call({}))
    await asyncio.to_thread(asked.wait, 60)
    await asyncio.sleep(0)  # The run told the loop to stop the clock before it asked the model.
    (clock,) = clocks
    assert clock.timeout.when() is None
    go_on.set()
    assert await waiting == "late but here"
    inner.close()


async def test_time_after_a_nested_run_counts_again() -> None:
    inner = inner_engine()
    forever = threading.Event()

    def ask_then_hang() -> None:
        inner.ask("q", "c")
        forever.wait(60)

    tool = _function.FunctionTool(ask_then_hang, timeout_seconds=0.2)
    with pytest.raises(ToolError, match="no result within"):
        await tool.call({})
    forever.set()
    inner.close()


class Stuck:
    """An engine whose run ends only when it is cancelled, and a tool that waits for it."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.environment = PlanEnvironment()
        self.engine = engine(rules=[("", cell(["sleep"]))], environment=self.environment)
        self.outcome: list[BaseException] = []
        self.ended = threading.Event()
        self.call: ToolCall | None = None

    @property
    def waits(self) -> bool:
        """Whether the tool waits for the nested run, which has begun."""
        waiting = self.call is not None and bool(self.call._waiting)
        return waiting and bool(self.engine.runner.running)

    def ask(self) -> Any:
        """Wait forever."""
        try:
            self.call = inside.get().call
            self.began.set()
            return self.engine.ask("q", "c").answer
        except BaseException as error:
            self.outcome.append(error)
            try:
                self.engine.ask("q", "c")
            except BaseException as second:
                self.outcome.append(second)
            raise
        finally:
            self.ended.set()

    def check(self) -> None:
        assert self.ended.wait(60)
        first, second = self.outcome
        assert type(first).__name__ == "CancelledError"
        assert isinstance(second, PortalError)
        assert "was cancelled" in str(second)
        self.engine.close()
        deadline = time.monotonic() + 60
        while self.engine.runner.running and time.monotonic() < deadline:
            time.sleep(0.01)  # The caller gets the result before the run has cleaned up.
        assert not self.engine.runner.running
        assert all(session.closed for session in self.environment.sessions)


async def _running(stuck: Stuck) -> None:
    while not stuck.waits:
        await asyncio.sleep(0.01)


async def test_cancelling_the_outer_run_cancels_the_nested_one() -> None:
    stuck = Stuck()
    one = engine(code("ask()"), tools=[stuck.ask])
    run = asyncio.create_task(one.aask("q", "c"))
    await _running(stuck)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await asyncio.to_thread(stuck.check)
    await one.aclose()


async def test_stopping_the_outer_run_cancels_the_nested_one() -> None:
    stuck = Stuck()
    one = engine(code("ask()"), tools=[stuck.ask])
    run = asyncio.create_task(one.aask("q", "c"))
    await _running(stuck)
    one.stop()
    assert (await run).stop_reason == "cancelled"
    await asyncio.to_thread(stuck.check)
    await one.aclose()


async def test_the_time_limit_of_the_outer_run_cancels_the_nested_one() -> None:
    stuck = Stuck()
    one = engine(
        code("ask()"),
        rules=[("Stop here", "At the bell.")],
        tools=[stuck.ask],
        limits=Limits(max_seconds=1.5),
    )
    result = await one.aask("q", "c")
    assert result.limit == "seconds"
    await asyncio.to_thread(stuck.check)
    await one.aclose()


async def test_a_blocking_call_on_the_event_loop_is_still_refused() -> None:
    inner = inner_engine()

    async def bad() -> str:
        with pytest.raises(PortalError, match="aask"):
            inner.ask("q", "c")
        return str((await inner.aask("q", "c")).answer)

    async def in_a_thread() -> str:
        return str((await asyncio.to_thread(inner.ask, "q", "c")).answer)

    one = engine(code("FINAL([bad(), in_a_thread()])"), tools=[bad, in_a_thread])
    assert (await one.aask("q", "c")).answer == "['inner', 'inner']"
    await asyncio.to_thread(one.close)
    await inner.aclose()


def test_endless_recursion_of_a_tool_is_stopped() -> None:
    depth = 0

    def deeper() -> Any:
        nonlocal depth
        depth += 1
        return one.ask("q", "c").answer

    one = engine(
        rules=[
            ("nested more than", "FINAL(too deep)"),
            ("", code("print(deeper())\nFINAL('fine')")),
        ],
        tools=[deeper],
    )
    result = one.ask("q", "c")
    assert result.answer == "fine"
    assert depth == MAX_NESTED_TOOLS + 1
    one.close()


def test_a_model_function_may_ask_an_engine() -> None:
    inner = inner_engine("from inside")

    def model(prompt: str) -> str:
        return f"FINAL({inner.ask('q', 'c').answer})"

    with RLM(model, environment=PlanEnvironment()) as one:
        assert one.ask("q", "c").answer == "from inside"
    inner.close()


def test_callbacks_of_many_runs_may_ask_engines() -> None:
    inner = inner_engine()
    answers = []

    def on_start(depth: int, step: int) -> None:
        answers.append(inner.ask("q", "c").answer)

    one = inner_engine("done", on_iteration_start=on_start)

    async def all_of_them() -> None:
        await asyncio.gather(*(one.aask("q", "c") for _ in range(40)))

    portal().call(all_of_them)
    assert answers == ["inner"] * 40
    one.close()
    inner.close()
