"""AgentRLM through the real engine and a real session, with scripted replies."""

import asyncio
import threading
from contextlib import aclosing
from typing import Any

import pytest

from rlm import AgentContext, AgentRLM, ConfigError, Limits, ModelError, ScriptedClient
from rlm.errors import BudgetExceededError, TokenLimitExceededError
from rlm.events import CellEnded, Noted, OutputStreamed, RunEnded, ToolCalled
from rlm.messages import Request

WRONG: Any = 3


def code(text: str) -> str:
    return f"```repl\n{text}\n```"


def agent_of(*script: Any, **more: Any) -> tuple[AgentRLM, ScriptedClient]:
    client = ScriptedClient(script)
    return AgentRLM(client, **more), client


async def said(agent: AgentRLM, message: str, **more: Any) -> list[str]:
    return [chunk async for chunk in agent.chat(message, **more)]


def first_message(request: Request) -> str:
    return str(request.messages[1].content)


def system(request: Request) -> str:
    return str(request.messages[0].content)


async def test_chunks_joined_are_the_answer() -> None:
    cell = code("stream_output('One, ')\nstream_output('two, ')\nFINAL('One, two, three.')")
    agent, _ = agent_of(cell)
    async with agent:
        assert await said(agent, "Count.") == ["One, ", "two, ", "three."]
        assert agent.last_result is not None
        assert agent.last_result.answer == "One, two, three."
    assert agent.get_conversation_history() == [
        {"role": "user", "content": "Count."},
        {"role": "assistant", "content": "One, two, three."},
    ]


async def test_an_answer_different_from_the_streamed_text_follows_it() -> None:
    agent, _ = agent_of(code("stream_output('Looking. ')\nFINAL('Found.')"))
    async with agent:
        assert await said(agent, "Look.") == ["Looking. ", "Found."]
    assert agent.get_conversation_history()[-1]["content"] == "Looking. Found."


async def test_the_first_chunk_arrives_before_its_cell_ends() -> None:
    heard = threading.Event()
    agent, _ = agent_of(code("stream_output('Wait: ')\nFINAL('Wait: ' + until_heard())"))
    agent.register_tool("until_heard", lambda: str(heard.wait(30)))
    chunks = []
    async with agent:
        async for chunk in agent.chat("Now?"):
            chunks.append(chunk)
            heard.set()
    assert chunks == ["Wait: ", "True"]


async def test_chunks_of_several_steps_and_odd_texts_arrive_exactly() -> None:
    strange = "a\u2028b\x00\ud800é\r\n🦜"
    agent, _ = agent_of(
        code(f"stream_output({strange!r})"),
        code("stream_output('')\nstream_output(42)"),
        code(f"FINAL({strange!r} + '42!')"),
    )
    async with agent:
        assert await said(agent, "Strange?") == [strange, "42", "!"]
    assert agent.get_conversation_history()[-1]["content"] == strange + "42!"


async def test_without_streaming_the_answer_is_one_piece() -> None:
    cell = code("stream_output('a')\nFINAL('ab')")
    agent, _ = agent_of(cell, cell)
    async with agent:
        assert await said(agent, "Once.", stream=False) == ["ab"]
    agent, _ = agent_of(cell, enable_streaming=False)
    async with agent:
        assert await said(agent, "Once.") == ["ab"]


async def test_variables_history_and_context_data_are_in_the_repl_and_not_in_the_prompt() -> None:
    agent, client = agent_of(
        code("kept = context_data['user']['name']\nFINAL('Noted.')"),
        code("FINAL([kept, [t['query'] for t in history], context_1])"),
    )
    agent.add_context("user", {"name": "Alexandria"})
    async with agent:
        await said(agent, "Who am I?", context="a document about ferries")
        answer = await said(agent, "And now?", context="another one")
    assert answer == ["['Alexandria', ['Who am I?'], 'another one']"]
    told = "\n".join(map(first_message, client.requests))
    assert "Alexandria" not in told
    assert "ferries" not in told
    assert "`context_data`: a dict of 1 item with keys user." in told


async def test_values_noted_by_cells_are_remembered_on_the_host() -> None:
    agent, _ = agent_of(
        code("add_to_context('berth', [7, 'north'])\nFINAL(get_agent_context('berth'))"),
        code("import os; os._exit(1)"),
        code("FINAL(context_data)"),
    )
    async with agent:
        assert await said(agent, "Note it.") == ["[7, 'north']"]
        assert agent.context.data == {"berth": [7, "north"]}
        assert await said(agent, "Still there?") == ["{'berth': [7, 'north']}"]


async def test_noting_a_value_without_a_json_form_fails_the_cell() -> None:
    agent, client = agent_of(code("add_to_context('f', print)"), "FINAL(no)")
    async with agent:
        assert await said(agent, "Note it.") == ["no"]
    assert "'f' has no JSON form, so it can't be stored" in str(
        client.requests[1].messages[-1].content
    )
    assert agent.context.data == {}
    with pytest.raises(ConfigError, match="can't be stored as JSON"):
        agent.add_context("f", print)
    with pytest.raises(ConfigError, match="a key must be a string"):
        agent.add_context(WRONG, 4)


async def test_sync_and_async_tools_are_shown_called_and_their_errors_repaired() -> None:
    async def depth(berth: int) -> float:
        """How deep the water is at a berth."""
        await asyncio.sleep(0)
        return berth / 2

    agent, client = agent_of(
        code("depth('north')"),
        code("FINAL([depth(9), await depth(berth=3), call_tool('name', x='a')])"),
    )
    agent.register_tool("depth", depth)
    agent.register_tool("name", lambda x: x.upper())
    async with agent:
        assert await said(agent, "How deep?") == ["[4.5, 1.5, 'A']"]
    assert "`depth(berth: int) -> float`: How deep the water is at a berth." in system(
        client.requests[0]
    )
    assert "ToolFailed: depth: argument 'berth': Expected `int`" in str(
        client.requests[1].messages[-1].content
    )


async def test_a_tool_registered_between_turns_is_available_in_the_same_session() -> None:
    agent, client = agent_of(
        code("x = 1\nFINAL(x)"),
        code("FINAL([x, tenfold(2)])"),
    )
    async with agent:
        await said(agent, "First.")
        agent.register_tool("tenfold", lambda n: n * 10)
        assert await said(agent, "Second.") == ["[1, 20]"]
    assert "tenfold" not in system(client.requests[0])
    assert "`tenfold(n)`" in system(client.requests[1])


async def test_tools_of_one_turn_are_gone_in_the_next() -> None:
    agent, client = agent_of(
        code("y = once() + always()\nFINAL(y)"),
        code("FINAL([y, 'once' in globals(), always()])"),
        code("try:\n    call_tool('once')\nexcept ToolFailed as e:\n    FINAL(e)"),
    )
    agent.register_tool("always", lambda: 1)
    async with agent:
        assert await said(agent, "One.", tools={"once": lambda: 41}) == ["42"]
        assert await said(agent, "Two.") == ["[42, False, 1]"]
        assert "unknown tool 'once'; tools: always" in (await said(agent, "Three."))[0]
    assert "`once()`" not in system(client.requests[1])
    assert "`once()`" in system(client.requests[0])


async def test_a_tool_of_a_turn_may_replace_one_of_the_agent() -> None:
    cell = code("FINAL(pick())")
    agent, _ = agent_of(cell, cell)
    agent.register_tool("pick", lambda: "usual")
    async with agent:
        assert await said(agent, "One.", tools={"pick": lambda: "special"}) == ["special"]
        assert await said(agent, "Two.") == ["usual"]


async def test_invalid_tools_are_refused_at_once() -> None:
    agent, _ = agent_of()
    with pytest.raises(ConfigError, match="agents already use that name"):
        agent.register_tool("analyze_text", len)
    with pytest.raises(ConfigError, match="the REPL itself uses that name"):
        agent.register_tool("llm_query", len)
    with pytest.raises(ConfigError, match="is data, not callable or an object with methods"):
        agent.register_tool("n", WRONG)
    with pytest.raises(ConfigError, match="add_context"):
        await said(agent, "Use it.", tools={"n": 3})
    await agent.aclose()


async def test_tools_can_be_disabled() -> None:
    agent, _ = agent_of("FINAL(ok)", enable_tools=False)
    with pytest.raises(ConfigError, match="enable_tools=False"):
        agent.register_tool("f", len)
    with pytest.raises(ConfigError, match="enable_tools=False"):
        await said(agent, "Use it.", tools=[len])
    assert await said(agent, "Then without.") == ["ok"]
    await agent.aclose()


async def test_progress_is_available_as_events() -> None:
    agent, _ = agent_of(
        code("stream_output('a')\nadd_to_context('k', 1)\nn = f()\nFINAL('ab')"),
    )
    agent.register_tool("f", lambda: 1)
    kinds = (OutputStreamed, Noted, ToolCalled, CellEnded, RunEnded)
    async with agent:
        seen = [event async for event in agent.events("Go.") if isinstance(event, kinds)]
    assert [type(event) for event in seen] == list(kinds)
    assert agent.get_conversation_history()[-1]["content"] == "ab"


async def test_leaving_the_loop_ends_the_turn_but_not_the_agent() -> None:
    agent, _ = agent_of(
        code("x = 5\nFINAL(x)"),
        code("stream_output('first')\nwhile True: pass"),
        code("FINAL('here')"),
    )
    async with agent:
        await said(agent, "Set it.")
        async with aclosing(agent.chat("Run on.")) as chunks:
            async for chunk in chunks:
                assert chunk == "first"
                break
        assert await said(agent, "Are you there?") == ["here"]
    assert [m["content"] for m in agent.get_conversation_history()] == [
        *("Set it.", "5"),
        *("Are you there?", "here"),
    ]


async def test_concurrent_turns_run_one_after_the_other() -> None:
    agent, _ = agent_of(code("n = 1\nFINAL(n)"), code("n += 1\nFINAL(n)"), code("n += 1\nFINAL(n)"))
    async with agent:
        answers = await asyncio.gather(*(said(agent, "Count.") for _ in range(3)))
    assert answers == [["1"], ["2"], ["3"]]


async def test_a_failed_turn_raises_and_is_not_in_the_history() -> None:
    agent, _ = agent_of(ModelError("no such model", status=404), "FINAL(back)")
    async with agent:
        with pytest.raises(ModelError, match="no such model"):
            await said(agent, "Anybody?")
        assert agent.get_conversation_history() == []
        assert await said(agent, "Again?") == ["back"]


async def test_exceeding_a_limit_raises_its_own_error() -> None:
    agent, _ = agent_of("FINAL(never)", max_tokens=10)
    async with agent:
        with pytest.raises(TokenLimitExceededError):
            await said(agent, "Too much.")
    agent, _ = agent_of("FINAL(never)", max_cost=1e-9, prices={"ScriptedClient": (5.0, 5.0)})
    async with agent:
        with pytest.raises(BudgetExceededError):
            await said(agent, "Too dear.")


async def test_text_streamed_before_a_limit_begins_the_answer() -> None:
    agent, _ = agent_of(code("stream_output('So far: ')"), "the rest", max_iterations=1)
    async with agent:
        assert await said(agent, "Go on.") == ["So far: ", "the rest"]
    assert agent.last_result is not None
    assert agent.last_result.stop_reason == "steps"


async def test_child_runs_do_not_stream_to_the_user_but_their_notes_are_kept() -> None:
    child = code("stream_output('inner')\nadd_to_context('from', 'child')\nFINAL('done')")
    agent, _ = agent_of(
        code("FINAL(rlm_query('Do it.', context='x'))"),
        child,
        code("FINAL(context_data)"),
        max_depth=2,
    )
    async with agent:
        assert await said(agent, "Delegate.") == ["done"]
        assert await said(agent, "What is known?") == ["{'from': 'child'}"]


async def test_the_total_streamed_text_is_limited() -> None:
    flood = "for _ in range(6): stream_output('x' * 4_000_000)"
    agent, client = agent_of(code(flood), "FINAL(short)")
    async with agent:
        pieces = await said(agent, "Flood.")
    assert [len(piece) for piece in pieces] == [*[4_000_000] * 5, len("short")]
    assert "submit the rest as the answer" in str(client.requests[1].messages[-1].content)


async def test_the_size_of_one_chunk_is_limited() -> None:
    agent, client = agent_of(code("stream_output('x' * 20_000_001)"), "FINAL(short)")
    async with agent:
        assert await said(agent, "Flood.") == ["short"]
    assert "send less at once" in str(client.requests[1].messages[-1].content)


async def test_the_memory_is_bounded() -> None:
    script = [f"FINAL(answer {n})" for n in range(4)]
    agent, client = agent_of(*script, agent_context=AgentContext("small", max_history_size=3))
    async with agent:
        for n in range(4):
            await said(agent, f"question {n}")
    assert [m["content"] for m in agent.get_conversation_history()] == [
        *("answer 2", "question 3", "answer 3"),
    ]
    assert "question 0" not in first_message(client.requests[3])


async def test_other_keywords_are_passed_to_rlm() -> None:
    agent, client = agent_of("FINAL(ok)", limits=Limits(max_seconds=50), max_iterations=4)
    async with agent:
        await said(agent, "Go.")
    assert "You have 4 steps." in first_message(client.requests[0])
    with pytest.raises(ConfigError, match="backend_kwargs needs"):
        AgentRLM(ScriptedClient(), {"model_name": "gpt-5"})
