"""How servers that speak chat completions differ: one row per provider, rules by model name.

A row lists only what is documented or was observed; the rest is as OpenAI specifies.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from rlm.clients._fields import merged_body
from rlm.clients._http import BEARER
from rlm.errors import ConfigError

__all__ = ["QUIRKS", "Quirks", "cap_name", "checked_sampling", "is_claude", "quirks_for"]

CapName = Literal["max_tokens", "max_completion_tokens"]

OLLAMA_WINDOW = (
    "Ollama ignores it at /v1: start Ollama with OLLAMA_CONTEXT_LENGTH=…, or create a model with "
    "PARAMETER num_ctx in its Modelfile"
)


class Quirks(Struct, frozen=True):
    """What is special about one provider.

    `reads_openai_names`: a model named like OpenAI's reasoning models is one, and wants
    `max_completion_tokens`. `states_cost`: `usage.cost` is its charge in US dollars.
    `caches_claude`: accepts Anthropic's `cache_control` on parts. `thinks_inline`: thinking may
    come as `<think>` in the text. `refuses`: options it would silently ignore, and advice.
    `streams_usage_unasked`: refuses `stream_options`, and reports usage without it.
    """

    key_variable: str = "LLM_API_KEY (or OPENAI_API_KEY)"
    hosts: tuple[str, ...] = ()
    auth: Mapping[str, str] = field(default_factory=lambda: BEARER)
    cap_name: CapName = "max_tokens"
    reads_openai_names: bool = False
    states_cost: bool = False
    caches_claude: bool = False
    thinks_inline: bool = False
    streams_usage_unasked: bool = False
    refuses: Mapping[str, str] = field(default_factory=dict)


QUIRKS: dict[str, Quirks] = {
    "openai": Quirks(
        "OPENAI_API_KEY",
        hosts=("api.openai.com",),
        cap_name="max_completion_tokens",
        reads_openai_names=True,
    ),
    "azure": Quirks(
        "AZURE_OPENAI_API_KEY",
        hosts=(".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com"),
        auth={"api-key": ""},
        cap_name="max_completion_tokens",  # deployments have any name; all models accept this
        reads_openai_names=True,
    ),
    "openrouter": Quirks(
        "OPENROUTER_API_KEY", hosts=("openrouter.ai",), states_cost=True, caches_claude=True
    ),
    "groq": Quirks(
        "GROQ_API_KEY",
        hosts=("api.groq.com",),
        cap_name="max_completion_tokens",
        thinks_inline=True,
    ),
    "portkey": Quirks(
        "PORTKEY_API_KEY",
        hosts=("api.portkey.ai",),
        auth={"x-portkey-api-key": ""},
        reads_openai_names=True,
        caches_claude=True,
    ),
    "vercel": Quirks(
        "AI_GATEWAY_API_KEY", hosts=("ai-gateway.vercel.sh",), states_cost=True, caches_claude=True
    ),
    "mistral": Quirks("MISTRAL_API_KEY", hosts=("api.mistral.ai",), streams_usage_unasked=True),
    "deepseek": Quirks("DEEPSEEK_API_KEY", hosts=("api.deepseek.com",)),
    "xai": Quirks("XAI_API_KEY", hosts=("api.x.ai", ".api.x.ai"), cap_name="max_completion_tokens"),
    "together": Quirks(
        "TOGETHER_API_KEY", hosts=("api.together.ai", "api.together.xyz"), thinks_inline=True
    ),
    "fireworks": Quirks(
        "FIREWORKS_API_KEY", hosts=("api.fireworks.ai", ".api.fireworks.ai"), thinks_inline=True
    ),
    "cerebras": Quirks(
        "CEREBRAS_API_KEY",
        hosts=("api.cerebras.ai",),
        cap_name="max_completion_tokens",
        thinks_inline=True,
    ),
    "cohere": Quirks(
        "COHERE_API_KEY", hosts=("api.cohere.ai", "api.cohere.com"), streams_usage_unasked=True
    ),
    "minimax": Quirks(
        "MINIMAX_API_KEY",
        hosts=("api.minimax.io", "api.minimaxi.com"),
        cap_name="max_completion_tokens",
        thinks_inline=True,
    ),
    "bedrock-openai": Quirks(
        "AWS_BEARER_TOKEN_BEDROCK", cap_name="max_completion_tokens", thinks_inline=True
    ),
    "litellm-proxy": Quirks(
        "LITELLM_PROXY_API_KEY", reads_openai_names=True, states_cost=True, caches_claude=True
    ),
    "ollama": Quirks(
        "OLLAMA_API_KEY",
        thinks_inline=True,
        refuses={"num_ctx": OLLAMA_WINDOW, "options": OLLAMA_WINDOW},
    ),
    "vllm": Quirks("VLLM_API_KEY", thinks_inline=True),
    "lmstudio": Quirks(thinks_inline=True),
    "llamacpp": Quirks(thinks_inline=True),
    "openai-compatible": Quirks(reads_openai_names=True, thinks_inline=True),
}
UNKNOWN = QUIRKS["openai-compatible"]

OPENAI_REASONING = re.compile(r"(?:^|/)(?:o[1-9](?:$|[-.:])|gpt-[5-9]|codex)")
CLAUDE = re.compile(r"(?:^|[/@.:-])(?:anthropic|claude)(?:$|[/.:@-])")
DEFAULT_SAMPLING = {"temperature": 1, "top_p": 1}


def quirks_for(provider: str, host: str) -> Quirks:
    """Return the row of a known host, else of the provider.

    `openai` at another host is a compatible server.
    """
    for row in QUIRKS.values():
        if any(host == known or (known[0] == "." and host.endswith(known)) for known in row.hosts):
            return row
    return UNKNOWN if provider == "openai" else QUIRKS.get(provider, UNKNOWN)


def is_claude(model: str) -> bool:
    """Return whether a gateway's model is Anthropic's, whose prompt cache must be requested."""
    return CLAUDE.search(model.lower()) is not None


def is_reasoning(model: str) -> bool:
    """Return whether a model is named like OpenAI's reasoning models, after any prefix."""
    return OPENAI_REASONING.search(model.lower()) is not None


def cap_name(quirks: Quirks, model: str) -> CapName:
    """Return the server's name for the output cap; only one name is ever sent."""
    if quirks.reads_openai_names and is_reasoning(model):
        return "max_completion_tokens"
    return quirks.cap_name


def checked_sampling(quirks: Quirks, model: str, sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options to send; None values are dropped, and `extra_body` is merged.

    OpenAI's reasoning models refuse some options even with default values: those are dropped. Other
    values are sent, so that the provider refuses them in its own words.
    """
    kept = {name: value for name, value in merged_body(sampling).items() if value is not None}
    if kept.get("n", 1) != 1:
        raise ConfigError(
            "sampling n must be 1: each request gets one reply and is budgeted as one"
        )
    for name, help_text in quirks.refuses.items():
        if name in kept:
            raise ConfigError(f"sampling {name} has no effect: {help_text}")
    if quirks.reads_openai_names and is_reasoning(model):
        for name, default in DEFAULT_SAMPLING.items():
            if kept.get(name) == default:
                del kept[name]
    return kept
