"""Tools given to an agent's constructor: functions, objects, and sub-tools for child runs."""

from typing import Any

import pytest

from rlm import AgentRLM, ScriptedClient
from rlm.errors import ConfigError


def code(text: str) -> str:
    return f"```repl\n{text}\n```"


def double(n: int) -> int:
    """Double a number."""
    return 2 * n


class Store:
    """Holds rows."""

    def size(self) -> int:
        """How many there are."""
        return 3


async def said(agent: AgentRLM, message: str, **more: Any) -> str:
    return "".join([piece async for piece in agent.chat(message, **more)])


@pytest.mark.parametrize("spelling", ["tools", "custom_tools"])
async def test_tools_of_the_constructor_are_available_in_every_turn(spelling: str) -> None:
    client = ScriptedClient([code("FINAL([double(2), db.size()])")] * 2)
    given: dict[str, Any] = {spelling: {"double": double, "db": Store()}}
    async with AgentRLM(client, **given) as agent:
        assert await said(agent, "One.") == "[4, 3]"
        assert await said(agent, "Two.", tools=[len]) == "[4, 3]"
    prompt = str(client.requests[0].messages[0].content)
    assert "`double(n: int) -> int`: Double a number." in prompt
    assert "`db.size() -> int`: How many there are." in prompt


async def test_tools_can_be_listed_registered_and_given_per_turn() -> None:
    client = ScriptedClient([code("FINAL([double(2), db.size(), other.size()])")])
    async with AgentRLM(client, tools=[double]) as agent:
        agent.register_tool("db", Store())
        assert await said(agent, "One.", tools={"other": Store()}) == "[4, 3, 3]"


async def test_child_runs_get_sub_tools() -> None:
    client = ScriptedClient(
        [code("FINAL(rlm_query('sub', 'x'))")],
        rules=[("Query: sub", code("FINAL(['double' in dir(), db.size()])"))],
    )
    agent = AgentRLM(client, tools=[double], sub_tools={"db": Store()}, max_depth=2)
    async with agent:
        assert await said(agent, "One.") == "[False, 3]"


async def test_invalid_tool_options_are_refused_when_the_agent_is_made() -> None:
    with pytest.raises(ConfigError, match="enable_tools=False"):
        AgentRLM(ScriptedClient(), tools=[double], enable_tools=False)
    with pytest.raises(ConfigError, match="add_context"):
        AgentRLM(ScriptedClient(), tools={"n": 3})
    with pytest.raises(ConfigError, match="two spellings"):
        AgentRLM(ScriptedClient(), tools=[double], custom_tools=[double])
    with pytest.raises(ConfigError, match="agents already use that name"):
        AgentRLM(ScriptedClient(), tools={"analyze_text": double})


async def test_a_tool_that_asks_its_own_agent_is_refused_instead_of_deadlocking() -> None:
    client = ScriptedClient([code("again()"), "FINAL(done)"])

    async def again() -> str:
        return await said(agent, "Two.")

    agent = AgentRLM(client, tools=[again])
    async with agent:
        assert await said(agent, "One.") == "done"
    told = "".join(str(message.content) for message in client.requests[1].messages)
    assert "a turn of this agent is waiting for the tool that is asking it" in told
