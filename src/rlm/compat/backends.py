"""`backend` and `backend_kwargs` as a model and the options of its client."""

import os
from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from rlm._util.text import meant_or_all
from rlm.errors import ConfigError
from rlm.messages import ModelInfo, Reply, Request
from rlm.models import about
from rlm.wiring import registry

__all__ = ["BackendChoice", "read_backend", "without_keys"]

PROVIDERS = {"azure_openai": "azure"}
DEFAULT_MODELS = {"gemini": "gemini-2.5-flash"}
RENAMED = {"azure_endpoint": "base_url", "default_query": "query", "timeout": "timeout_seconds"}
AS_HEADERS = {"organization": "OpenAI-Organization", "project": "OpenAI-Project"}
"""Options that OpenAI's package sends as a header."""

OPTIONS = (
    *("model_name", "api_key", "base_url", "timeout", "max_retries", "default_headers"),
    *("default_query", "organization", "project", "sampling_args", "max_tokens"),
)
"""The reference's options that every backend takes, for messages."""

OF_RLM = {
    "price": "prices={{{model!r}: (IN, OUT)}}",
    "prices": "prices={{{model!r}: (IN, OUT)}}",
    "window": "windows={{{model!r}: TOKENS}}",
    "windows": "windows={{{model!r}: TOKENS}}",
    "window_tokens": "windows={{{model!r}: TOKENS}}",
}
"""What is said of a model in a keyword of `RLM`, and how."""

LOCAL_PROVIDERS = frozenset({"vllm", "ollama", "lmstudio", "llamacpp", "gguf", "offline"})
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "host.docker.internal"})  # noqa: S104 - compared, not bound
STATES_COST = frozenset({"openrouter", "vercel", "litellm-proxy", "litellm"})
"""Providers whose replies say what they cost."""


class BackendChoice(Struct, frozen=True):
    """One backend as the reference describes it, in our words.

    `name` names the model and its provider; `sampling` and `max_output_tokens` apply to all its
    requests. `is_free`: a local server, which charges nothing. `states_cost`: its replies say what
    they cost. `missing_key` says which key has to be set before the first request.
    """

    name: str
    model: Any
    options: dict[str, Any] = field(default_factory=dict)
    sampling: dict[str, Any] = field(default_factory=dict)
    max_output_tokens: int | None = None
    is_free: bool = False
    states_cost: bool = False
    missing_key: str | None = None


def read_backend(
    backend: Any, kwargs: Mapping[str, Any] | None, variables: Mapping[str, str] = os.environ
) -> BackendChoice:
    """Return the model and the options of a backend; raise ConfigError for an unknown option.

    The first request reports a missing key, as in the reference: objects can be created and
    inspected without one.
    """
    if not isinstance(backend, str):
        raise ConfigError(f"backend must be the name of a provider, not {backend!r}")
    options = dict(kwargs or {})
    name = options.pop("model_name", None) or options.pop("model", None)
    if backend == "azure_openai":
        name = options.pop("azure_deployment", None) or name
    name = name or DEFAULT_MODELS.get(backend)
    if not isinstance(name, str):
        registry.check_backend(backend)
        raise ConfigError(
            f"backend_kwargs for {backend!r} needs a model: backend_kwargs={{'model_name': ...}}"
        )
    provider = PROVIDERS.get(backend, backend)
    model = f"{provider}/{name}"
    sampling = _sampling(options)
    tokens = options.pop("max_tokens", None) or sampling.get("max_tokens")
    native = _renamed(options)
    _check_options(model, native)
    choice = BackendChoice(
        model,
        model,
        native,
        sampling,
        tokens or sampling.get("max_completion_tokens"),
        is_free=provider in LOCAL_PROVIDERS or _is_local(native.get("base_url")),
        states_cost=provider in STATES_COST,
    )
    missing = registry.missing_key(model, variables, native)
    if missing is None:
        return choice
    checked = {n: each for n, each in native.items() if n not in registry.SENDING_OPTIONS}
    registry.make_client(model, variables, **{**checked, "api_key": "missing"})
    return replace(choice, model=_WithoutKey(model, missing), options={}, missing_key=missing)


def _sampling(options: dict[str, Any]) -> dict[str, Any]:
    given = options.pop("sampling_args", None) or {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"sampling_args must be a dict, not {type(given).__name__}")
    return dict(given)


def _renamed(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of the reference's clients under our names; those set to None are dropped."""
    given = {name: value for name, value in options.items() if value is not None}
    headers = {**given.pop("default_headers", {}), **given.pop("headers", {})}
    headers |= {header: given.pop(name) for name, header in AS_HEADERS.items() if name in given}
    native = {RENAMED.get(name, name): value for name, value in given.items()}
    if "max_retries" in native:
        retries = native.pop("max_retries")
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise ConfigError(f"max_retries must be at least 0, not {retries!r}")
        native["max_attempts"] = retries + 1
    return {**native, "headers": headers} if headers else native


def _check_options(model: str, native: Mapping[str, Any]) -> None:
    """Raise for an option that neither the reference's clients nor ours take.

    A model whose provider is not known may be served by a client of the caller's.
    """
    own = registry.client_options(model)
    unknown = sorted(native.keys() - {*own, *registry.SENDING_OPTIONS})
    if not own or not unknown:
        return
    if unknown[0] in OF_RLM:
        hint = f"pass {OF_RLM[unknown[0]].format(model=model)} to RLM"
    else:
        known = dict.fromkeys([*OPTIONS, *registry.SENDING_OPTIONS, *own])
        hint = meant_or_all(unknown[0], known, "options:")
    raise ConfigError(f"backend_kwargs of {model} has no option {unknown[0]!r}; {hint}")


def _is_local(address: Any) -> bool:
    try:
        return isinstance(address, str) and urlsplit(address).hostname in LOCAL_HOSTS
    except ValueError:  # The client that is made with it says what is wrong.
        return False


def without_keys(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return options without secrets, for logs."""
    shown = {}
    for name, value in (options or {}).items():
        secret = "key" in name.lower() or ("token" in name.lower() and "max" not in name.lower())
        if not secret and name not in {"default_headers", "headers", "default_query"}:
            shown[name] = value
    return shown


class _WithoutKey:
    """Stands in for a provider whose key is not set; every request says which one is missing."""

    def __init__(self, model: str, message: str) -> None:
        self.model_name = model
        self._message = message

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        raise ConfigError(self._message)

    async def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        raise ConfigError(self._message)
        yield ""

    def info(self, model: str) -> ModelInfo:
        provider, _, name = self.model_name.partition("/")
        return about(provider, name)

    async def close(self) -> None:
        """Do nothing: nothing was opened."""
