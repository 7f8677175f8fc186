"""Programs for rlm-kit's agents, as its documentation writes them."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlm import AgentContext, AgentRLM, ConfigError, ScriptedClient, create_enforced_agent


def cell(code: str) -> str:
    return f"```repl\n{code}\n```"


async def test_a_conversation_with_tools_that_is_saved_and_continued(tmp_path: Path) -> None:
    """Modelled on its first example: tools, context, several turns, a second agent."""
    model = ScriptedClient([cell("FINAL(calculate('6 * 7'))"), cell("FINAL(len(context_data))")])
    agent = create_enforced_agent(backend=model)
    agent.register_tool("search_web", lambda query: f"results for {query}")
    agent.register_tool("calculate", lambda expression: 42)
    agent.add_context("user_profile", {"name": "Alex"})
    agent.add_context("current_project", {"name": "RLM Research"})
    assert list(agent.agent_context.tools.keys()) == ["search_web", "calculate"]
    answers = []
    for message in ("What is it?", "How many?"):
        answers.append("".join([chunk async for chunk in agent.chat(message, stream=True)]))
        assert len(agent.agent_context.context_data) == 2
    assert answers == ["42", "2"]
    assert len(agent.get_conversation_history()) == 4
    agent.save_context(tmp_path / "agent_context.json")
    await agent.aclose()

    other = AgentRLM(backend=ScriptedClient([cell("FINAL(search_web('it'))")]), environment="agent")
    other.register_tool("search_web", lambda query: f"results for {query}")
    other.load_context(tmp_path / "agent_context.json")
    assert list(other.agent_context.context_data.keys()) == ["user_profile", "current_project"]
    assert other.missing_tools == ("calculate",)
    async with other:
        chunks = [chunk async for chunk in other.chat("Go on.", stream=True)]
    assert "".join(chunks) == "results for it"
    assert [m["content"] for m in other.agent_context.conversation_history[-1:]] == chunks


async def test_a_program_can_manage_the_context_itself() -> None:
    """Modelled on its second example: methods of an object as tools, with a separate context."""

    class Repository:
        def search_code(self, query: str, file_pattern: str = "*.py") -> str:
            return f"{query} in {file_pattern}"

    memory = AgentContext("cli_agent", max_history_size=4)
    memory.register_tool("search_code", Repository().search_code)
    memory.add_context("root", "src")
    script = [
        cell("FINAL(search_code('RLM', file_pattern=context_data['root']))"),
        cell("FINAL(call_tool('shout', text=context_data['word']))"),
    ]
    async with AgentRLM(backend=ScriptedClient(script), agent_context=memory) as agent:
        assert agent.agent_context is memory
        assert [chunk async for chunk in agent.chat("Search.")] == ["RLM in src"]
        memory.context_data["word"] = "done"
        memory.register_tool("shout", lambda text: text.upper())
        assert [chunk async for chunk in agent.chat("Shout.")] == ["DONE"]
    (last,) = memory.get_recent_history(1)
    assert last.keys() == {"role", "content", "timestamp", "metadata"}
    assert (last["role"], last["content"], last["metadata"]) == ("assistant", "DONE", {})
    assert memory.to_dict() == {
        "agent_id": "cli_agent",
        "conversation_history": memory.conversation_history,
        "context_data": {"root": "src", "word": "done"},
        "tools": ["search_code", "shout"],
        "metadata": {},
    }
    json.dumps(memory.to_dict())


def kit_file(path: Path, **changes: Any) -> Path:
    said = {"content": "Hello", "timestamp": 1.5, "metadata": {}}
    whole = {
        "agent_id": "4f1c",
        "conversation_history": [{"role": "user", **said}, {"role": "assistant", **said}],
        "context_data": {"user": {"name": "Alex"}},
        "tools": ["search_web"],
        "metadata": {"made": "there"},
    }
    path.write_text(json.dumps(whole | changes))
    return path


async def test_files_saved_by_rlm_kit_can_be_loaded(tmp_path: Path) -> None:
    agent = AgentRLM(backend=ScriptedClient([cell("FINAL(context_data['user']['name'])")]))
    agent.load_context(kit_file(tmp_path / "kit.json"))
    assert agent.agent_context.agent_id == "4f1c"
    assert agent.agent_context.metadata == {"made": "there"}
    assert agent.missing_tools == ("search_web",)
    assert agent.get_conversation_history() == [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello"},
    ]
    async with agent:
        assert [chunk async for chunk in agent.chat("Who?")] == ["Alex"]


def test_timestamps_and_metadata_survive_loading_and_saving(tmp_path: Path) -> None:
    """Facts about messages in rlm-kit's files survive loading and saving."""
    when = {"timestamp": 1.5, "metadata": {"rating": [5, "of 5"]}}
    as_text = {"timestamp": "2026-01-02T03:04:05", "metadata": {}}
    said = [
        {"role": "user", "content": "Hello", **when},
        {"role": "assistant", "content": "Hi", **as_text},
        {"role": "user", "content": "an older message"},
    ]
    first, _ = AgentContext.load(kit_file(tmp_path / "kit.json", conversation_history=said))
    assert first.history == said
    first.add_message("assistant", "new", {"mood": "good"})
    first.save(tmp_path / "ours.json", ["search_web"])
    again, tools = AgentContext.load(tmp_path / "ours.json")
    assert again.history == first.history
    assert again.history[3]["timestamp"] > 1.7e9
    assert again.history[3]["metadata"] == {"mood": "good"}
    assert (again.metadata, tools) == ({"made": "there"}, ("search_web",))
    assert again.to_dict() == first.to_dict()


def test_values_that_cannot_be_saved_are_refused_in_one_line(tmp_path: Path) -> None:
    memory = AgentContext()
    with pytest.raises(ConfigError, match="the metadata of a message can't be stored as JSON"):
        memory.add_message("user", "x", {"when": object()})
    memory.history.append({"role": "user", "content": 3})
    with pytest.raises(ConfigError, match="a message of the agent's history can't be saved"):
        memory.save(tmp_path / "m.json")
    assert not (tmp_path / "m.json").exists()


def test_messages_of_other_roles_are_skipped(tmp_path: Path) -> None:
    other = [{"role": "system", "content": "x"}, {"role": "user", "content": "y"}]
    read, _ = AgentContext.load(kit_file(tmp_path / "kit.json", conversation_history=other))
    assert read.history == [{"role": "user", "content": "y"}]


@pytest.mark.parametrize(
    "changes", [{"conversation_history": 3}, {"context_data": []}, {"agent_id": None}]
)
def test_a_broken_file_is_reported_in_one_line(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="does not contain an agent's memory"):
        AgentContext.load(kit_file(tmp_path / "kit.json", **changes))


def test_a_missing_file_is_not_called_broken(tmp_path: Path) -> None:
    path = tmp_path / "gone.json"
    with pytest.raises(ConfigError) as caught:
        AgentContext.load(path)
    assert str(caught.value) == f"{path} can't be read: No such file or directory"


async def test_data_without_a_json_form_is_reported() -> None:
    async with AgentRLM(backend=ScriptedClient([])) as agent:
        agent.agent_context.context_data["x"] = object()
        with pytest.raises(ConfigError, match="can't be stored as JSON"):
            [chunk async for chunk in agent.chat("Go.")]


def test_an_agent_id_is_generated_if_none_is_given() -> None:
    assert AgentContext(None).agent_id != AgentContext(None).agent_id
