"""The loop through the real engine: what it sends, what it does, and how it ends."""

import asyncio
import json
import re
from itertools import pairwise
from typing import Any

import pytest

from rlm.api import RLM
from rlm.calls.scope import Scope, Tree
from rlm.config import Guards
from rlm.errors import ModelError
from rlm.events import (
    BudgetChanged,
    CallEnded,
    CellEnded,
    Compacted,
    ModelAsked,
    ModelReplied,
    RunEnded,
    RunStarted,
    SessionLost,
)
from rlm.limits import Budget, Limits
from rlm.messages import Reply, Request, ToolCall, Usage
from rlm.results import RunResult
from rlm.testing.scripted import ScriptedClient
from tests.fakes import PlanEnvironment, cell

LOOK = cell(["print", "something about context"])


def scripted(*script: Any, **more: Any) -> tuple[RLM, ScriptedClient, PlanEnvironment]:
    client_options = {k: more.pop(k) for k in ("rules", "window_tokens", "price") if k in more}
    client, environment = ScriptedClient(script, **client_options), PlanEnvironment()
    return RLM(client, environment=environment, **more), client, environment


async def ask(*script: Any, **more: Any) -> tuple[RunResult, ScriptedClient]:
    engine, client, environment = scripted(*script, **more)
    result = await engine.aask("What is it?", "the context itself")
    assert all(session.closed for session in environment.sessions)
    return result, client


def last_message(request: Request) -> str:
    return str(request.messages[-1].content)


def kinds(result: RunResult, kind: type[Any]) -> list[Any]:
    return [event for event in result.events if isinstance(event, kind)]


async def test_a_run_executes_a_cell_shows_its_output_and_submits_an_answer() -> None:
    result, client = await ask(cell(["print", "found 42"]), cell(["final", "42"]))
    assert (result.answer, result.stop_reason, result.answer_source) == (
        "42",
        "answer",
        "submitted",
    )
    assert (result.steps, result.usage.total.requests) == (2, 2)
    assert last_message(client.requests[1]).startswith("found 42\nstdout 9 chars")
    assert isinstance(result.events[0], RunStarted)
    assert isinstance(result.events[-1], RunEnded)


async def test_history_only_grows() -> None:
    _, client = await ask(LOOK, "no code here", LOOK, cell(["final", "42"]))
    for before, after in pairwise(client.requests):
        assert after.messages[: len(before.messages)] == before.messages


async def test_a_request_event_holds_only_new_messages() -> None:
    result, client = await ask(LOOK, LOOK, cell(["final", "42"]))
    asked = kinds(result, ModelAsked)
    assert [len(event.new_messages) for event in asked] == [2, 2, 2]
    told = [message for event in asked for message in event.new_messages]
    assert tuple(told) == client.requests[-1].messages


async def test_cells_run_in_order_and_stop_at_the_first_error() -> None:
    reply = cell(["print", "one"]) + "\n" + cell(["fail"]) + "\n" + cell(["print", "three"])
    result, client = await ask(reply, cell(["final", "x"]))
    assert [e.error_type for e in kinds(result, CellEnded)] == [None, "ValueError", None]
    seen = last_message(client.requests[1])
    assert "one" in seen
    assert "ValueError: told to fail" in seen
    assert "three" not in seen


async def test_cells_after_a_submission_do_not_run() -> None:
    result, _ = await ask(cell(["final", "x"]) + "\n" + cell(["print", "later"]))
    assert len(kinds(result, CellEnded)) == 1


async def test_steps_run_out_and_the_model_is_asked_for_its_answer() -> None:
    result, client = await ask(LOOK, LOOK, "It is 7.", limits=Limits(max_steps=2))
    assert (result.answer, result.stop_reason, result.answer_source) == (
        "It is 7.",
        "steps",
        "asked",
    )
    assert result.limit == "steps"
    assert "Answer the query now" in last_message(client.requests[2])
    assert kinds(result, ModelReplied)[-1].purpose == "final"


async def test_at_a_limit_an_answer_variable_is_used_without_another_call() -> None:
    result, client = await ask(cell(["set", "final_answer", "9"]), limits=Limits(max_steps=1))
    assert (result.answer, result.answer_source, len(client.requests)) == ("9", "variable", 1)


async def test_auto_finalize_var_names_the_variable() -> None:
    orders = cell(["set", "final_answer", "9"], ["set", "mine", "11"])
    guards = Guards(auto_finalize_var="mine")
    result, _ = await ask(orders, limits=Limits(max_steps=1), guards=guards)
    assert (result.answer, result.answer_source) == ("11", "variable")


async def test_a_submission_rejected_by_a_guard_is_preferred_to_a_variable() -> None:
    script = [cell(["set", "result", "9"], ["final", "8"])]
    result, _ = await ask(*script, limits=Limits(max_steps=1), guards=Guards(min_steps=2))
    assert (result.answer, result.answer_source, result.stop_reason) == ("8", "submitted", "steps")


async def test_the_last_output_is_the_answer_if_nothing_else_is_available() -> None:
    refused = ModelError("overloaded")
    result, _ = await ask(cell(["print", "so far 5"]), refused, limits=Limits(max_steps=1))
    assert (result.answer, result.answer_source) == ("so far 5", "last_output")


async def test_a_run_that_cannot_send_any_request_has_no_answer() -> None:
    result, client = await ask("never", limits=Limits(max_tokens=25))
    assert (result.answer, result.answer_source, result.stop_reason) == (None, "none", "limit")
    assert (result.limit, result.steps, client.requests) == ("tokens", 0, [])


async def test_when_tokens_run_out_the_final_answer_call_still_fits() -> None:
    usage = Usage(3_000, 200)
    steps = [Reply(text=cell(["print", f"context {n}"]), usage=usage) for n in range(20)]
    limits = Limits(max_tokens=40_000)
    rules = [("Stop here", Reply(text="best so far", usage=usage))]
    result, client = await ask(*steps, limits=limits, rules=rules)
    assert (result.answer, result.stop_reason, result.limit) == ("best so far", "limit", "tokens")
    assert result.usage.total.total_tokens <= 40_000
    assert len(client.requests) > 2


async def test_a_server_that_exceeds_its_output_cap_is_reported_and_ends_the_run() -> None:
    greedy = Reply(text=LOOK, usage=Usage(100, 50_000))
    result, client = await ask(greedy, "never", limits=Limits(max_tokens=200_000))
    assert (result.stop_reason, result.answer_source) == ("limit", "last_output")
    assert "more than a request can" in result.detail
    assert len(client.requests) == 1
    assert kinds(result, BudgetChanged)[-1].overshoot_tokens > 30_000


async def test_consecutive_errors_end_the_run() -> None:
    replies = [cell(["print", n], ["fail"]) for n in range(20)]
    limits = Limits(max_errors=2)
    result, client = await ask(*replies, limits=limits, rules=[("Stop here", "Unclear.")])
    assert (result.stop_reason, result.limit, result.answer) == ("error", "errors", "Unclear.")
    assert len(client.requests) == 3


async def test_consecutive_replies_without_action_end_the_run() -> None:
    guards = Guards(invalid_response_limit=3)
    result, _ = await ask("Hm.", "Hm.", "Hm.", "42", guards=guards)
    assert (result.stop_reason, result.limit) == ("error", "invalid_responses")
    assert result.answer == "42"


async def test_fallback_code_runs_in_place_of_the_last_empty_reply() -> None:
    guards = Guards(invalid_response_limit=2, fallback_code='[["final", "by rule"]]')
    result, _ = await ask("Hm.", "Hm.", guards=guards)
    assert (result.answer, result.stop_reason) == ("by rule", "answer")


async def test_a_stuck_run_switches_to_mapreduce() -> None:
    rules = [("Below is part 1 of 1", "It is 5."), ("These are the notes", "5")]
    rules += [("these are the notes", "5")]
    result, client = await ask(*[LOOK] * 10, rules=rules)
    assert (result.answer, result.stop_reason, result.answer_source) == ("5", "answer", "asked")
    assert len([r for r in client.requests if "REPL" in str(r.messages[0].content)]) == 6


async def test_a_dead_worker_is_replaced_and_the_model_informed() -> None:
    first = cell(["set", "rows", "1"], ["set", "labels", "2"])
    result, client = await ask(first, cell(["die"]), cell(["final", "ok"]))
    assert result.answer == "ok"
    lost = kinds(result, SessionLost)
    assert [event.lost_variables for event in lost] == [("rows", "labels")]
    told = last_message(client.requests[2])
    assert "told to die" in told
    assert "These variables are lost: rows, labels." in told


@pytest.mark.parametrize(
    ("lost", "words"),
    [("", "as they were before this cell. What"), ("rows", "except that these are lost: rows.")],
)
async def test_a_worker_restored_from_a_checkpoint_continues_and_the_model_is_told(
    lost: str, words: str
) -> None:
    engine, client, environment = scripted(cell(["restore", lost]), cell(["final", "ok"]))
    result = await engine.aask("q", "c")
    assert result.answer == "ok"
    events = kinds(result, SessionLost)
    assert [(event.restored, event.lost_variables) for event in events] == [
        (True, (lost,) if lost else ())
    ]
    assert len(environment.sessions) == 1
    told = last_message(client.requests[1])
    assert "told to die" in told
    assert words in told


async def test_an_unreachable_model_raises_and_the_error_is_recorded() -> None:
    engine, _, environment = scripted(ModelError("no such host"))
    seen: list[Any] = []
    recorder = type("R", (), {"record": lambda self, event: seen.append(event)})()
    with pytest.raises(ModelError, match="no such host"):
        await engine.aask("q", "c", recorders=(recorder,))
    assert isinstance(seen[-1], RunEnded)
    assert (seen[-1].stop_reason, seen[-1].error) == ("error", "no such host")
    assert environment.sessions[0].closed


async def test_an_empty_reply_cut_by_its_cap_gets_more_room_once() -> None:
    empty = Reply(text="", finish_reason="length", usage=Usage(10, 10))
    result, client = await ask(empty, cell(["final", "ok"]))
    assert result.answer == "ok"
    first, second = client.requests
    assert second.max_output_tokens == 2 * first.max_output_tokens
    assert result.steps == 1


async def test_native_tool_calls_are_executed_like_fenced_code() -> None:
    code = json.dumps([["print", "seen 42"]])
    look = Reply(text="", tool_calls=(ToolCall("c1", "execute_python", {"code": code}),))
    end = Reply(text="", tool_calls=(ToolCall("c2", "submit_answer", {"answer": "42"}),))
    result, client = await ask(look, end, protocol="tools")
    assert result.answer == "42"
    assert [tool.name for tool in client.requests[0].tools] == ["execute_python", "submit_answer"]
    assistant, tool = client.requests[1].messages[-2:]
    assert assistant.tool_calls[0].id == tool.tool_call_id == "c1"
    assert "seen 42" in str(tool.content)


async def test_every_native_tool_call_gets_a_reply() -> None:
    calls = tuple(ToolCall(f"c{n}", "execute_python", {"code": "[]"}) for n in range(3))
    _, client = await ask(Reply(text="", tool_calls=calls), "FINAL(x)", protocol="tools")
    answered = [m.tool_call_id for m in client.requests[1].messages if m.role == "tool"]
    assert answered == ["c0", "c1", "c2"]


async def test_a_child_run_draws_on_the_same_budget_and_returns_its_answer_only() -> None:
    rules = [("The task is in the variable", cell(["final", "child answer"]))]
    script = [cell(["rlm", 2]), cell(["final", "done"])]
    result, client = await ask(*script, rules=rules, limits=Limits(max_depth=2))
    assert result.answer == "done"
    assert "child answer\nchild answer" in last_message(client.requests[-1])
    started = kinds(result, RunStarted)
    assert [(e.depth, e.parent_id) for e in started] == [
        (0, None),
        (1, result.run_id),
        (1, result.run_id),
    ]
    assert set(result.usage.by_depth) == {0, 1}
    children = [e for e in kinds(result, CallEnded) if e.kind == "rlm"]
    assert {e.child_run_id for e in children} == {e.run_id for e in started[1:]}


async def test_at_the_depth_limit_a_child_run_becomes_a_plain_call() -> None:
    rules = [("sub-LLM", "plain")]
    result, _ = await ask(cell(["rlm", 1]), cell(["final", "done"]), rules=rules)
    assert len(kinds(result, RunStarted)) == 1
    assert [e.kind for e in kinds(result, CallEnded)] == ["llm"]


async def test_a_child_without_an_answer_is_a_failed_item() -> None:
    rules = [("The task is in the variable", ModelError("child model down"))]
    script = [cell(["rlm", 1]), cell(["final", "done"])]
    result, client = await ask(*script, rules=rules, limits=Limits(max_depth=2))
    assert result.answer == "done"
    assert "[call failed: child model down]" in last_message(client.requests[-1])


async def test_the_number_of_concurrent_children_is_limited() -> None:
    live = most = 0

    class Counting(PlanEnvironment):
        async def open(self, host: Any, options: Any) -> Any:
            nonlocal live, most
            session = await super().open(host, options)
            live += 1
            most = max(most, live)
            close = session.close

            async def counted() -> None:
                nonlocal live
                live -= 1
                await close()

            session.close = counted  # type: ignore[method-assign]
            return session

    rules = [("The task is in the variable", cell(["final", "x"]))]
    client = ScriptedClient([cell(["rlm", 40]), cell(["final", "done"])], rules)
    limits = Limits(max_depth=2, max_child_sessions=4)
    result = await RLM(client, environment=Counting(), limits=limits).aask("q", "c")
    assert result.answer == "done"
    assert (most, live) == (1 + 4, 0)


async def test_history_is_compacted_near_the_window_and_the_run_continues() -> None:
    long = cell(["print", "y" * 1_500])
    rules = [("about to be shortened", "My notes: nothing yet.")]
    script = (
        [long] * 2 + [cell(["print", n, "y" * 1500]) for n in range(8)] + [cell(["final", "ok"])]
    )
    result, client = await ask(*script, rules=rules, window_tokens=6_000)
    assert result.answer == "ok"
    assert kinds(result, Compacted)
    roles = [[m.role for m in r.messages] for r in client.requests]
    assert all(a != b for one in roles for a, b in pairwise(one))
    assert any("My notes" in str(m.content) for m in client.requests[-1].messages)


async def test_compaction_can_be_disabled() -> None:
    script = [cell(["print", n, "y" * 1_500]) for n in range(9)] + [cell(["final", "ok"])]
    result, _ = await ask(*script, window_tokens=3_000, compaction=False)
    assert kinds(result, Compacted) == []


async def test_a_stopped_run_ends_with_its_best_answer_and_asks_nothing_more() -> None:
    engine, client, _ = scripted(cell(["set", "result", "so far 5"]), cell(["sleep"]))
    result = await stopped_in_its_second_step(engine, client)
    assert (result.stop_reason, result.answer_source) == ("cancelled", "variable")
    assert (result.answer, len(client.requests)) == ("so far 5", 2)


async def test_a_stopped_run_does_not_use_raw_output_as_its_answer() -> None:
    engine, client, _ = scripted(cell(["print", "line 1 of a log"]), cell(["sleep"]))
    result = await stopped_in_its_second_step(engine, client)
    assert (result.stop_reason, result.answer_source) == ("cancelled", "none")
    assert (result.answer, len(client.requests)) == (None, 2)
    ended = result.events[-1]
    assert isinstance(ended, RunEnded)
    assert (ended.answer, ended.answer_source) == (None, "none")


async def stopped_in_its_second_step(engine: RLM, client: ScriptedClient) -> RunResult:
    task = asyncio.create_task(engine.aask("q", "c"))
    while len(client.requests) < 2:
        await asyncio.sleep(0)
    engine.stop()
    return await asyncio.wait_for(task, 60)


async def test_a_cancelled_run_closes_its_session_and_is_recorded() -> None:
    engine, client, environment = scripted(cell(["sleep"]))
    seen: list[Any] = []
    recorder = type("R", (), {"record": lambda self, event: seen.append(event)})()
    task = asyncio.create_task(engine.aask("q", "c", recorders=(recorder,)))
    while not client.requests:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert environment.sessions[0].closed
    assert seen[-1].stop_reason == "cancelled"


async def test_when_time_runs_out_the_model_is_asked_for_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rlm.limits.FINAL_SHARE", 0.98)
    monkeypatch.setattr("rlm.limits.FINAL_SECONDS", 60.0)
    result, client = await ask(
        cell(["sleep"]), rules=[("Stop here", "At the bell.")], limits=Limits(max_seconds=60.0)
    )
    assert (result.stop_reason, result.limit) == ("limit", "seconds")
    assert (result.answer, len(client.requests)) == ("At the bell.", 2)


async def test_a_cell_that_the_time_of_its_run_ends_says_so() -> None:
    endless = "```repl\nimport time\nwhile True: time.sleep(0.01)\n```"
    model = ScriptedClient([endless], rules=[("Stop here", "At the bell.")])
    engine = RLM(model, limits=Limits(max_seconds=3.0))
    result = await engine.aask("q", "c")
    await engine.aclose()
    [ended] = kinds(result, CellEnded)
    assert ended.interrupted
    assert (ended.error_type, ended.error_message) == (
        "TimeoutError",
        "the run's time limit of 3 s ended the cell (max_seconds)",
    )


async def test_sandboxed_code_can_only_name_listed_models() -> None:
    from rlm.engine.bridge import Bridge
    from rlm.errors import CallRefused

    engine, _, _ = scripted()
    services = engine.runner.resources.services()
    nowhere: Any = None
    scope = Scope(run_id="run", budget=Budget(Limits()), recorders=(), tree=Tree(16))
    bridge = Bridge(services.calls, engine.config, scope, nowhere)
    with pytest.raises(CallRefused, match="not allowed here; use one of ScriptedClient"):
        await bridge.answer("llm", {"model": "openai/gpt-9", "batched": False}, ["hi"])


async def test_no_message_holds_context_text_that_code_did_not_print() -> None:
    marker = "zebra-7731-quartz"
    engine, client, _ = scripted(LOOK, "hm", LOOK, cell(["final", "x"]), preview_chars=0)
    result = await engine.aask("What?", f"line one\n{marker}\nline three")
    assert marker not in "".join(str(m.content) for r in client.requests for m in r.messages)
    assert marker not in repr(result.events)


@pytest.mark.parametrize(
    ("name", "small", "others"),
    [
        ("max_tokens", 1, {}),
        ("max_cost_usd", 1e-6, {}),
        ("max_tokens", 1, {"max_cost_usd": 9.0}),
        ("max_cost_usd", 1e-6, {"max_tokens": 9_000_000}),
    ],
)
def test_limits_too_small_for_any_run_name_a_sufficient_value(
    name: str, small: float, others: dict[str, Any]
) -> None:
    def asked(limit: float) -> RunResult:
        given: dict[str, Any] = {**others, name: limit}
        prices = {"ScriptedClient": (0.25, 2.0)}
        client = ScriptedClient(["```repl\nFINAL(1)\n```"])
        with RLM(client, limits=Limits(**given), prices=prices) as rlm:
            return rlm.ask("How many?", "text")

    refused = asked(small)
    assert (refused.stop_reason, refused.steps) == ("limit", 0)
    assert refused.limit == name.removeprefix("max_")
    found = re.search(r"need \$?([\d.,]+)(?: tokens)? \((.*)\)$", refused.detail)
    assert found is not None
    assert found[2] == name  # and no limit that was not set, or has room
    enough = float(found[1].replace(",", ""))
    assert asked(int(enough) if name == "max_tokens" else enough).stop_reason == "answer"
