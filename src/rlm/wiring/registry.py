"""Map names to clients and environments, which are imported on first use."""

import inspect
import os
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Literal

from msgspec import Struct

from rlm._util.distribution import own_name
from rlm.errors import ConfigError
from rlm.protocols import Client, Environment
from rlm.wiring.plugins import Offer, offers

__all__ = [
    "BUILT_IN_ENVIRONMENTS",
    "OFFLINE_MODEL",
    "PROVIDERS",
    "Provider",
    "as_base_url",
    "default_model",
    "environments",
    "make_client",
    "make_environment",
    "missing_key",
    "setup_code_of",
    "split_model",
]

OFFLINE_MODEL = "offline/extractive"
OLLAMA_PORT = 11434


Dialect = Literal["chat", "anthropic", "gemini", "responses"]

CLIENTS: dict[Dialect, tuple[str, str]] = {
    "chat": ("rlm.clients.compatible", "OpenAICompatClient"),
    "anthropic": ("rlm.clients.anthropic", "AnthropicClient"),
    "gemini": ("rlm.clients.gemini", "GeminiClient"),
    "responses": ("rlm.clients.responses", "ResponsesClient"),
}


class Provider(Struct, frozen=True):
    """How to reach a provider. `needs_key`: it answers no request without a key."""

    base_url: str | None
    key_variables: tuple[str, ...] = ()
    base_url_variables: tuple[str, ...] = ()
    needs_key: bool = False
    default_model: str | None = None
    dialect: Dialect = "chat"


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
    "openai-responses": Provider(
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        ("OPENAI_BASE_URL",),
        needs_key=True,
        dialect="responses",
    ),
    "lmstudio": Provider("http://localhost:1234/v1", (), ("LMSTUDIO_BASE_URL",)),
    "llamacpp": Provider("http://localhost:8080/v1", (), ("LLAMACPP_BASE_URL",)),
    "ollama": Provider(f"http://localhost:{OLLAMA_PORT}/v1", (), ("OLLAMA_HOST",)),
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
}

ADAPTERS: dict[str, tuple[str, str]] = {
    "gguf": ("rlm.clients.gguf", "GGUFClient"),
    "litellm": ("rlm.clients.litellm", "LiteLLMClient"),
    "llm": ("rlm.clients.llm", "LLMClient"),
    "offline": ("rlm.clients.offline", "OfflineClient"),
}
"""Providers that are reached through another package; each has its own options."""

RESPONSES_ONLY = re.compile(
    r"(gpt-5(\.\d+)?-(pro|codex)|o\d-pro|codex-mini|computer-use|.*deep-research)"
)
"""OpenAI models that answer only at /v1/responses."""

BUILT_IN_ENVIRONMENTS: dict[str, tuple[str, str]] = {
    "local": ("rlm.environments.local", "LocalEnvironment"),
    "docker": ("rlm.environments.docker", "DockerEnvironment"),
    "agent": ("rlm.environments.agent", "AgentEnvironment"),
    "inprocess": ("rlm.environments.inprocess", "InProcessEnvironment"),
}
"""The built-in environments. All others are entry points: ours in pyproject.toml, and plugins."""

BARE_NAMES = (
    *(("claude-", "anthropic"), ("gemini-", "gemini")),
    *(("gpt-", "openai"), ("o1", "openai"), ("o3", "openai"), ("o4", "openai")),
)


def split_model(model: str) -> tuple[str, str]:
    """Split `provider/model`; a bare `gpt-…` or `o…` belongs to OpenAI, `gguf:…` is a file."""
    if model.startswith("gguf:"):
        return "gguf", model.removeprefix("gguf:")
    provider, slash, name = model.partition("/")
    if slash:
        return ALIASES.get(provider, provider), name
    for prefix, owner in BARE_NAMES:
        if model.startswith(prefix):
            return owner, model
    raise ConfigError(
        f"{model!r} names no provider: write it as provider/model, e.g. openai/{model}"
    )


def default_model(variables: Mapping[str, str]) -> str | None:
    """Return RLM_MODEL, else the default model of the first provider whose key is set."""
    if named := variables.get("RLM_MODEL"):
        return named
    for name, provider in PROVIDERS.items():
        if provider.default_model and _first(variables, provider.key_variables):
            return f"{name}/{provider.default_model}"
    return None


def make_client(
    model: str, variables: Mapping[str, str] = os.environ, **options: Any
) -> tuple[Client, str]:
    """Return the client for a model, and its name on the wire. Options override variables."""
    provider_name, wire_name = split_model(model)
    if provider_name in ADAPTERS:
        adapter = _imported(ADAPTERS[provider_name])
        return adapter.for_model(wire_name, **_known(model, adapter.for_model, options)), wire_name
    provider = PROVIDERS.get(provider_name)
    if provider is None and (offer := offers("rlm.clients").get(provider_name)) is not None:
        return _offered_client(offer, model, wire_name, options), wire_name
    if provider is None or not wire_name:
        known = ", ".join(sorted([*PROVIDERS, *ADAPTERS, *offers("rlm.clients")]))
        raise ConfigError(f"there is no provider {provider_name!r}; providers: {known}")
    is_responses = provider_name == "openai" and RESPONSES_ONLY.match(wire_name)
    client = _imported(CLIENTS["responses" if is_responses else provider.dialect])
    options = _known(model, client, options)
    address, key, used = _address_and_key(model, provider_name, provider, variables, options)
    if provider_name == "azure":
        options.setdefault("api_version", variables.get("AZURE_OPENAI_API_VERSION"))
    return client(address, key, key_variable=used, provider=provider_name, **options), wire_name


def missing_key(
    model: str, variables: Mapping[str, str] = os.environ, options: Mapping[str, Any] | None = None
) -> str | None:
    """Return which key a model needs, if it needs one and has none."""
    provider = PROVIDERS.get(split_model(model)[0])
    if provider is None or not provider.needs_key or (options or {}).get("api_key"):
        return None
    found = _first(variables, provider.key_variables)
    return None if found else _needs_key(model, provider)


def _needs_key(model: str, provider: Provider) -> str:
    return f"{model} needs a key: set {provider.key_variables[0]}"


def _offered_client(offer: Offer, model: str, wire_name: str, options: Mapping[str, Any]) -> Client:
    """Return the client of a plugin."""
    loaded = offer.load()
    maker = getattr(loaded, "for_model", loaded)
    client: Client = maker(wire_name, **_known(model, maker, options))
    return client


def _address_and_key(
    model: str,
    name: str,
    provider: Provider,
    variables: Mapping[str, str],
    options: dict[str, Any],
) -> tuple[str, str | None, str | None]:
    """Return the address, the key, and the variable to name if the key is refused."""
    key = options.pop("api_key", None) or _first(variables, provider.key_variables)
    if key is None and provider.needs_key:
        raise ConfigError(_needs_key(model, provider))
    named = options.pop("base_url", None) or _first(variables, provider.base_url_variables)
    address = named or provider.base_url
    if address is None:
        raise ConfigError(f"{model} needs an address: set {provider.base_url_variables[0]}")
    variable = provider.key_variables[0] if provider.key_variables else None
    return as_base_url(name, address), key, variable


def _imported(home: tuple[str, str]) -> Any:
    return getattr(import_module(home[0]), home[1])


def _known(model: str, maker: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options; raise if the client does not have one of them."""
    fixed = {"self", "model", "provider", "key_variable"}
    known = [name for name in inspect.signature(maker).parameters if name not in fixed]
    if unknown := sorted(options.keys() - set(known)):
        listed = ", ".join(sorted(known)) or "none"
        raise ConfigError(f"{model} has no option {unknown[0]!r}; options: {listed}")
    return dict(options)


def environments() -> dict[str, str]:
    """Return the names of all environments, and the distribution that offers each."""
    others = {name: offer.distribution for name, offer in offers("rlm.environments").items()}
    return {**dict.fromkeys(BUILT_IN_ENVIRONMENTS, own_name()), **others}


def make_environment(name: str, options: Mapping[str, Any] | None = None) -> Environment:
    """Return the environment with this name."""
    if name in BUILT_IN_ENVIRONMENTS:
        maker = _imported(BUILT_IN_ENVIRONMENTS[name])
    elif (offer := offers("rlm.environments").get(name)) is not None:
        maker = offer.load()
    else:
        listed = ", ".join(environments())
        raise ConfigError(f"there is no environment {name!r}; environments: {listed}")
    known = inspect.signature(maker).parameters
    if unknown := sorted((options or {}).keys() - known.keys()):
        raise ConfigError(
            f"the environment {name!r} has no option {unknown[0]!r}; options: {', '.join(known)}"
        )
    environment: Environment = maker(**(options or {}))
    return environment


def setup_code_of(code: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return `setup_code`, which every environment takes, and the other options as keywords."""
    rest = dict(options or {})
    inside = rest.pop("setup_code", None)
    if code and inside:
        raise ConfigError("setup_code is given twice: as a keyword and as an option")
    return {"setup_code": code or inside, "environment_kwargs": rest}


def _first(variables: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((variables[name] for name in names if variables.get(name)), None)


def as_base_url(provider: str, url: str) -> str:
    """Return a base URL; OLLAMA_HOST may be a host with or without a port."""
    if provider != "ollama":
        return url
    if "://" not in url:
        has_port = url.rpartition(":")[2].isdecimal() and not url.endswith("]")
        url = f"http://{url}" if has_port else f"http://{url}:{OLLAMA_PORT}"
    return url if url.rstrip("/").endswith("/v1") else f"{url.rstrip('/')}/v1"
