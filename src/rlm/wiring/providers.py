"""The providers that are known by name: address, variables, default model and dialect."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

__all__ = [
    "ALIASES",
    "OLLAMA_PORT",
    "PROVIDERS",
    "Dialect",
    "Provider",
    "first_set",
    "first_usable",
    "usable_key",
]

OLLAMA_PORT = 11434

Dialect = Literal["chat", "anthropic", "gemini", "responses", "converse"]


class Provider(Struct, frozen=True):
    """How to reach a provider. `needs_key`: it refuses requests without a key.

    `is_aws`: the address depends on a region, and requests without a key are signed.
    """

    base_url: str | None
    key_variables: tuple[str, ...] = ()
    base_url_variables: tuple[str, ...] = ()
    needs_key: bool = False
    default_model: str | None = None
    dialect: Dialect = "chat"
    is_aws: bool = False


PROVIDERS: dict[str, Provider] = {
    "openai": Provider(
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        ("OPENAI_BASE_URL",),
        needs_key=True,
        default_model="gpt-5-mini",
    ),
    "anthropic": Provider(
        "https://api.anthropic.com",
        ("ANTHROPIC_API_KEY",),
        ("ANTHROPIC_BASE_URL",),
        needs_key=True,
        default_model="claude-sonnet-5-5",
        dialect="anthropic",
    ),
    "gemini": Provider(
        "https://generativelanguage.googleapis.com",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        ("GEMINI_BASE_URL",),
        needs_key=True,
        default_model="gemini-3.5-flash",
        dialect="gemini",
    ),
    "groq": Provider(
        "https://api.groq.com/openai/v1",
        ("GROQ_API_KEY",),
        ("GROQ_BASE_URL",),
        needs_key=True,
        default_model="llama-3.3-70b-versatile",
    ),
    "openrouter": Provider(
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY",),
        ("OPENROUTER_BASE_URL",),
        needs_key=True,
        default_model="openai/gpt-5-mini",
    ),
    "portkey": Provider(
        "https://api.portkey.ai/v1",
        ("PORTKEY_API_KEY",),
        ("PORTKEY_BASE_URL",),
        needs_key=True,
        default_model="@openai/gpt-5-mini",
    ),
    "azure": Provider(
        None,
        ("AZURE_OPENAI_API_KEY",),
        ("AZURE_OPENAI_ENDPOINT",),
        needs_key=True,
    ),
    "vercel": Provider(
        "https://ai-gateway.vercel.sh/v1",
        ("AI_GATEWAY_API_KEY",),
        ("AI_GATEWAY_BASE_URL",),
        needs_key=True,
        default_model="openai/gpt-5-mini",
    ),
    "mistral": Provider(
        "https://api.mistral.ai/v1",
        ("MISTRAL_API_KEY",),
        ("MISTRAL_BASE_URL",),
        needs_key=True,
        default_model="mistral-medium-3.5",
    ),
    "deepseek": Provider(
        "https://api.deepseek.com",
        ("DEEPSEEK_API_KEY",),
        ("DEEPSEEK_BASE_URL",),
        needs_key=True,
        default_model="deepseek-flash",
    ),
    "xai": Provider(
        "https://api.x.ai/v1",
        ("XAI_API_KEY",),
        ("XAI_BASE_URL",),
        needs_key=True,
        default_model="grok-4.7",
    ),
    "together": Provider(
        "https://api.together.ai/v1",
        ("TOGETHER_API_KEY",),
        ("TOGETHER_BASE_URL",),
        needs_key=True,
        default_model="openai/gpt-oss-120b",
    ),
    "fireworks": Provider(
        "https://api.fireworks.ai/inference/v1",
        ("FIREWORKS_API_KEY",),
        ("FIREWORKS_BASE_URL",),
        needs_key=True,
        default_model="accounts/fireworks/models/gpt-oss-120b",
    ),
    "cerebras": Provider(
        "https://api.cerebras.ai/v1",
        ("CEREBRAS_API_KEY",),
        ("CEREBRAS_BASE_URL",),
        needs_key=True,
        default_model="gpt-oss-120b",
    ),
    "cohere": Provider(
        "https://api.cohere.ai/compatibility/v1",
        ("COHERE_API_KEY", "CO_API_KEY"),
        ("COHERE_BASE_URL",),
        needs_key=True,
        default_model="command-a-03-2025",
    ),
    "minimax": Provider(
        "https://api.minimax.io/v1",
        ("MINIMAX_API_KEY",),
        ("MINIMAX_BASE_URL",),
        needs_key=True,
        default_model="MiniMax-M3",
    ),
    "foundry": Provider(
        None,
        ("ANTHROPIC_FOUNDRY_API_KEY",),
        ("ANTHROPIC_FOUNDRY_BASE_URL", "ANTHROPIC_FOUNDRY_RESOURCE"),
        needs_key=True,
        default_model="claude-sonnet-5-5",
        dialect="anthropic",
    ),
    "bedrock": Provider(
        "https://bedrock-runtime.{region}.amazonaws.com",
        ("AWS_BEARER_TOKEN_BEDROCK",),
        ("AWS_ENDPOINT_URL_BEDROCK_RUNTIME",),
        needs_key=True,
        default_model="global.anthropic.claude-sonnet-5-5",
        dialect="converse",
        is_aws=True,
    ),
    "bedrock-openai": Provider(
        "https://bedrock-runtime.{region}.amazonaws.com/openai/v1",
        ("AWS_BEARER_TOKEN_BEDROCK",),
        ("AWS_BEDROCK_BASE_URL",),
        needs_key=True,
        default_model="openai.gpt-oss-120b-1:0",
        is_aws=True,
    ),
    "openai-responses": Provider(
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        ("OPENAI_BASE_URL",),
        needs_key=True,
        dialect="responses",
    ),
    "lmstudio": Provider("http://localhost:1234/v1", (), ("LMSTUDIO_BASE_URL",)),
    "llamacpp": Provider("http://localhost:8080/v1", (), ("LLAMACPP_BASE_URL",)),
    "ollama": Provider(f"http://localhost:{OLLAMA_PORT}/v1", ("OLLAMA_API_KEY",), ("OLLAMA_HOST",)),
    "vllm": Provider("http://localhost:8000/v1", ("VLLM_API_KEY",), ("VLLM_BASE_URL",)),
    "litellm-proxy": Provider(None, ("LITELLM_PROXY_API_KEY",), ("LITELLM_PROXY_API_BASE",)),
    "openai-compatible": Provider(
        None, ("LLM_API_KEY", "OPENAI_API_KEY"), ("LLM_BASE_URL", "OPENAI_BASE_URL")
    ),
}
ALIASES = {
    "azure_openai": "azure",
    "azure-openai": "azure",
    "google": "gemini",
    "claude": "anthropic",
    "aws": "bedrock",
    "azure-anthropic": "foundry",
    "azure-foundry": "foundry",
    "azure_ai": "foundry",
    "fireworks-ai": "fireworks",
    "fireworks_ai": "fireworks",
    "grok": "xai",
    "mistralai": "mistral",
    "together-ai": "together",
    "together_ai": "together",
    "togetherai": "together",
    "x-ai": "xai",
}


def first_set(variables: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    """Return the first of these variables that is set."""
    return next((name for name in names if variables.get(name)), None)


def first_usable(variables: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the first provider whose default model is usable, and the variable with its key."""
    for name, provider in PROVIDERS.items():
        if key := usable_key(provider, variables):
            return name, key
    return None


def usable_key(provider: Provider, variables: Mapping[str, str]) -> str | None:
    """Return the variable whose key makes the provider's default model usable, if one does."""
    if provider.default_model is None:
        return None
    if provider.base_url is None and not first_set(variables, provider.base_url_variables):
        return None
    return first_set(variables, provider.key_variables)
