"""How models are reached: a client per wire dialect, adapters, and one without a network.

`OpenAICompatClient` speaks chat completions; `ResponsesClient`, `AnthropicClient`, `GeminiClient`
and `ConverseClient` (Bedrock) speak their providers' own dialects, and `GenericChatClient` a
dialect you describe.
`CallableClient` calls your function, `CommandClient` runs a program; `LiteLLMClient`, `LLMClient`
and `GGUFClient` call a library.
`OfflineClient` finds answers by search, without a model. Modules are imported on first use.

`BaseLM` and `get_client` are those of the reference engine.
"""

from typing import TYPE_CHECKING

from rlm._util.lazy import on_demand

if TYPE_CHECKING:
    from rlm.clients.anthropic import AnthropicClient
    from rlm.clients.base_lm import BaseLM, get_client
    from rlm.clients.callable import CallableClient
    from rlm.clients.command import CommandClient
    from rlm.clients.compatible import OpenAICompatClient
    from rlm.clients.converse import ConverseClient
    from rlm.clients.gemini import GeminiClient
    from rlm.clients.generic import GenericChatClient
    from rlm.clients.gguf import GGUFClient
    from rlm.clients.litellm import LiteLLMClient
    from rlm.clients.llm import LLMClient
    from rlm.clients.offline import OfflineClient
    from rlm.clients.responses import ResponsesClient

__all__ = [
    "AnthropicClient",
    "BaseLM",
    "CallableClient",
    "CommandClient",
    "ConverseClient",
    "GGUFClient",
    "GeminiClient",
    "GenericChatClient",
    "LLMClient",
    "LiteLLMClient",
    "OfflineClient",
    "OpenAICompatClient",
    "ResponsesClient",
    "get_client",
]

__getattr__, __dir__ = on_demand(
    __name__,
    {
        "AnthropicClient": "anthropic",
        "BaseLM": "base_lm",
        "CallableClient": "callable",
        "CommandClient": "command",
        "ConverseClient": "converse",
        "GGUFClient": "gguf",
        "GeminiClient": "gemini",
        "GenericChatClient": "generic",
        "LLMClient": "llm",
        "LiteLLMClient": "litellm",
        "OfflineClient": "offline",
        "OpenAICompatClient": "compatible",
        "ResponsesClient": "responses",
        "get_client": "base_lm",
    },
)
