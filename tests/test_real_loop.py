"""The whole system with a real worker process: engine, bridge, wire and REPL together."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from rlm.api import RLM
from rlm.environments.local import LocalEnvironment
from rlm.errors import ModelError
from rlm.events import CallEnded, CellEnded, RunStarted, SessionLost
from rlm.limits import Limits
from rlm.messages import Reply, Request
from rlm.results import RunResult
from rlm.testing.scripted import ScriptedClient
from tests.processes import descendants

CHILD = "The task is in the variable"


def code(text: str) -> str:
    return f"```repl\n{text}\n```"


async def ask(
    *script: Any, context: Any = "the context", **more: Any
) -> tuple[RunResult, ScriptedClient]:
    client = ScriptedClient(script, more.pop("rules", ()))
    engine = RLM(client, **more)
    try:
        return await engine.aask("What is it?", context), client
    finally:
        await engine.aclose()


def seen(client: ScriptedClient, request: int) -> str:
    return str(client.requests[request].messages[-1].content)


async def test_variables_persist_between_cells() -> None:
    look = code("words = context.split()\nprint(len(words))")
    result, client = await ask(look, code("FINAL(words[-1])"), context="one two three")
    assert result.answer == "three"
    assert seen(client, 1).startswith("3\n")


@pytest.mark.parametrize(
    "context", ["a\0b\r\nc\ud800d😀", ["x", "\udfff"], {"k": [1, None, "é"]}, b"\x00\xff", ""]
)
async def test_the_context_arrives_unchanged(context: Any) -> None:
    check = code(f"FINAL(context == {context!r} and type(context).__name__)")
    result, _ = await ask(check, context=context)
    assert result.answer == type(context).__name__


async def test_a_thousand_prompts_keep_their_order_with_failures_in_place() -> None:
    def reply(request: Request) -> str | ModelError:
        number = int(str(request.messages[-1].content))
        return ModelError("bad number") if number % 100 == 7 else f"<{number}>"

    cell = code(
        "r = llm_query_batched([str(n) for n in range(1000)])\n"
        "bad = [n for n, x in enumerate(r) if getattr(x, 'failed', False)]\n"
        "good = all(x == f'<{n}>' for n, x in enumerate(r) if n not in bad)\n"
        "FINAL(f'{len(r)} {bad} {good} {r[7]}')"
    )
    result, client = await ask(cell, rules=[("sub-LLM", reply)])
    bad = list(range(7, 1000, 100))
    assert result.answer == f"1000 {bad} True [call failed: bad number]"
    assert client.max_in_flight == 64
    calls = [e for e in result.events if isinstance(e, CallEnded)]
    assert (len(calls), sum(e.error is None for e in calls)) == (1000, 990)


async def test_a_batch_beyond_the_call_limit_keeps_paid_replies() -> None:
    cell = code(
        "r = llm_query_batched(['p'] * 10)\nFINAL([getattr(x, 'failed', str(x)) for x in r])"
    )
    result, client = await ask(cell, rules=[("sub-LLM", "ok")], limits=Limits(max_calls=6))
    assert result.answer == str(["ok"] * 6 + [True] * 4)
    assert len(client.requests) == 1 + 6


async def test_endless_calls_end_without_flooding_the_events() -> None:
    flood = "while True:\n    try: llm_query('again')\n    except CallFailed as e: last = e"
    script = [code(flood), code("FINAL(str(last))")]
    limits = Limits(max_calls=5, cell_seconds=2)
    result, client = await ask(*script, rules=[("sub-LLM", "ok")], limits=limits)
    assert result.answer == "all 5 calls are used (max_calls)"
    assert sum(isinstance(e, CallEnded) for e in result.events) == 5
    assert len(client.requests) == 2 + 5


async def test_an_oversized_batch_is_an_error_and_a_large_one_pays_only_what_fits() -> None:
    script = [
        code("llm_query_batched(['x'] * 200_000)"),
        code("r = llm_query_batched(['x'] * 90_000)\nFINAL(sum(hasattr(x, 'failed') for x in r))"),
    ]
    result, client = await ask(*script, rules=[("sub-LLM", "ok")], limits=Limits(max_calls=10))
    assert "exceed the limit of 100,000" in seen(client, 1)
    assert result.answer == "89990"
    assert sum(isinstance(e, CallEnded) for e in result.events) == 10


async def test_a_child_run_has_a_new_repl_and_sees_only_its_own_context() -> None:
    child = code("FINAL(f'{context!r} {\"secret\" in dir()}')")
    root = code("secret = 1\nFINAL(rlm_query('count the words'))")
    result, _ = await ask(root, rules=[(CHILD, child)], limits=Limits(max_depth=2))
    assert result.answer == "'count the words' False"
    assert [e.depth for e in result.events if isinstance(e, RunStarted)] == [0, 1]


async def test_a_child_with_a_context_gets_the_prompt_as_its_query() -> None:
    child = code("FINAL(sum(context['rows']))")
    root = code("FINAL(rlm_query('Add the rows', context={'rows': [1, 2, 3]}))")
    result, client = await ask(
        root, rules=[("Query: Add the rows", child)], limits=Limits(max_depth=2)
    )
    assert result.answer == "6"
    assert "a dict of 1 item" in seen(client, 1)


async def test_three_levels_of_child_runs_end_in_plain_calls() -> None:
    def child(request: Request) -> str:
        return code("FINAL('(' + rlm_query(context + '+') + ')')")

    rules = [(CHILD, child), ("sub-LLM", lambda r: f"leaf {r.messages[-1].content}")]
    result, _ = await ask(code("FINAL(rlm_query('x'))"), rules=rules, limits=Limits(max_depth=3))
    assert result.answer == "((leaf x++))"
    assert [e.depth for e in result.events if isinstance(e, RunStarted)] == [0, 1, 2]


async def test_a_refused_model_and_a_failed_call_can_be_handled_by_the_model() -> None:
    script = [
        code("llm_query('hi', model='openai/other')"),
        code("try:\n    llm_query('hi')\nexcept CallFailed as e:\n    FINAL(str(e))"),
    ]
    result, client = await ask(*script, rules=[("sub-LLM", ModelError("it is down"))])
    assert "CallFailed" in seen(client, 1)
    assert "not allowed here" in seen(client, 1)
    assert result.answer == "it is down"


async def test_budget_returns_what_is_left() -> None:
    cell = code(
        "llm_query('hi')\nb = budget()\nFINAL([b['calls'], b['tokens'] < 50_000, b['cost_usd']])"
    )
    limits = Limits(max_calls=9, max_tokens=50_000)
    result, _ = await ask(cell, rules=[("sub-LLM", "ok")], limits=limits)
    assert result.answer == "[8, True, None]"


async def test_a_cell_that_runs_too_long_is_stopped_and_keeps_its_variables() -> None:
    script = [code("x = 41\nwhile True: pass"), code("FINAL(x + 1)")]
    result, client = await ask(*script, limits=Limits(cell_seconds=2))
    assert result.answer == "42"
    assert "cell stopped after 2 s" in seen(client, 1)
    ended = [e for e in result.events if isinstance(e, CellEnded)]
    assert ended[0].interrupted


@pytest.mark.parametrize(
    "how", ["import os; os._exit(3)", "import os, signal; os.kill(os.getpid(), 9)"]
)
async def test_a_dead_worker_is_replaced(how: str) -> None:
    script = [code("rows = [1, 2]\nprint('ok')"), code(how), code("FINAL(context)")]
    result, client = await ask(*script, context="still here")
    assert result.answer == "still here"
    lost = [e for e in result.events if isinstance(e, SessionLost)]
    assert [e.lost_variables for e in lost] == [("rows",)]
    assert "`context` is still available. These variables are lost: rows." in seen(client, 2)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
async def test_cancelling_leaves_no_process_behind() -> None:
    # A size that no other test uses, so that no other test shares the zygote or its warm workers.
    place = LocalEnvironment(scratch_bytes=33 << 20, warm_sessions=0)
    await RLM(ScriptedClient([code("FINAL(1)")]), environment=place).aask("q", "c")
    before = len(descendants(os.getpid()))
    client = ScriptedClient(
        [code("rlm_query_batched(['a', 'b', 'c'])")], [(CHILD, code("while True: pass"))]
    )
    engine = RLM(client, environment=place, limits=Limits(max_depth=2))
    task = asyncio.create_task(engine.aask("q", "c"))
    async with asyncio.timeout(60):
        while len(client.requests) < 4 or len(descendants(os.getpid())) < before + 4:
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(60):
        while len(descendants(os.getpid())) != before:
            await asyncio.sleep(0.01)


class SlowSubCalls(ScriptedClient):
    """Steps are answered at once, sub-calls never."""

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        is_sub_call = "sub-LLM" in str(request.messages[0].content)
        self.delay_seconds = 3_600 if is_sub_call else 0
        return await super().complete(request, timeout_seconds=7_200)


async def test_cancelling_closes_model_calls_too() -> None:
    client = SlowSubCalls([code("llm_query_batched(['x'] * 20)")], [("sub-LLM", "late")])
    engine = RLM(client)
    task = asyncio.create_task(engine.aask("q", "c"))
    while client.in_flight < 20:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert client.in_flight == 0


async def test_stopping_returns_the_best_answer_so_far() -> None:
    client = ScriptedClient([code("answer['content'] = 'so far: 7'"), code("while True: pass")])
    engine = RLM(client)
    task = asyncio.create_task(engine.aask("q", "c"))
    while len(client.requests) < 2:
        await asyncio.sleep(0.01)
    engine.stop()
    result = await task
    assert (result.answer, result.stop_reason) == ("so far: 7", "cancelled")


@pytest.mark.parametrize(
    "rest",
    [
        "while True: pass",
        "llm_query('slow')",
        "while True:\n    try: llm_query('slow')\n    except Exception: pass",
    ],
    ids=["busy", "waiting for a model", "calling again and again"],
)
async def test_a_run_stopped_in_a_cell_answers_with_a_variable_of_that_cell(rest: str) -> None:
    result, sent, client = await stopped_in_a_cell(f"result = 'half way'\nstarted()\n{rest}")
    assert (result.stop_reason, result.answer_source) == ("cancelled", "variable")
    assert (result.answer, len(client.requests)) == ("half way", sent)


async def test_a_cell_that_resists_interrupts_cannot_delay_stopping_its_run() -> None:
    stubborn = "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
    result, _, _ = await stopped_in_a_cell(f"result = 'half way'\nstarted()\n{stubborn}")
    assert result.stop_reason == "cancelled"


async def stopped_in_a_cell(text: str) -> tuple[RunResult, int, ScriptedClient]:
    """Stop a run in its first cell; return its result, and how many requests were sent by then."""
    has_started = asyncio.Event()
    client = ScriptedClient([code(text)], [("slow", "too late")])

    async def started() -> None:
        client.delay_seconds = 600.0
        has_started.set()

    engine = RLM(client, tools=[started])
    try:
        task = asyncio.create_task(engine.aask("q", "c"))
        await has_started.wait()
        while "slow" in text and len(client.requests) < 2:
            await asyncio.sleep(0.01)
        sent = len(client.requests)
        engine.stop()
        return await task, sent, client
    finally:
        await engine.aclose()


async def test_when_time_runs_out_in_a_cell_its_variables_can_still_answer() -> None:
    script = [code("result = 'half way'\nwhile True: pass")]
    result, client = await ask(*script, limits=Limits(max_seconds=5))
    assert (result.stop_reason, result.limit) == ("limit", "seconds")
    assert (result.answer, result.answer_source, len(client.requests)) == (
        "half way",
        "variable",
        1,
    )


async def test_many_concurrent_runs_do_not_affect_each_other() -> None:
    def step(request: Request) -> str:
        return code("new = 'here' not in globals()\nhere = context\nFINAL(f'{context}{new}')")

    client = ScriptedClient(rules=[("", step)])
    engine = RLM(client)
    cwd, stdout = Path.cwd(), sys.stdout
    handler = signal.getsignal(signal.SIGINT)
    results = await asyncio.gather(*(engine.aask("q", f"c{n} ") for n in range(20)))
    await engine.aclose()
    assert [r.answer.split()[0] for r in results] == [f"c{n}" for n in range(20)]
    assert {r.answer.split()[1] for r in results} == {"True"}
    assert (Path.cwd(), sys.stdout) == (cwd, stdout)
    assert signal.getsignal(signal.SIGINT) is handler
