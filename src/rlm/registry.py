"""Names → things, imported on first use. An unknown name answers with what there is."""

import inspect
import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from rlm.errors import ConfigError
from rlm.protocols import Client, Environment

__all__ = [
    "ENVIRONMENTS",
    "OFFLINE_MODEL",
    "PROVIDERS",
    "Provider",
    "default_model",
    "make_client",
    "make_environment",
]

OFFLINE_MODEL = "offline/extractive"


class Provider(Struct, frozen=True):
    """How a provider that speaks OpenAI's chat completions is reached."""

    base_url: str | None
    key_variables: tuple[str, ...] = ()
    base_url_variables: tuple[str, ...] = ()
    needs_key: bool = False
    default_model: str | None = None


PROVIDERS: dict[str, Provider] = {
    "openai": Provider(
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        ("OPENAI_BASE_URL",),
        needs_key=True,
        default_model="gpt-5-mini",
    ),
    "anthropic": Provider(
        "https://api.anthropic.com/v1",
        ("ANTHROPIC_API_KEY",),
        ("ANTHROPIC_BASE_URL",),
        needs_key=True,
        default_model="claude-sonnet-4-5",
    ),
    "gemini": Provider(
        "https://generativelanguage.googleapis.com/v1beta/openai",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        ("GEMINI_BASE_URL",),
        needs_key=True,
        default_model="gemini-2.5-flash",
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
    "vercel": Provider(
        "https://ai-gateway.vercel.sh/v1",
        ("AI_GATEWAY_API_KEY",),
        ("AI_GATEWAY_BASE_URL",),
        needs_key=True,
        default_model="openai/gpt-5-mini",
    ),
    "lmstudio": Provider("http://localhost:1234/v1", (), ("LMSTUDIO_BASE_URL",)),
    "llamacpp": Provider("http://localhost:8080/v1", (), ("LLAMACPP_BASE_URL",)),
    "ollama": Provider("http://localhost:11434/v1", (), ("OLLAMA_HOST",)),
    "vllm": Provider("http://localhost:8000/v1", ("VLLM_API_KEY",), ("VLLM_BASE_URL",)),
    "openai-compatible": Provider(
        None, ("LLM_API_KEY", "OPENAI_API_KEY"), ("LLM_BASE_URL", "OPENAI_BASE_URL")
    ),
}

NOT_YET = ("azure", "litellm", "portkey")
ENVIRONMENTS = ("local",)
ENVIRONMENTS_NOT_YET = ("agent", "daytona", "docker", "e2b", "ipython", "modal", "prime", "ray")

BARE_NAMES = (
    *(("claude-", "anthropic"), ("gemini-", "gemini")),
    *(("gpt-", "openai"), ("o1", "openai"), ("o3", "openai"), ("o4", "openai")),
)


def split_model(model: str) -> tuple[str, str]:
    """`provider/model` → its two parts; a bare `gpt-…` or `o…` is OpenAI's."""
    provider, slash, name = model.partition("/")
    if slash:
        return provider, name
    for prefix, owner in BARE_NAMES:
        if model.startswith(prefix):
            return owner, model
    raise ConfigError(
        f"{model!r} names no provider: write it as provider/model, e.g. openai/{model}"
    )


def default_model(variables: Mapping[str, str]) -> str | None:
    """RLM_MODEL, else the default model of the first provider in the table whose key is set."""
    if named := variables.get("RLM_MODEL"):
        return named
    for name, provider in PROVIDERS.items():
        if provider.default_model and _first(variables, provider.key_variables):
            return f"{name}/{provider.default_model}"
    return None


def make_client(
    model: str,
    variables: Mapping[str, str] = os.environ,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    headers: Mapping[str, str] | None = None,
    **unknown: Any,
) -> tuple[Client, str]:
    """The client for a model, and the model's name on the wire. Options win over variables."""
    if unknown:
        raise ConfigError(
            f"{model} knows no option {min(unknown)!r}; options: api_key, base_url, headers"
        )
    provider_name, wire_name = split_model(model)
    if provider_name == "offline":
        from rlm.clients.offline import OfflineClient

        return OfflineClient(), wire_name
    provider = PROVIDERS.get(provider_name)
    if provider_name in NOT_YET:
        raise ConfigError(
            f"the provider {provider_name!r} is not in this version yet; reach its models through "
            "openrouter/…, or through a server of your own with openai-compatible/…"
        )
    if provider is None or not wire_name:
        known = ", ".join(sorted([*PROVIDERS, "offline"]))
        raise ConfigError(f"there is no provider {provider_name!r}; providers: {known}")
    key = api_key or _first(variables, provider.key_variables)
    if key is None and provider.needs_key:
        raise ConfigError(f"{model} needs a key: set {provider.key_variables[0]}")
    base_url = base_url or _first(variables, provider.base_url_variables) or provider.base_url
    if base_url is None:
        raise ConfigError(f"{model} needs an address: set {provider.base_url_variables[0]}")
    from rlm.clients.openai import OpenAICompatClient

    variable = provider.key_variables[0] if provider.key_variables else None
    address = _as_base_url(provider_name, base_url)
    client = OpenAICompatClient(address, key, headers=headers, key_variable=variable)
    return client, wire_name


def make_environment(name: str, options: Mapping[str, Any] | None = None) -> Environment:
    """The environment of that name."""
    if name == "local":
        from rlm.environments.local import LocalEnvironment

        known = inspect.signature(LocalEnvironment).parameters
        if unknown := sorted((options or {}).keys() - known.keys()):
            raise ConfigError(
                f"the environment 'local' knows no option {unknown[0]!r}; "
                f"options: {', '.join(known)}"
            )
        return LocalEnvironment(**(options or {}))
    if name in ENVIRONMENTS_NOT_YET:
        raise ConfigError(f"the environment {name!r} is not in this version yet; use 'local'")
    raise ConfigError(f"there is no environment {name!r}; environments: {', '.join(ENVIRONMENTS)}")


def _first(variables: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((variables[name] for name in names if variables.get(name)), None)


def _as_base_url(provider: str, url: str) -> str:
    """OLLAMA_HOST is a host and port in Ollama's own world."""
    if provider != "ollama":
        return url
    url = url if "://" in url else f"http://{url}"
    return url if url.rstrip("/").endswith("/v1") else f"{url.rstrip('/')}/v1"
