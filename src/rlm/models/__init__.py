"""Windows, prices and profiles of known models, from one dated data file."""

import logging
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from rlm._util.text import closest
from rlm.messages import ModelInfo, Price
from rlm.models._profiles import profile_of
from rlm.models._table import Source, table

__all__ = ["about", "full_name", "notice", "search", "similar", "source", "warn_if_unknown"]

FREE = {"gguf", "llamacpp", "lmstudio", "offline", "ollama"}
"""Providers that run on your own machines."""

HOMES = {
    "openai": "openai",
    "openai-responses": "openai",
    "anthropic": "anthropic",
    "gemini": "google",
    "groq": "groq",
    "openrouter": "openrouter",
    "azure": "azure",
    **{name: name for name in ("cerebras", "cohere", "deepseek", "fireworks", "minimax")},
    **{name: name for name in ("mistral", "together")},
    "xai": "x-ai",
    "foundry": "anthropic",
    "bedrock": "aws",
    "bedrock-openai": "aws",
}
"""The provider whose rows each provider uses."""

DEPLOYED = {"azure", "foundry"}
"""Providers where a model has the name of the user's deployment."""

MAKERS = {"openai": "openai", "anthropic": "anthropic", "google": "google", "xai": "x-ai"}
"""Makers whose models gateways resell at the maker's price."""

GATEWAYS = {"portkey", "vercel"}
NAMED_BY_OTHERS = {
    **{name: name for name in ("anthropic", "azure", "cerebras", "cohere", "deepseek", "groq")},
    **{name: name for name in ("minimax", "mistral", "openai", "openrouter", "perplexity", "zai")},
    "bedrock": "aws",
    "fireworks_ai": "fireworks",
    "gemini": "google",
    "moonshot": "moonshotai",
    "together_ai": "together",
    "vertex_ai": "google",
    "xai": "x-ai",
}
"""The names that litellm and llm put before a model, and the owner of its rows."""

BARE = (("gpt-", "openai"), ("o1", "openai"), ("o3", "openai"), ("o4", "openai"))
BARE_OF_OTHERS = (*BARE, ("claude-", "anthropic"), ("gemini-", "google"))
OTHERS = {"litellm", "llm"}
OTHERS_FREE = {"hosted_vllm": False, "llamafile": True, "lm_studio": True, "ollama": True}

_NUMBERS = re.compile(r"[\d.]+")
_log = logging.getLogger("rlm")
_warned: set[str] = set()


class _Lookup(NamedTuple):
    """Where to look up a model. `exactly`: a similar name may be a deployment of the user."""

    home: str | None = None
    name: str = ""
    exactly: bool = False
    free: bool = False


def about(provider: str, model: str) -> ModelInfo:
    """Return what is known about a model of a provider; what is unknown is None."""
    lookup = _lookup(provider, model)
    profile = profile_of(model)
    if lookup.home is None:
        return ModelInfo(price=Price(0.0, 0.0) if lookup.free else None, profile=profile)
    row = table().find(lookup.home, lookup.name, exactly=lookup.exactly)
    window = table().window(lookup.home, lookup.name, row, lookup.exactly)
    price = None if row is None else row.as_price()
    return ModelInfo(window_tokens=window, price=price, profile=profile)


def full_name(provider: str, model: str) -> str:
    """Return a model's name on the wire: Fireworks' own models may be named without their path."""
    is_short = provider == "fireworks" and "/" not in model
    return f"accounts/fireworks/models/{model}" if is_short else model


def search(pattern: str) -> Iterator[tuple[str, ModelInfo]]:
    """Yield the models whose `provider/model` contains the text or matches the pattern.

    A pattern without a slash, such as `gpt-5*`, may also match the name after the provider.
    """
    wanted = pattern.lower()
    fits = [wanted] if any(sign in wanted for sign in "*?[") else [f"*{wanted}*"]
    if "/" not in wanted:
        fits.append(f"*/{wanted}")
    homes = {home: name for name, home in reversed(HOMES.items())}
    by_litellm = {home: f"litellm/{name}" for name, home in NAMED_BY_OTHERS.items()}
    for home in table().providers:
        prefix = homes.get(home) or by_litellm[home]
        for row in table().rows(home):
            name = f"{prefix}/{row.id}"
            window = table().window(home, row.id, row, False)
            if (window or row.price) and any(fnmatchcase(name.lower(), each) for each in fits):
                yield name, ModelInfo(window, row.as_price(), profile_of(row.id))


def source() -> Source:
    """Return the name, version, date and licence of the data file's source."""
    return table().source


def notice(name: str, info: ModelInfo, assumed_window: int) -> str | None:
    """Return a line about what is unknown about a model and assumed; None if all is known."""
    assumed = f"assumed to be {assumed_window:,} tokens"
    if info.price is not None:
        if info.window_tokens is not None:
            return None
        return f"The window of {name} is unknown, and {assumed}."
    if info.window_tokens is not None:
        return f"The price of {name} is unknown."
    meant = similar(*name.split("/", 1)) if "/" in name else None
    hint = f" Did you mean {meant}?" if meant else ""
    return (
        f"{name} is not in the model table: its window is {assumed} and its price is unknown.{hint}"
    )


def similar(provider: str, model: str) -> str | None:
    """Return the known model that a mistyped name probably means.

    A name that differs only in its numbers is probably newer than the table.
    """
    home = None if provider in DEPLOYED else HOMES.get(provider)
    if home is None:
        return None
    names = {row.id for row in table().rows(home)}
    meant = closest(model, names, cutoff=0.85)
    if meant is None or _NUMBERS.sub("", meant) == _NUMBERS.sub("", model):
        return None
    return f"{provider}/{meant}"


def warn_if_unknown(name: str, info: ModelInfo, assumed_window: int) -> None:
    """Log that line, once per model and process."""
    if name not in _warned and (line := notice(name, info, assumed_window)) is not None:
        _warned.add(name)
        _log.warning("%s", line)


def _lookup(provider: str, model: str) -> _Lookup:
    if provider in FREE:
        return _Lookup(free=not (provider == "ollama" and model.endswith("cloud")))
    if provider in HOMES:
        home = HOMES[provider]
        name = model.removeprefix("models/") if home == "google" else full_name(provider, model)
        return _Lookup(home, name, exactly=provider in DEPLOYED)
    first, slash, rest = model.partition("/")
    if provider in GATEWAYS:
        maker = MAKERS.get(first.removeprefix("@"))
        is_makers = maker is not None and ":" not in rest and not rest.endswith("-fast")
        return _Lookup(maker, rest) if slash and is_makers else _Lookup()
    if provider in OTHERS:
        return _lookup_of_others(first, rest) if slash else _lookup_of_bare(model)
    return _Lookup()


def _lookup_of_others(named: str, rest: str) -> _Lookup:
    if OTHERS_FREE.get(named.removesuffix("_chat")):
        return _Lookup(free=not rest.endswith("cloud"))
    return _Lookup(NAMED_BY_OTHERS.get(named), rest, exactly=named == "azure")


def _lookup_of_bare(model: str) -> _Lookup:
    home = next((home for start, home in BARE_OF_OTHERS if model.startswith(start)), None)
    return _Lookup(home, model)
