"""Chats: several runs over one session."""

import asyncio
from typing import Any

import pytest

from rlm import RLM, ConfigError, ScriptedClient
from rlm.messages import Request


def code(text: str) -> str:
    return f"```repl\n{text}\n```"


def first_message(request: Request) -> str:
    return str(request.messages[1].content)


def engine(*script: str, **more: Any) -> tuple[RLM, ScriptedClient]:
    client = ScriptedClient(script)
    return RLM(client, **more), client


async def test_variables_and_turns_stay() -> None:
    one, client = engine(code("n = len(context)\nFINAL(n)"), code("FINAL([n, history])"))
    chat = one.chat("abc")
    assert (await chat.aask("How long?")).answer == "3"
    assert (await chat.aask("And again?")).answer == "[3, [{'query': 'How long?', 'answer': '3'}]]"
    await chat.aclose()
    assert "Earlier query: How long?\nYour answer: 3" in first_message(client.requests[1])


async def test_a_context_for_each_turn() -> None:
    one, client = engine("FINAL(a)", code("FINAL(context + context_1)"))
    chat = one.chat()
    await chat.aask("First?", "one ")
    assert (await chat.aask("Second?", "two")).answer == "one two"
    await chat.aclose()
    assert "- `context`: a str of 4 characters" in first_message(client.requests[1])
    assert "- `context_1`: a str of 3 characters" in first_message(client.requests[1])


async def test_a_dead_worker_costs_the_variables_and_not_the_contexts() -> None:
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


async def test_a_cancelled_turn_costs_the_variables_and_says_so() -> None:
    script = (code("x = 1\nFINAL(x)"), code("while True: pass"), code("FINAL(context_1)"))
    one, client = engine(*script)
    chat = one.chat("a")
    await chat.aask("First?")
    turn = asyncio.create_task(chat.aask("Second?"))
    while len(client.requests) < 2:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    assert (await chat.aask("Third?", "b")).answer == "b"
    await chat.aclose()
    assert "These variables are lost: x." in first_message(client.requests[2])


async def test_a_chat_has_its_repl_whatever_the_strategy_and_a_closed_one_says_so() -> None:
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
