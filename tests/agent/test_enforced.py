"""An enforced agent refuses everything that would weaken it."""

from typing import Any

import pytest

from rlm import (
    AgentRLM,
    ConfigError,
    RLMEnforcementError,
    ScriptedClient,
    create_enforced_agent,
)


@pytest.mark.parametrize(
    "options",
    [
        {"environment": "local"},
        {"environment": "inprocess"},
        {"environment": None},
        {"enable_tools": False},
        {"enable_streaming": False},
        {"environment_kwargs": {"allow_unsafe": True}},
        {"environment_kwargs": {"without": ["landlock"]}},
    ],
)
def test_options_that_weaken_enforcement_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(RLMEnforcementError):
        create_enforced_agent(ScriptedClient(), **options)


@pytest.mark.parametrize(
    ("options", "setting"),
    [
        ({"environment": "local"}, "environment='local'"),
        ({"environment": "inprocess"}, "environment='inprocess'"),
        ({"enable_tools": False}, "enable_tools=False"),
        ({"enable_streaming": False}, "enable_streaming=False"),
        ({"environment_kwargs": {"without": ["landlock"]}}, "without in environment_kwargs"),
    ],
)
async def test_a_plain_agent_warns_where_it_differs_from_an_enforced_one(
    options: dict[str, Any], setting: str, caplog: pytest.LogCaptureFixture
) -> None:
    await AgentRLM(ScriptedClient(), **options).aclose()
    (record,) = [each for each in caplog.records if "create_enforced_agent" in each.message]
    assert record.levelname == "WARNING"
    assert setting in record.message
    caplog.clear()
    await AgentRLM(ScriptedClient()).aclose()
    assert not caplog.records


async def test_an_enforced_agent_refuses_to_answer_without_streaming() -> None:
    client = ScriptedClient(["FINAL(x)"])
    agent = create_enforced_agent(client)
    with pytest.raises(RLMEnforcementError, match="stream=True"):
        agent.chat("Hello?", stream=False)
    assert client.requests == []
    assert [chunk async for chunk in agent.chat("Hello?")] == ["x"]
    await agent.aclose()


def test_an_enforced_agent_is_an_agent_and_its_error_a_config_error() -> None:
    agent = create_enforced_agent(ScriptedClient(), environment="agent", max_iterations=3)
    assert isinstance(agent, AgentRLM)
    assert issubclass(RLMEnforcementError, ConfigError)


def test_a_missing_key_is_reported_as_by_rlm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        create_enforced_agent(backend="openai", backend_kwargs={"model_name": "gpt-4"})
    with pytest.raises(ConfigError, match="needs a model"):
        create_enforced_agent()
