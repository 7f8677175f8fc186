"""Make an `RLM` like that of a recorded run, with models and tools that can't be called."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from rlm.api import RLM
from rlm.config import RunConfig
from rlm.errors import ConfigError, ModelError
from rlm.events import RunStarted
from rlm.messages import ModelInfo, Reply, Request
from rlm.wiring.registry import AUTO

__all__ = ["check_replayable", "config_like", "recorded_rlm"]

ISOLATING = (AUTO, "agent", "docker", "ipython", "local", "wasm")
"""Environments of this machine that isolate code: a recording may name these."""


class RecordedClient:
    """A client with the model facts of the recording, which can't send requests."""

    def __init__(self, infos: dict[str, ModelInfo], prefix: str = "") -> None:
        self._infos = infos
        self._prefix = prefix
        self.identity = "recorded"

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        raise ModelError("a replay can't ask a model")

    def stream(self, request: Request, *, timeout_seconds: float) -> AsyncIterator[str | Reply]:
        raise ModelError("a replay can't ask a model")

    def info(self, model: str) -> ModelInfo:
        return self._infos.get(f"{self._prefix}{model}", ModelInfo())

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


class RecordedTool:
    """A tool that cells may call; its results are in the recording."""

    def __init__(self, name: str, description: str) -> None:
        self.name = name
        self.description = description

    async def call(self, arguments: dict[str, Any]) -> Any:
        raise ModelError("a replay can't call a tool")


def check_replayable(run_id: str, settings: Mapping[str, Any]) -> None:
    """Raise ConfigError for a turn of a chat, whose variables are not recorded, and for samples."""
    if settings.get("in_chat"):
        raise ConfigError(
            f"run {run_id} is a turn of a chat, which can't be replayed: its code used "
            "variables of earlier turns, which a record does not contain; "
            f"`rlm show {run_id}` shows what it did"
        )
    if settings.get("samples", 1) != 1:
        raise ConfigError(
            f"run {run_id} chose between samples, which can't be replayed: how many of them ran "
            f"depends on which ended first; `rlm show {run_id}` shows what they did"
        )


def recorded_rlm(root: RunStarted) -> RLM:
    """Return an `RLM` set up like the run; raise ConfigError if only its own program can do that.

    A recording may come from a stranger. So it may name an environment of this machine that
    isolates code, and nothing else: none without a sandbox, in a cloud or from a plugin, and no
    options, which could open the sandbox.
    """
    settings = root.settings
    try:
        config = msgspec.convert(settings.get("config"), RunConfig)
        infos = msgspec.convert(settings.get("infos", {}), dict[str, ModelInfo])
        tools = [RecordedTool(t["name"], t["description"]) for t in settings.get("tools", [])]
        own = settings.get("own", [])
        values = settings.get("values", [])
    except (msgspec.ValidationError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"the recording does not record how its run was set up: {error}"
        ) from error
    if values or "environment" in own:
        raise ConfigError(
            "only the program that made this run can replay it (values among its tools, or an "
            "environment of its own): replay(recording, context, rlm=…)"
        )
    environment = settings.get("environment", AUTO)
    if environment not in ISOLATING:
        raise ConfigError(
            f"the run used environment {str(environment)[:80]!r}, which a "
            "recording may not choose, because it may be someone else's; replay it from Python, "
            "and name the environment there: rlm.replay.replay(recording, context, rlm=RLM(…))"
        )
    return _built(root, config, infos, tools)


def config_like(root: RunStarted, config: RunConfig) -> RunConfig:
    """Return a configuration with what `ask` and its like chose for the recorded run."""
    recorded = root.settings.get("config")
    if not isinstance(recorded, Mapping):
        return config
    chosen = {name: recorded[name] for name in ("strategy", "preview_chars") if name in recorded}
    try:
        return msgspec.structs.replace(config, **chosen)
    except (TypeError, ConfigError) as error:
        raise ConfigError(
            f"the recording does not record how its run was set up: {error}"
        ) from error


def _built(
    root: RunStarted, config: RunConfig, infos: dict[str, ModelInfo], tools: list[RecordedTool]
) -> RLM:
    names = (config.model, config.sub_model, *config.models)
    clients: dict[str, Any] = {}
    by_name: dict[str, Any] = {}
    for name in names:
        provider, slash, _ = name.partition("/")
        if slash:
            clients[provider] = RecordedClient(infos, f"{provider}/")
            by_name[name] = name
        elif name not in by_name:  # A client is named after its class.
            by_name[name] = type(name, (RecordedClient,), {})(infos)
    options: dict[str, Any] = {
        name: getattr(config, name)
        for name in config.__struct_fields__
        if name not in ("model", "sub_model", "models")
    }
    return RLM(
        by_name[config.model],
        sub_model=by_name[config.sub_model],
        models=[by_name[name] for name in config.models],
        clients=clients,
        environment=root.settings.get("environment", AUTO),
        tools=tools,
        variables={},
        **options,
    )
