"""The configuration of requests: one frozen value, combined from several sources.

`RLMConfig.from_sources` takes each field from the first source that has it. So a request can
override one field, and the others still come from the settings.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

__all__ = ["BACKEND_OF_RUNTIME", "ConfigProblem", "RLMConfig", "Source", "variable_of"]

BACKEND_OF_RUNTIME = "elizaos"
"""The backend that uses the models of the runtime's other plugins."""

PREFIX = "ELIZA_RLM_"
VARIABLES = {"environment": "ELIZA_RLM_ENV"}
"""Fields whose variable is not the prefix plus the field's name."""

TRUE_WORDS = frozenset({"1", "on", "true", "yes"})
FALSE_WORDS = frozenset({"0", "false", "no", "off"})
STRATEGIES = ("rlm", "direct", "mapreduce", "auto")
NOT_FROM_TEXT = frozenset({"backend_kwargs", "environment_kwargs"})

Source = Callable[[str], object]
"""Returns the value of a field by its name, or None."""


class ConfigProblem(ValueError):
    """A setting is invalid; the text names it and says what it may be."""


@dataclass(frozen=True, kw_only=True)
class RLMConfig:
    """Which models answer, where their code runs, and their limits.

    An empty `root_model` means the backend's default; an empty `subcall_backend` or
    `subcall_model` means that of the root. `provider` is used only with `backend="elizaos"`.
    """

    backend: str = "gemini"
    root_model: str = ""
    subcall_backend: str = ""
    subcall_model: str = ""
    backend_kwargs: Mapping[str, Any] = field(default_factory=dict)
    environment: str = "local"
    environment_kwargs: Mapping[str, Any] = field(default_factory=dict)
    max_iterations: int = 4
    max_depth: int = 1
    max_cost_usd: float | None = None
    max_seconds: float | None = None
    max_retries: int = 0
    retry_seconds: float = 1.0
    strategy: Literal["rlm", "direct", "mapreduce", "auto"] = "rlm"
    provider: str = ""
    verbose: bool = False

    @classmethod
    def from_sources(cls, sources: Iterable[Source]) -> "RLMConfig":
        """Take each field from the first source that has it, or its default; validate."""
        asked = tuple(sources)
        found: dict[str, Any] = {}
        for each in fields(cls):
            values = (source(each.name) for source in asked)
            value = next((value for value in values if value is not None and value != ""), None)
            if value is not None:
                found[each.name] = _as_field(each.name, value)
        config = cls(**found)
        config.validate()
        return config

    @classmethod
    def from_environment(cls, variables: Mapping[str, str] | None = None) -> "RLMConfig":
        """Read the variables `ELIZA_RLM_*`."""
        known = os.environ if variables is None else variables
        return cls.from_sources([lambda name: known.get(variable_of(name))])

    def validate(self) -> None:
        """Raise `ConfigProblem` for an invalid value; the engine checks what only it knows."""
        for name in ("backend", "environment"):
            if not getattr(self, name):
                raise ConfigProblem(f"{_label(name)} must not be empty")
        for name in ("max_iterations", "max_depth"):
            _check(name, getattr(self, name), lowest=1)
        _check("max_retries", self.max_retries, lowest=0)
        for name in ("max_cost_usd", "max_seconds"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ConfigProblem(f"{_label(name)} must be a positive number, not {value!r}")
        if not 0 <= self.retry_seconds < float("inf"):
            raise ConfigProblem(f"{_label('retry_seconds')} must be at least 0")
        if self.strategy not in STRATEGIES:
            listed = ", ".join(STRATEGIES)
            raise ConfigProblem(f"{_label('strategy')} must be one of {listed}")

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the options of clients, which may hold keys."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in NOT_FROM_TEXT}


def variable_of(name: str) -> str:
    """Return the name of a field's variable, which is also the runtime's setting."""
    return VARIABLES.get(name, PREFIX + name.upper())


def _label(name: str) -> str:
    return f"{name} ({variable_of(name)})"


def _check(name: str, value: object, *, lowest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise ConfigProblem(
            f"{_label(name)} must be a whole number of at least {lowest}, not {value!r}"
        )


def _as_field(name: str, value: object) -> Any:
    """Convert a setting to the type of its field; settings and variables are mostly text."""
    if name in NOT_FROM_TEXT:
        if not isinstance(value, Mapping):
            raise ConfigProblem(f"{name} must be a mapping, not {type(value).__name__}")
        return dict(value)
    if name == "verbose":
        return _as_bool(name, value)
    if name in {"max_iterations", "max_depth", "max_retries"}:
        return _as_number(name, value, int)
    if name in {"max_cost_usd", "max_seconds", "retry_seconds"}:
        return _as_number(name, value, float)
    if not isinstance(value, str):
        raise ConfigProblem(f"{_label(name)} must be a string, not {type(value).__name__}")
    return value.strip()


def _as_bool(name: str, value: object) -> bool:
    word = str(value).strip().lower()
    if word in TRUE_WORDS or word in FALSE_WORDS:
        return word in TRUE_WORDS
    raise ConfigProblem(f"{_label(name)} must be true or false, not {value!r}")


def _as_number(name: str, value: object, kind: type[int] | type[float]) -> int | float:
    whole = "whole number" if kind is int else "number"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigProblem(f"{_label(name)} must be a {whole}, not {value!r}")
    try:
        number = kind(value)
    except (ValueError, OverflowError):
        raise ConfigProblem(f"{_label(name)} must be a {whole}, not {value!r}") from None
    if isinstance(value, float) and number != value:
        raise ConfigProblem(f"{_label(name)} must be a {whole}, not {value!r}")
    return number
