"""Recursive Language Models as a model provider of elizaOS: `AgentRuntime(plugins=[plugin])`."""

from elizaos_plugin_rlm.config import ConfigProblem, RLMConfig
from elizaos_plugin_rlm.plugin import (
    RLMClient,
    RLMService,
    create_plugin,
    handle_text_generation,
    handle_text_stream,
    plugin,
    plugin_init,
    provider_plugin,
)
from elizaos_plugin_rlm.results import (
    ERROR_PREFIX,
    STUB_TEXT,
    RLMCost,
    RLMResult,
    RLMTrajectory,
    RLMTrajectoryStep,
)

__version__ = "0.1.0"

__all__ = [
    "ERROR_PREFIX",
    "STUB_TEXT",
    "ConfigProblem",
    "RLMClient",
    "RLMConfig",
    "RLMCost",
    "RLMResult",
    "RLMService",
    "RLMTrajectory",
    "RLMTrajectoryStep",
    "create_plugin",
    "handle_text_generation",
    "handle_text_stream",
    "plugin",
    "plugin_init",
    "provider_plugin",
]
