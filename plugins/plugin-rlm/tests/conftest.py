"""Fixtures of every test: no keys, no settings of this machine, no tasks left behind."""

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from elizaos import AgentRuntime
from elizaos.types.plugin import Plugin
from hypothesis import settings

from elizaos_plugin_rlm import RLMClient, RLMService, plugin

SECRET_OR_SETTING = re.compile(
    r".*_API_KEY|(ELIZA_RLM|RLM|LLM|OPENAI|ANTHROPIC|GEMINI|GOOGLE|AZURE_OPENAI|GROQ|OLLAMA|VLLM)_.*"
)
for variable in [name for name in os.environ if SECRET_OR_SETTING.fullmatch(name)]:
    del os.environ[variable]

_state = tempfile.TemporaryDirectory(prefix="rlm-plugin-tests-")
os.environ["RLM_STATE_DIR"] = _state.name

settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("long", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

MakeRuntime = Callable[..., Awaitable[AgentRuntime]]


@pytest.fixture
async def make_runtime() -> AsyncIterator[MakeRuntime]:
    """Make real runtimes with the plugin, and stop them after the test."""
    started: list[AgentRuntime] = []

    async def make(
        config: dict[str, Any] | None = None, *, plugins: list[Plugin] | None = None
    ) -> AgentRuntime:
        loaded = [plugin] if plugins is None else plugins
        runtime = AgentRuntime(plugins=list(loaded), settings=config, log_level="ERROR")
        await runtime.initialize()
        started.append(runtime)
        return runtime

    yield make
    for runtime in started:
        await runtime.stop()


def client_of(runtime: AgentRuntime) -> RLMClient:
    """Return the client of a runtime."""
    service = runtime.get_service("rlm")
    assert isinstance(service, RLMService)
    return service.client


@pytest.fixture
async def nothing_left() -> AsyncIterator[None]:
    """Fail a test that leaves a task behind."""
    before = asyncio.all_tasks()
    yield
    await asyncio.sleep(0)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not left, left


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate that neither engine is installed."""
    monkeypatch.setitem(sys.modules, "rlm", None)
