"""How models are reached: a client for each wire dialect, adapters, and two without a network.

`OpenAICompatClient` speaks chat completions; `ResponsesClient`, `AnthropicClient`, `GeminiClient`
speak their makers' own dialects, and `GenericChatClient` whatever you tell it to. `CallableClient`
asks a function of yours; `LiteLLMClient`, `LLMClient`, `GGUFClient` ask a library. `ScriptedClient`
answers from a script (for tests), and `OfflineClient` is an extractive stand-in. Nothing is
imported before it is asked for.
"""

from typing import TYPE_CHECKING

from rlm.lazily import on_demand

if TYPE_CHECKING:
    from rlm.clients.anthropic import AnthropicClient
    from rlm.clients.callable import CallableClient
    from rlm.clients.gemini import GeminiClient
    from rlm.clients.generic import GenericChatClient
    from rlm.clients.gguf import GGUFClient
    from rlm.clients.litellm import LiteLLMClient
    from rlm.clients.llm import LLMClient
    from rlm.clients.offline import OfflineClient
    from rlm.clients.openai import OpenAICompatClient
    from rlm.clients.responses import ResponsesClient
    from rlm.clients.scripted import ScriptedClient

__all__ = [
    "AnthropicClient",
    "CallableClient",
    "GGUFClient",
    "GeminiClient",
    "GenericChatClient",
    "LLMClient",
    "LiteLLMClient",
    "OfflineClient",
    "OpenAICompatClient",
    "ResponsesClient",
    "ScriptedClient",
]

__getattr__, __dir__ = on_demand(
    __name__,
    {
        "AnthropicClient": "anthropic",
        "CallableClient": "callable",
        "GGUFClient": "gguf",
        "GeminiClient": "gemini",
        "GenericChatClient": "generic",
        "LLMClient": "llm",
        "LiteLLMClient": "litellm",
        "OfflineClient": "offline",
        "OpenAICompatClient": "openai",
        "ResponsesClient": "responses",
        "ScriptedClient": "scripted",
    },
)
