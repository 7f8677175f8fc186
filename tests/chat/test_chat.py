"""Chats: several runs over one session."""

import asyncio
from typing import Any

import pytest

from rlm import RLM, CallRefused, ConfigError, Limits, ScriptedClient
from rlm.chat.chat import Chat
from rlm.engine import sessions
from rlm.events import CallStarted, CellStarted, Event, RunEnded, RunStarted
from rlm.messages import Request, Usage


def code(text: str) -> str:
    return f"```repl\n{text}\n```"


def first_message(request: Request) -> str:
    return str(request.messages[1].content)


def engine(*script: str, **more: Any) -> tuple[RLM, ScriptedClient]:
    client = ScriptedClient(script)
    return RLM(client, **more), client


async def test_variables_and_history_persist_between_turns() -> None:
    one, client = engine(code("n = len(context)\nFINAL(n)"), code("FINAL([n, history])"))
    chat = one.chat("abc")
    assert (await chat.aask("How long?")).answer == "3"
    assert (await chat.aask("And again?")).answer == "[3, [{'query': 'How long?', 'answer': '3'}]]"
    await chat.aclose()
    assert "Earlier query: How long?\nYour answer: 3" in first_message(client.requests[1])


async def test_each_turn_may_have_its_own_context() -> None:
    one, client = engine("FINAL(a)", code("FINAL(context + context_1)"))
    chat = one.chat()
    await chat.aask("First?", "one ")
    assert (await chat.aask("Second?", "two")).answer == "one two"
    await chat.aclose()
    assert "- `context`: a str of 4 characters" in first_message(client.requests[1])
    assert "- `context_1`: a str of 3 characters" in first_message(client.requests[1])


async def test_a_dead_worker_loses_variables_but_not_contexts() -> None:
    script = (
        code("x = 1\nFINAL(x)"),
        code("import os; os._exit(1)"),
        code("FINAL([context, context_1])"),
    )
    one, client = engine(*script)
    chat = one.chat("a")
    await chat.aask("First?")
    assert (await chat.aask("Second?", "b")).answer == "['a', 'b']"
    await chat.aclose()
    assert "These variables are lost: x." in str(client.requests[2].messages[-1].content)


async def cancelled_in(chat: Chat, query: str) -> None:
    """Ask, wait until a cell has run for a moment, and cancel."""
    running = asyncio.Event()

    class Ear:
        def record(self, event: Event) -> None:
            if isinstance(event, CellStarted):
                asyncio.get_running_loop().call_later(0.1, running.set)

    turn = asyncio.create_task(chat.aask(query, recorders=[Ear()]))
    await running.wait()
    turn.cancel()
    outcome = await asyncio.gather(turn, return_exceptions=True)
    assert isinstance(outcome[0], asyncio.CancelledError)


async def test_a_cancelled_turn_keeps_variables_and_is_not_in_the_history() -> None:
    script = (code("x = 1\nFINAL(x)"), code("y = 2\nwhile True: pass"), code("FINAL([x, y])"))
    one, client = engine(*script)
    chat = one.chat("a")
    await chat.aask("First?")
    await cancelled_in(chat, "Second?")
    assert (await chat.aask("Third?")).answer == "[1, 2]"
    await chat.aclose()
    assert [turn["query"] for turn in chat.turns] == ["First?", "Third?"]
    assert "lost" not in first_message(client.requests[2])


async def test_cancelling_a_turn_during_a_call_cancels_the_call() -> None:
    one, client = engine(
        code("x = 1\nFINAL(x)"), code("y = 2\nllm_query('?')"), "never", code("FINAL([x, y])")
    )

    class Ear:
        def record(self, event: Event) -> None:
            if isinstance(event, CallStarted):
                turn.cancel()

    chat = one.chat("a")
    await chat.aask("First?")
    turn = asyncio.create_task(chat.aask("Second?", recorders=[Ear()]))
    while len(client.requests) < 2:
        await asyncio.sleep(0.001)
    client.delay_seconds = 3_600
    await asyncio.gather(turn, return_exceptions=True)
    assert turn.cancelled()
    assert client.in_flight == 0
    client.delay_seconds = 0
    assert (await chat.aask("Third?")).answer == "[1, 2]"
    await chat.aclose()


async def test_a_cell_that_cannot_be_interrupted_loses_the_variables_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "CANCEL_SECONDS", 0.1)
    stubborn = "sum(range(10**15))"  # signals are not handled in there
    one, client = engine(code("x = 1\nFINAL(x)"), code(stubborn), code("FINAL(context_1)"))
    chat = one.chat("a")
    await chat.aask("First?")
    await cancelled_in(chat, "Second?")
    assert (await chat.aask("Third?", "b")).answer == "b"
    await chat.aclose()
    assert "These variables are lost: x." in first_message(client.requests[2])


async def test_a_stopped_turn_keeps_the_variables_and_its_best_answer() -> None:
    script = (code("answer = 'half'\nx = 1\nwhile True: pass"), code("FINAL(x)"))
    one, _ = engine(*script)
    chat = one.chat("a")

    class Ear:
        def record(self, event: Event) -> None:
            if isinstance(event, CellStarted) and not chat.turns:
                asyncio.get_running_loop().call_later(0.1, one.stop)

    assert (await chat.aask("First?", recorders=[Ear()])).stop_reason == "cancelled"
    assert chat.turns == [{"query": "First?", "answer": "half", "ended": "cancelled"}]
    assert (await chat.aask("Second?")).answer == "1"
    await chat.aclose()


async def test_a_turn_without_an_answer_is_recorded_as_such() -> None:
    one, client = engine("no code", "", code("FINAL(history)"), limits=Limits(max_steps=1))
    chat = one.chat("a")
    assert (await chat.aask("First?")).answer is None
    second = await chat.aask("Second?")
    await chat.aclose()
    assert second.answer == "[{'query': 'First?', 'answer': None, 'ended': 'steps'}]"
    assert "You gave no answer (the run ended: steps)." in first_message(client.requests[2])


async def test_usage_of_all_turns_is_counted_and_limited() -> None:
    prices = {"ScriptedClient": (1.0, 1.0)}
    one, _ = engine(*[code("FINAL(1)")] * 9, prices=prices)
    chat = one.chat("a", max_cost_usd=0.1, max_tokens=1_000_000)
    results = [await chat.aask(f"{number}?") for number in range(2)]
    assert chat.usage.total_tokens == sum(each.usage.total.total_tokens for each in results)
    assert chat.cost_usd == pytest.approx(sum(each.cost_usd or 0 for each in results))
    assert [each.cost_usd for each in chat.summaries] == [each.cost_usd for each in results]
    await chat.aclose()
    used = chat.usage.total_tokens
    tight = one.chat("a", max_tokens=used)
    first = await tight.aask("Fits?")
    assert first.stop_reason in {"answer", "limit"}
    with pytest.raises(ConfigError, match="max_tokens"):
        one.chat(max_tokens=0)
    await tight.aclose()


async def test_a_chat_whose_budget_is_used_up_refuses_the_next_turn() -> None:
    one, client = engine(*[code("FINAL(1)")] * 9)
    client._usage = lambda *_: Usage(input_tokens=195_000, output_tokens=5_000, requests=1)
    chat = one.chat("a", max_tokens=200_000)
    await chat.aask("First?")
    with pytest.raises(CallRefused, match="all 200,000 tokens of this chat are used"):
        await chat.aask("Second?")
    assert len(client.requests) == 1
    await chat.aclose()


async def test_the_events_of_a_turn_can_be_streamed() -> None:
    one, _ = engine(code("FINAL(1)"), code("FINAL(2)"))
    chat = one.chat("a")
    seen = [event async for event in chat.stream("First?")]
    assert isinstance(seen[0], RunStarted)
    assert isinstance(seen[-1], RunEnded)
    assert chat.turns == [{"query": "First?", "answer": "1"}]
    async for _ in chat.stream("Second?"):
        break
    assert len(chat.turns) == 1
    await chat.aclose()


async def test_contexts_and_variables_can_be_listed() -> None:
    one, _ = engine(code("names = ['Ada']\nFINAL(context_1)"))
    chat = one.chat("first")
    assert await chat.avariables() == {}
    assert await chat.aadd_context("second") == "context_1"
    assert await chat.afetch("context_1") is None  # there is no REPL yet
    assert (await chat.aask("q")).answer == "second"
    assert list(chat.contexts) == ["context", "context_1"]
    assert await chat.avariables() == {"names": "list[1]"}
    assert await chat.afetch("names") == "['Ada']"
    assert await chat.afetch("nothing") is None
    await chat.aclose()


async def test_a_chat_uses_its_repl_with_any_strategy_and_a_closed_one_says_so() -> None:
    one, _ = engine(code("FINAL(context)"), "FINAL(0)", strategy="auto")
    chat = one.chat("a")
    assert (await chat.aask("q")).answer == "a"
    assert (await chat.aask("q", response_model=int)).answer == 0
    assert chat.turns[-1]["answer"] == "0"
    await chat.aclose()
    with pytest.raises(ConfigError, match="closed"):
        await chat.aask("q")


def test_the_blocking_form() -> None:
    one, _ = engine(code("n = 1\nFINAL(n)"), code("FINAL(n + 1)"))
    with one, one.chat() as chat:
        assert [chat.ask("a").answer, chat.ask("b").answer] == ["1", "2"]
        assert [turn["query"] for turn in chat.turns] == ["a", "b"]
