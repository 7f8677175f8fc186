"""The plugin that elizaOS loads, and the handlers that it calls.

elizaOS keeps conversation, memory and tools. Its model requests arrive here, are answered by an
engine, and return as text; nothing else of the runtime is touched.
"""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

from elizaos.types.model import ModelType
from elizaos.types.plugin import Plugin
from elizaos.types.runtime import IAgentRuntime
from elizaos.types.service import Service

from elizaos_plugin_rlm.client import RLMClient
from elizaos_plugin_rlm.settings import CONFIG_ATTRIBUTE

__all__ = [
    "RLMClient",
    "RLMService",
    "create_plugin",
    "handle_text_generation",
    "handle_text_stream",
    "plugin",
    "plugin_init",
    "provider_plugin",
]

PLUGIN_NAME = "plugin-rlm"
PROVIDER_NAME = "rlm"
DESCRIPTION = "Recursive Language Models: prompts of any size, read and answered with code"
_PIECES = re.compile(r"\s*\S+\s*")

Config = Mapping[str, str | int | float | bool | None]


# -- handlers ------------------------------------------------------------------------------------


async def handle_text_generation(
    runtime: IAgentRuntime, params: dict[str, Any] | None = None, **more: Any
) -> str:
    """Generate text for a prompt or messages; raise only cancellation."""
    result = await _client_of(runtime).generate(params, **more)
    return result.text


async def handle_text_stream(
    runtime: IAgentRuntime, params: dict[str, Any] | None = None, **more: Any
) -> AsyncIterator[str]:
    """Yield the same text in pieces, once it is complete."""
    text = await handle_text_generation(runtime, params, **more)
    for piece in _PIECES.findall(text) or [text]:
        yield piece


async def plugin_init(config: Config, runtime: IAgentRuntime) -> None:
    """Store the plugin's configuration on the runtime; each request interprets it."""
    setattr(runtime, CONFIG_ATTRIBUTE, dict(config))


class RLMService(Service):
    """The service that holds a runtime's client. elizaOS stops it with the runtime.

    `start` also loads the plugin under its second name: elizaOS identifies a provider by the name
    of its plugin, and people use "rlm" as well as "plugin-rlm".
    """

    service_type: ClassVar[str] = PROVIDER_NAME

    def __init__(self, runtime: IAgentRuntime) -> None:
        super().__init__(runtime)
        self.client = RLMClient(runtime=runtime)

    @property
    def capability_description(self) -> str:
        return DESCRIPTION

    @classmethod
    async def start(cls, runtime: IAgentRuntime) -> "RLMService":
        if all(each.name != PROVIDER_NAME for each in runtime.plugins):
            await runtime.register_plugin(provider_plugin)
        return cls(runtime)

    async def stop(self) -> None:
        await self.client.close()


def _client_of(runtime: IAgentRuntime) -> RLMClient:
    """Return the runtime's client, or a new one if the service was not started."""
    service = runtime.get_service(PROVIDER_NAME)
    return service.client if isinstance(service, RLMService) else RLMClient(runtime=runtime)


# -- declarations --------------------------------------------------------------------------------

_MODELS = {
    ModelType.TEXT_SMALL.value: handle_text_generation,
    ModelType.TEXT_LARGE.value: handle_text_generation,
    ModelType.TEXT_REASONING_SMALL.value: handle_text_generation,
    ModelType.TEXT_REASONING_LARGE.value: handle_text_generation,
    ModelType.TEXT_COMPLETION.value: handle_text_generation,
    # The values of the reasoning types lack the prefix TEXT_, which other runtimes use.
    "TEXT_REASONING_SMALL": handle_text_generation,
    "TEXT_REASONING_LARGE": handle_text_generation,
}
_STREAMING_MODELS = {
    ModelType.TEXT_SMALL_STREAM.value: handle_text_stream,
    ModelType.TEXT_LARGE_STREAM.value: handle_text_stream,
}

provider_plugin = Plugin(
    name=PROVIDER_NAME,
    description=f"{DESCRIPTION} (the second name of {PLUGIN_NAME})",
    models=dict(_MODELS),
    streamingModels=dict(_STREAMING_MODELS),
)


def create_plugin(config: Config | None = None) -> Plugin:
    """Return the plugin with its own configuration, for several runtimes in one program."""
    return Plugin(
        name=PLUGIN_NAME,
        description=DESCRIPTION,
        init=plugin_init,
        config=dict(config or {}),
        services=[RLMService],
        models=dict(_MODELS),
        streamingModels=dict(_STREAMING_MODELS),
    )


plugin = create_plugin()
