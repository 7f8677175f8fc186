"""Map names to clients and environments, which are imported on first use."""

import inspect
import os
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from rlm._util.distribution import own_name
from rlm._util.text import closest, meant_or_all, no_such
from rlm.clients._aws import Signer, credentials_in, region_in
from rlm.errors import ConfigError
from rlm.models import full_name
from rlm.protocols import Client, Environment, with_defaults
from rlm.wiring.plugins import offers
from rlm.wiring.providers import (
    ALIASES,
    OLLAMA_PORT,
    PROVIDERS,
    Dialect,
    Provider,
    first_set,
    first_usable,
)

__all__ = [
    "AUTO",
    "BUILT_IN_ENVIRONMENTS",
    "OFFLINE_MODEL",
    "PROVIDERS",
    "SENDING_OPTIONS",
    "Provider",
    "as_base_url",
    "check_backend",
    "check_provider",
    "client_options",
    "default_model",
    "environments",
    "make_client",
    "make_environment",
    "missing_key",
    "setup_code_of",
    "split_model",
]

OFFLINE_MODEL = "offline/extractive"

SENDING_OPTIONS = ("max_attempts", "timeout_seconds")
"""Options that `rlm.calls` applies to every client."""

CLIENTS: dict[Dialect, tuple[str, str]] = {
    "chat": ("rlm.clients.compatible", "OpenAICompatClient"),
    "anthropic": ("rlm.clients.anthropic", "AnthropicClient"),
    "gemini": ("rlm.clients.gemini", "GeminiClient"),
    "responses": ("rlm.clients.responses", "ResponsesClient"),
    "converse": ("rlm.clients.converse", "ConverseClient"),
}


ADAPTERS: dict[str, tuple[str, str]] = {
    "command": ("rlm.clients.command", "CommandClient"),
    "gguf": ("rlm.clients.gguf", "GGUFClient"),
    "litellm": ("rlm.clients.litellm", "LiteLLMClient"),
    "llm": ("rlm.clients.llm", "LLMClient"),
    "offline": ("rlm.clients.offline", "OfflineClient"),
}
"""Providers that are reached through a program or another package; each has its own options."""

RESPONSES_ONLY = re.compile(
    r"(gpt-5(\.\d+)?-(pro|codex)|o\d-pro|codex-mini|computer-use|.*deep-research)"
)
"""OpenAI models that answer only at /v1/responses."""

AUTO = "auto"
"""The environment that chooses another one; the default everywhere."""

BUILT_IN_ENVIRONMENTS: dict[str, tuple[str, str]] = {
    AUTO: ("rlm.environments.auto", "AutoEnvironment"),
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


MAX_MODEL_CHARS = 500
"""Names of models are shown in messages and logs, and are part of addresses."""


def split_model(model: str) -> tuple[str, str]:
    """Split `provider/model`; a bare `gpt-…` or `o…` belongs to OpenAI, `….gguf` is a file."""
    if model.startswith("gguf:") or _is_file(model):
        return "gguf", model.removeprefix("gguf:")
    if len(model) > MAX_MODEL_CHARS or not model.isprintable():
        raise ConfigError(
            f"{model[:60]!r} can't name a model: a name has at most {MAX_MODEL_CHARS} characters, "
            "and no line breaks or control characters"
        )
    provider, slash, name = model.partition("/")
    if slash:
        return ALIASES.get(provider, provider), name
    for prefix, owner in BARE_NAMES:
        if model.startswith(prefix):
            return owner, model
    example = model.strip() or "gpt-5-mini"
    raise ConfigError(
        f"{model!r} does not name a provider: write it as provider/model, e.g. openai/{example}"
    )


def _is_file(model: str) -> bool:
    """Return whether a name is the path of a GGUF file, not a provider's model."""
    if not model.lower().endswith(".gguf"):
        return False
    first, slash, _ = model.partition("/")
    return not slash or first not in {*PROVIDERS, *ALIASES, *ADAPTERS, *offers("rlm.clients")}


def default_model(variables: Mapping[str, str]) -> str | None:
    """Return RLM_MODEL, else the default model of the first provider whose key is set."""
    if named := variables.get("RLM_MODEL"):
        return named
    found = first_usable(variables)
    return None if found is None else f"{found[0]}/{PROVIDERS[found[0]].default_model}"


def make_client(
    model: str, variables: Mapping[str, str] = os.environ, **options: Any
) -> tuple[Client, str]:
    """Return the client for a model, and its name on the wire. Options override variables."""
    provider_name, wire_name = split_model(model)
    if provider_name == "offline" and model != OFFLINE_MODEL:
        raise ConfigError(f"there is no model {model}: the only offline one is {OFFLINE_MODEL}")
    maker = _maker(provider_name, wire_name)
    if maker is None or (provider_name in PROVIDERS and not wire_name):
        raise ConfigError(_no_provider(provider_name, wire_name))
    options = _known(model, maker, options)
    provider = PROVIDERS.get(provider_name)
    if provider is None:
        return maker(wire_name, **options), wire_name
    wire_name = full_name(provider_name, wire_name)
    address, key, used = _address_and_key(model, provider_name, provider, variables, options)
    if provider_name == "azure":
        options.setdefault("api_version", variables.get("AZURE_OPENAI_API_VERSION"))
    return maker(address, key, provider=provider_name, **used, **options), wire_name


def client_options(model: str) -> list[str]:
    """Return the options that the client of a model takes; none if there is no such provider."""
    maker = _maker(*split_model(model))
    return [] if maker is None else _options_of(maker)


def _maker(provider_name: str, wire_name: str) -> Callable[..., Any] | None:
    """Return what makes the client of a model: a built-in provider's, an adapter's, a plugin's."""
    if provider_name in ADAPTERS:
        adapted: Callable[..., Any] = _imported(ADAPTERS[provider_name]).for_model
        return adapted
    if (provider := PROVIDERS.get(provider_name)) is not None:
        full = full_name(provider_name, wire_name)
        is_responses = provider_name == "openai" and RESPONSES_ONLY.match(full)
        client: Callable[..., Any] = _imported(
            CLIENTS["responses" if is_responses else provider.dialect]
        )
        return client
    if (offer := offers("rlm.clients").get(provider_name)) is not None:
        loaded = offer.load()
        offered: Callable[..., Any] = getattr(loaded, "for_model", loaded)
        return offered
    return None


def check_provider(model: str) -> None:
    """Raise ConfigError if a name has no provider, or an unknown one."""
    provider, name = split_model(model)
    if not name or provider not in {*PROVIDERS, *ADAPTERS, *offers("rlm.clients")}:
        raise ConfigError(_no_provider(provider, name))


def check_backend(backend: str) -> None:
    """Raise ConfigError if there is no provider of this name."""
    known = sorted([*PROVIDERS, *ADAPTERS, *offers("rlm.clients")])
    if backend in {*known, *ALIASES}:
        return
    meant = _provider_meant(backend)
    hint = f"did you mean {meant!r}?" if meant else f"providers: {', '.join(known)}"
    raise ConfigError(f"there is no provider {backend!r}; {hint}")


def _no_provider(provider: str, model: str) -> str:
    known = sorted([*PROVIDERS, *ADAPTERS, *offers("rlm.clients")])
    if provider in known:
        return f"{provider}/ does not name a model: write {provider}/MODEL"
    if meant := _provider_meant(provider):
        return f"there is no provider {provider!r}; did you mean {meant}/{model or 'MODEL'}?"
    return f"there is no provider {provider!r}; providers: {', '.join(known)}"


def _provider_meant(provider: str) -> str | None:
    """Return the provider that a mistyped name probably means."""
    known = {name.lower(): name for name in (*PROVIDERS, *ADAPTERS, *offers("rlm.clients"))}
    meant = closest(provider.lower(), {*known, *ALIASES}, cutoff=0.78)
    return None if meant is None else known.get(meant, meant)


def missing_key(
    model: str, variables: Mapping[str, str] = os.environ, options: Mapping[str, Any] | None = None
) -> str | None:
    """Return the key that a model needs and lacks, if any."""
    provider = PROVIDERS.get(split_model(model)[0])
    if provider is None or not provider.needs_key or (options or {}).get("api_key"):
        return None
    found = _first(variables, provider.key_variables)
    if found or (provider.is_aws and _signer(variables) is not None):
        return None
    return _needs_key(model, provider)


def _needs_key(model: str, provider: Provider) -> str:
    text = f"{model} needs a key: set {provider.key_variables[0]}"
    if provider.is_aws:
        return f"{text}, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    return f"{text}, or run `rlm keys set {split_model(model)[0]}`"


def _address_and_key(
    model: str,
    name: str,
    provider: Provider,
    variables: Mapping[str, str],
    options: dict[str, Any],
) -> tuple[str, str | None, dict[str, str | None]]:
    """Return the address, the key, and the variables to name if one of them is wrong."""
    key = options.pop("api_key", None) or _first(variables, provider.key_variables)
    if key is None and provider.is_aws and options.get("signer") is None:
        options["signer"] = _signer(variables)
    if key is None and provider.needs_key and options.get("signer") is None:
        raise ConfigError(_needs_key(model, provider))
    given, source = options.pop("base_url", None), None
    if not given and (source := first_set(variables, provider.base_url_variables)):
        given = variables[source]
    address = given or provider.base_url
    if address is not None and provider.is_aws:
        address = address.replace("{region}", region_in(variables))
    if address is None:
        raise ConfigError(
            f"{model} needs an address: set {' or '.join(provider.base_url_variables)}"
        )
    variable = provider.key_variables[0] if provider.key_variables else None
    used = {"key_variable": variable, "url_variable": source}
    return as_base_url(name, address), key, used


def _signer(variables: Mapping[str, str]) -> Signer | None:
    """Return the signer of requests to AWS, if the variables hold an access key."""
    credentials = credentials_in(variables)
    return None if credentials is None else Signer(credentials, region_in(variables))


def _imported(home: tuple[str, str]) -> Any:
    return getattr(import_module(home[0]), home[1])


def _options_of(maker: Callable[..., Any]) -> list[str]:
    """Return the names of the options with which a client is made."""
    fixed = {"self", "model", "provider", "key_variable", "url_variable"}
    return [name for name in inspect.signature(maker).parameters if name not in fixed]


def _known(model: str, maker: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options; raise if the client does not have one of them."""
    known = _options_of(maker)
    if unknown := sorted(options.keys() - set(known)):
        hint = meant_or_all(unknown[0], [*sorted(known), *SENDING_OPTIONS], "options:")
        raise ConfigError(f"{model} has no option {unknown[0]!r}; {hint}")
    return dict(options)


def environments() -> dict[str, str]:
    """Return the names of all environments, and the distribution that offers each."""
    others = {name: offer.distribution for name, offer in offers("rlm.environments").items()}
    return {**dict.fromkeys(BUILT_IN_ENVIRONMENTS, own_name()), **others}


def make_environment(name: str, options: Mapping[str, Any] | None = None) -> Environment:
    """Return the environment with this name; options of `auto` are passed to the one it chooses."""
    if name == AUTO:
        choosing: Environment = _imported(BUILT_IN_ENVIRONMENTS[AUTO])(
            lambda chosen: with_defaults(make_environment(chosen, _fitting(chosen, options)))
        )
        return choosing
    if name in BUILT_IN_ENVIRONMENTS:
        maker = _imported(BUILT_IN_ENVIRONMENTS[name])
    elif (offer := offers("rlm.environments").get(name)) is not None:
        maker = offer.load()
    else:
        raise ConfigError(no_such("environment", name, environments()))
    known = inspect.signature(maker).parameters
    if unknown := sorted((options or {}).keys() - known.keys()):
        hint = meant_or_all(unknown[0], known, "options:")
        raise ConfigError(f"the environment {name!r} has no option {unknown[0]!r}; {hint}")
    environment: Environment = maker(**(options or {}))
    return environment


def _fitting(chosen: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options of `auto` that its choice accepts; containers can't be kept warm."""
    without = {"warm_sessions"} if chosen == "docker" else set()
    return {name: value for name, value in (options or {}).items() if name not in without}


def setup_code_of(code: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return `setup_code`, which works in every environment, and the other options."""
    rest = dict(options or {})
    inside = rest.pop("setup_code", None)
    if code and inside:
        raise ConfigError("setup_code is given twice: as a keyword and as an option")
    return {"setup_code": code or inside, "environment_kwargs": rest}


def _first(variables: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    name = first_set(variables, names)
    return None if name is None else variables[name]


def as_base_url(provider: str, url: str) -> str:
    """Return a base URL; OLLAMA_HOST may be a host with or without a port.

    A Foundry resource may be given by name only, and its address may lack the path.
    """
    if provider == "foundry":
        return _foundry_url(url.strip())
    if provider != "ollama":
        return url
    if "://" not in url:
        has_port = url.rpartition(":")[2].isdecimal() and not url.endswith("]")
        url = f"http://{url}" if has_port else f"http://{url}:{OLLAMA_PORT}"
    return url if url.rstrip("/").endswith("/v1") else f"{url.rstrip('/')}/v1"


RESOURCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")


def _foundry_url(given: str) -> str:
    if "://" not in given:
        if not RESOURCE.fullmatch(given):
            raise ConfigError(
                f"{given!r} does not name a Foundry resource: set ANTHROPIC_FOUNDRY_RESOURCE to "
                "its name, or ANTHROPIC_FOUNDRY_BASE_URL to its address"
            )
        return f"https://{given}.services.ai.azure.com/anthropic"
    url = given.rstrip("/").removesuffix("/messages").removesuffix("/v1")
    try:
        has_path = bool(urlsplit(url).path.strip("/"))
    except ValueError:  # The client made with it will report the problem.
        return url
    return url if has_path else f"{url.rstrip('/')}/anthropic"
