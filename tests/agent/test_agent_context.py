"""An agent's memory, saved to a file and loaded again."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm import AgentContext, AgentRLM, ConfigError, ScriptedClient
from tests.agent.test_agent import agent_of, code, said

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(
    st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text())),
    st.dictionaries(st.text(), JSON),
)
def test_a_saved_memory_is_restored(
    tmp_path_factory: pytest.TempPathFactory,
    messages: list[tuple[str, str]],
    data: dict[str, Any],
) -> None:
    one = AgentContext("one", max_history_size=5)
    for role, content in messages:
        one.add_message(role, content)
    for key, value in data.items():
        one.add(key, value)
    path = tmp_path_factory.mktemp("agent") / "memory.json"
    one.save(path, ["search"])
    other, tools = AgentContext.load(path)
    assert (other.agent_id, other.max_history_size, tools) == ("one", 5, ("search",))
    assert other.history == one.history
    assert len(other.history) <= 5
    assert other.data == one.data


def test_lone_surrogates_survive_and_only_the_owner_can_read(tmp_path: Path) -> None:
    one = AgentContext()
    one.add_message("user", "\ud800")
    one.save(tmp_path / "m.json")
    assert AgentContext.load(tmp_path / "m.json")[0].history[0]["content"] == "\ud800"
    assert stat.S_IMODE((tmp_path / "m.json").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["m.json"]


def test_turns_are_pairs_of_consecutive_messages() -> None:
    one = AgentContext()
    for role, content in [("assistant", "a"), ("user", "b"), ("user", "c"), ("assistant", "d")]:
        one.add_message(role, content)
    assert one.turns() == [
        {"query": "", "answer": "a"},
        {"query": "b", "answer": ""},
        {"query": "c", "answer": "d"},
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"agent_id": 3}',
        "[" * 100_000,
        '{"agent_id": "a", "max_history_size": 1, "context_data": {}, "history": [{"role": "b"}]}',
        '{"agent_id": "a", "max_history_size": 1, "history": [], "context_data": {}, "format": 2}',
        '{"agent_id": "a", "max_history_size": -1, "history": [], "context_data": {}}',
    ],
)
def test_invalid_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ConfigError):
        AgentContext.load(path)
    with pytest.raises(ConfigError):
        AgentContext.load(tmp_path / "missing.json")


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    one = AgentContext()
    with pytest.raises(ConfigError, match="can't be saved"):
        one.save(tmp_path / "no" / "folder.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [("", 1), (3, 1), ("a", -1), ("a", "b")])
def test_wrong_settings_are_refused(wrong: tuple[Any, Any]) -> None:
    with pytest.raises(ConfigError):
        AgentContext(*wrong)


async def test_another_agent_can_continue_with_a_saved_memory(tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    agent, _ = agent_of(code("add_to_context('boat', 'Mira')\nFINAL('Noted.')"))
    agent.register_tool("search", lambda q: q)
    async with agent:
        await said(agent, "Her name is Mira.")
        agent.save_context(path)
    assert json.loads(path.read_text())["tools"] == ["search"]

    other, client = agent_of(code("FINAL([context_data, history])"))
    other.load_context(path)
    assert list(other.missing_tools) == ["search"]
    other.save_context(path)
    assert json.loads(path.read_text())["tools"] == ["search"]
    other.register_tool("search", lambda q: q)
    assert not other.missing_tools
    async with other:
        assert await said(other, "What is her name?") == [
            "[{'boat': 'Mira'}, [{'query': 'Her name is Mira.', 'answer': 'Noted.'}]]"
        ]
    assert "Earlier query: Her name is Mira." in str(client.requests[0].messages[1].content)


async def test_loading_a_memory_starts_a_new_repl(tmp_path: Path) -> None:
    agent = AgentRLM(ScriptedClient([code("x = 1\nFINAL(x)"), code("FINAL('x' in globals())")]))
    agent.save_context(tmp_path / "empty.json")
    async with agent:
        await said(agent, "Set it.")
        agent.load_context(tmp_path / "empty.json")
        assert agent.get_conversation_history() == []
        assert await said(agent, "Is it there?") == ["False"]
