"""Names → things, imported on first use. An unknown name answers with what there is."""

import os
from collections.abc import Mapping

from msgspec import Struct

from rlm.errors import ConfigError
from rlm.protocols import Client, Environment

__all__ = [
    "ENVIRONMENTS",
    "OFFLINE_MODEL",
    "PROVIDERS",
    "Provider",
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


PROVIDERS: dict[str, Provider] = {
    "openai": Provider(
        "https://api.openai.com/v1", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL",), needs_key=True
    ),
    "groq": Provider("https://api.groq.com/openai/v1", ("GROQ_API_KEY",), needs_key=True),
    "openrouter": Provider("https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",), needs_key=True),
    "vercel": Provider("https://ai-gateway.vercel.sh/v1", ("AI_GATEWAY_API_KEY",), needs_key=True),
    "lmstudio": Provider("http://localhost:1234/v1"),
    "llamacpp": Provider("http://localhost:8080/v1"),
    "ollama": Provider("http://localhost:11434/v1", (), ("OLLAMA_HOST",)),
    "vllm": Provider("http://localhost:8000/v1", ("VLLM_API_KEY",), ("VLLM_BASE_URL",)),
    "openai-compatible": Provider(
        None, ("LLM_API_KEY", "OPENAI_API_KEY"), ("LLM_BASE_URL", "OPENAI_BASE_URL")
    ),
}

ENVIRONMENTS = ("local",)

BARE_NAMES = (("gpt-", "openai"), ("o1", "openai"), ("o3", "openai"), ("o4", "openai"))


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


def make_client(model: str, variables: Mapping[str, str] = os.environ) -> tuple[Client, str]:
    """The client for a model, and the model's name on the wire."""
    provider_name, wire_name = split_model(model)
    if provider_name == "offline":
        from rlm.clients.offline import OfflineClient

        return OfflineClient(), wire_name
    provider = PROVIDERS.get(provider_name)
    if provider is None or not wire_name:
        known = ", ".join(sorted([*PROVIDERS, "offline"]))
        raise ConfigError(f"there is no provider {provider_name!r}; providers: {known}")
    key = _first(variables, provider.key_variables)
    if key is None and provider.needs_key:
        raise ConfigError(f"{model} needs a key: set {provider.key_variables[0]}")
    base_url = _first(variables, provider.base_url_variables) or provider.base_url
    if base_url is None:
        raise ConfigError(f"{model} needs an address: set {provider.base_url_variables[0]}")
    from rlm.clients.openai import OpenAICompatClient

    variable = provider.key_variables[0] if provider.key_variables else None
    address = _as_base_url(provider_name, base_url)
    return OpenAICompatClient(address, key, key_variable=variable), wire_name


def make_environment(name: str) -> Environment:
    """The environment of that name."""
    if name == "local":
        from rlm.environments.local import LocalEnvironment

        return LocalEnvironment()
    raise ConfigError(f"there is no environment {name!r}; environments: {', '.join(ENVIRONMENTS)}")


def _first(variables: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((variables[name] for name in names if variables.get(name)), None)


def _as_base_url(provider: str, url: str) -> str:
    """OLLAMA_HOST is a host and port in Ollama's own world."""
    if provider != "ollama":
        return url
    url = url if "://" in url else f"http://{url}"
    return url if url.rstrip("/").endswith("/v1") else f"{url.rstrip('/')}/v1"
