"""The reference's constructor, read once: its keywords and positions in our words.

Every keyword of the reference's `RLM` means the same here, or raises one clear error; none is
silently ignored. A call that names a `backend` is in the reference's spelling, and gets its
defaults, its names of models and its texts for failed calls.
"""

import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypedDict, cast

from msgspec import Struct, field
from msgspec.structs import replace

from rlm._util.public_calls import check_names
from rlm.compat.backends import BackendChoice, read_backend
from rlm.compat.base_lm import BaseLM
from rlm.config import CallRules, Guards
from rlm.environments.auto import meant_by_local
from rlm.errors import ConfigError
from rlm.limits import IN_LIMITS, Limits

__all__ = ["ReferenceKeywords", "Spelling", "accepts_reference_keywords", "read_call"]

NO_LIMIT = 10**9
"""Stands for a limit that the reference does not have: `max_errors=None`, number of calls."""

OUTPUT_CHARS = 20_000
"""How much of a cell's output the reference shows."""

POSITIONS = (
    *("backend", "backend_kwargs", "environment", "environment_kwargs", "depth", "max_depth"),
    *("max_iterations", "max_budget", "max_timeout", "max_tokens", "max_errors"),
    *("custom_system_prompt", "other_backends", "other_backend_kwargs", "logger", "verbose"),
    *("persistent", "custom_tools", "custom_sub_tools", "compaction", "compaction_threshold_pct"),
    *("max_concurrent_subcalls", "on_subcall_start", "on_subcall_complete", "on_iteration_start"),
    *("on_iteration_complete", "sampling_args", "sub_sampling_args", "orchestrator"),
    "user_prologue",
)
"""The reference's parameters, in its order."""

LIMIT_KEYWORDS = {
    "max_depth": "max_depth",
    "max_iterations": "max_steps",
    "max_budget": "max_cost_usd",
    "max_timeout": "max_seconds",
    "max_tokens": "max_tokens",
    "max_errors": "max_errors",
    "max_concurrent_subcalls": "max_concurrent_calls",
}
SAME_MEANING = {
    "custom_system_prompt": "system_prompt",
    "custom_tools": "tools",
    "custom_sub_tools": "sub_tools",
    "compaction_threshold_pct": "compaction_fraction",
    "sampling_args": "sampling",
    "sub_sampling_args": "sub_sampling",
    "user_prologue": "prologue",
}
MODEL_KEYWORDS = ("backend", "backend_kwargs", "other_backends", "other_backend_kwargs", "depth")
REFERENCE_KEYWORDS = frozenset({*LIMIT_KEYWORDS, *SAME_MEANING, *MODEL_KEYWORDS})

SMALLEST_FRACTION = 0.001
FAILED_REPLIES = {
    "llm": "Error: {reason}",
    "llm_batched": "Error: llm() call failed - {reason}",
    "rlm": "Error: Child RLM completion failed - {reason}",
    "rlm_batched": "Error: Child RLM completion failed - {reason}",
}
"""What stands for a failed call: in the reference, a text and not an exception."""

REPLACEABLE = "rlm.core.rlm"
"""The module whose `get_client` programs replace in their tests, to answer without a model."""

Arguments = ParamSpec("Arguments")


class ReferenceKeywords(TypedDict, total=False):
    """The reference's keywords that we name differently, for type checkers."""

    model_name: Any
    backend: Any
    backend_kwargs: dict[str, Any] | None
    other_backends: Sequence[Any] | None
    other_backend_kwargs: Sequence[dict[str, Any]] | None
    depth: int
    max_depth: int | None
    max_iterations: int | None
    max_budget: float | None
    max_timeout: float | None
    max_tokens: int | None
    max_errors: int | None
    max_concurrent_subcalls: int | None
    custom_system_prompt: str | None
    custom_tools: Any
    custom_sub_tools: Any
    compaction_threshold_pct: float
    sampling_args: dict[str, Any] | None
    sub_sampling_args: dict[str, Any] | None
    user_prologue: str | None


class Spelling(Struct, frozen=True):
    """How an `RLM` was called: the decision that everything else in this package follows.

    `given` holds the reference's keywords as they were given. `backends` are the models that they
    name: the first is for the run, the second for its calls.
    """

    given: Mapping[str, Any] = field(default_factory=dict)
    is_reference: bool = False
    backends: tuple[BackendChoice, ...] = ()


def accepts_reference_keywords(init: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """Let a constructor be called in the reference's spelling, by name or by position.

    Keywords of the same name and meaning (`environment`, `logger`, `verbose`, `persistent`, `on_*`
    …) need no translation. The decision is kept as `self.spelling`.
    """

    fixed = {"self", "positions", "reference"}
    parameters = [name for name in inspect.signature(init).parameters if name not in fixed]
    known = (*parameters, *REFERENCE_KEYWORDS, "model_name")

    @functools.wraps(init)
    def translated(self: Any, *positional: Any, **options: Any) -> None:
        check_names("RLM", options, known, IN_LIMITS)
        try:
            self.spelling, model, native = read_call(positional, options)
            cast("Callable[..., None]", init)(self, *model, **native)
        except ConfigError as error:  # without the frames below, which say nothing more
            raise error.with_traceback(None) from None

    return cast("Callable[Arguments, None]", translated)


def read_call(
    positional: tuple[Any, ...], options: dict[str, Any]
) -> tuple[Spelling, tuple[Any, ...], dict[str, Any]]:
    """Return the spelling of a call, and its positional and named arguments in our words."""
    positional, options = _by_name(positional, _with_model_name(positional, dict(options)))
    given = {name: value for name, value in options.items() if name in POSITIONS}
    reference = {name: options.pop(name) for name in REFERENCE_KEYWORDS & options.keys()}
    reference = {name: value for name, value in reference.items() if value is not None}
    model = tuple(_as_model(each) for each in positional if each is not ...)
    options |= {n: _as_model(options[n]) for n in ("model", "sub_model") if n in options}
    if not reference:
        return Spelling(given), model, options
    spelling = Spelling(given, "backend" in reference or "backend_kwargs" in reference)
    if spelling.is_reference:
        if options.get("environment") == "local":
            options["environment"] = meant_by_local()
        spelling = _with_backends(spelling, reference, options.get("variables") or os.environ)
        options.pop("verbose", None)  # shown in panels, by `recording.py`
    native = _native(spelling, reference, options.pop("limits", None))
    options.update((n, v) for n, v in native.items() if options.get(n) is None)
    return spelling, model, options


def _with_model_name(positional: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Return a call in rlm-demo's spelling, `RLM(model_name=…)`, in our words.

    There, `Final Answer:` beside code ends the run once the code has run, so the model is not asked
    about it, and no request contains any of the context.
    """
    named = options.pop("model_name", None)
    if named is None:
        return options
    if positional or options.keys() & {"model", "backend", "backend_kwargs"}:
        raise TypeError(
            "RLM() got two models: pass model_name either inside backend_kwargs or alone"
        )
    isolated = {"strategy": "rlm", "preview_chars": 0}
    return {
        "guards": Guards(confirm_final=False, check_values=False),
        **isolated,
        **options,
        "model": named,
    }


def _by_name(
    positional: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a call with the reference's positions as keywords; ours has one position."""
    first = positional[:1]
    in_order = len(positional) > 1
    if in_order or (first and isinstance(first[0], str) and "backend_kwargs" in options):
        named = dict(zip(POSITIONS, positional, strict=False))
        if len(positional) > len(POSITIONS):
            raise TypeError(f"RLM() takes at most {len(POSITIONS)} positional arguments")
        if twice := named.keys() & options.keys():
            raise TypeError(f"RLM() got multiple values for argument {min(twice)!r}")
        return (), {**named, **options}
    if options.get("backend_kwargs") is None and isinstance(options.get("backend"), BaseLM):
        return (options.pop("backend"),), options
    return positional, options


def _as_model(model: Any) -> Any:
    """Return a model of the reference's kind as a client; return others unchanged."""
    if not isinstance(model, BaseLM):
        return model
    from rlm.compat.clients import LMClient

    return LMClient(model)


# -- models ---------------------------------------------------------------------------------------


def _with_backends(
    spelling: Spelling, given: Mapping[str, Any], variables: Mapping[str, str]
) -> Spelling:
    """Add the models: first the run's own, then the one for calls, then others."""
    root = _choice(given.get("backend", "openai"), given.get("backend_kwargs"), variables)
    root = _with_sampling(root, given.get("sampling_args"))
    others = given.get("other_backends") or []
    kwargs = given.get("other_backend_kwargs")
    kwargs = [{}] * len(others) if kwargs is None else kwargs
    if len(kwargs) != len(others):
        raise ConfigError("other_backends and other_backend_kwargs must have the same length")
    named = [_choice(name, each, variables) for name, each in zip(others, kwargs, strict=True)]
    sub, *more = named or [root]
    sub = _with_sampling(sub, given.get("sub_sampling_args"))
    return replace(spelling, backends=(root, sub, *more))


def _choice(backend: Any, kwargs: Any, variables: Mapping[str, str]) -> BackendChoice:
    """Return a backend: by its name, a class or object of the caller's, or a replaced factory."""
    from rlm.compat.clients import LMClient, get_client

    if isinstance(backend, type) and issubclass(backend, BaseLM):
        backend = backend(**(kwargs or {}))
    if isinstance(backend, BaseLM):
        client = LMClient(backend)
        return BackendChoice(client.model_name, client, is_free=True)
    factory = getattr(sys.modules.get(REPLACEABLE), "get_client", get_client)
    if factory is not get_client:
        client = LMClient(factory(backend, kwargs), (kwargs or {}).get("model_name"))
        return BackendChoice(client.model_name, client, is_free=True)
    return read_backend(backend, kwargs, variables)


def _with_sampling(choice: BackendChoice, sampling: Any) -> BackendChoice:
    if not sampling:
        return choice
    from rlm.compat.clients import LMClient

    if isinstance(choice.model, LMClient):
        raise ConfigError("pass sampling_args to the constructor of your own model")
    tokens = sampling.get("max_tokens") or choice.max_output_tokens
    merged = {**choice.sampling, **sampling}
    return replace(choice, sampling=merged, max_output_tokens=tokens)


# -- keywords -------------------------------------------------------------------------------------


def _native(spelling: Spelling, given: Mapping[str, Any], limits: Limits | None) -> dict[str, Any]:
    """Return our keywords for those of the reference."""
    options = {SAME_MEANING[name]: given[name] for name in SAME_MEANING if name in given}
    if "compaction_fraction" in options:
        options["compaction_fraction"] = _fraction(options["compaction_fraction"])
    if spelling.is_reference:
        options |= _models(spelling.backends) | {"compaction": False}
        options["guards"] = Guards(invalid_response_limit=NO_LIMIT, check_values=False)
        options["call_rules"] = CallRules(
            FAILED_REPLIES,
            spelling.backends[0].name,
            requires_prices="max_budget" not in given,
        )
    elif "other_backends" in given:
        options |= _other_models(given)
    if isinstance(options.get("system_prompt"), str):
        from rlm.compat.prompts import filled_prompt

        options["system_prompt"] = filled_prompt(options["system_prompt"], given)
    options["limits"] = _limits(spelling, given, limits)
    if given.get("depth", 0) >= given.get("max_depth", 1):
        options["strategy"] = "direct"  # at the depth limit, the reference makes a plain call
    return {name: value for name, value in options.items() if value is not None}


def _models(backends: tuple[BackendChoice, ...]) -> dict[str, Any]:
    root, sub, *more = backends
    return {
        "model": root.model,
        "sub_model": None if sub.name == root.name else sub.model,
        "models": tuple(each.model for each in more),
        "client_options": {each.name: each.options for each in reversed(backends)},
        "sampling": root.sampling or None,
        "sub_sampling": sub.sampling or None,
    }


def _other_models(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return `other_backends` beside a model of ours."""
    kwargs = given.get("other_backend_kwargs") or []
    if len(kwargs) != len(given["other_backends"]):
        raise ConfigError("other_backends and other_backend_kwargs must have the same length")
    pairs = zip(given["other_backends"], kwargs, strict=True)
    choices = [read_backend(name, each) for name, each in pairs]
    return {
        "sub_model": choices[0].model if choices else None,
        "models": tuple(each.model for each in choices[1:]),
        "client_options": {each.name: each.options for each in choices},
        "sub_sampling": choices[0].sampling or None if choices else None,
    }


def _fraction(given: Any) -> float:
    """Return a share of the window; the reference accepts any number, 1 or more for never."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ConfigError(f"compaction_threshold_pct must be a number, not {given!r}")
    return min(1.0, max(SMALLEST_FRACTION, float(given)))


def _limits(spelling: Spelling, given: Mapping[str, Any], limits: Limits | None) -> Limits | None:
    changes = {
        LIMIT_KEYWORDS[name]: given[name] for name in LIMIT_KEYWORDS if given.get(name) is not None
    }
    if spelling.is_reference:
        changes.setdefault("max_errors", NO_LIMIT)
        if limits is None:
            changes |= {"max_calls": NO_LIMIT, "output_chars": OUTPUT_CHARS}
        root, sub = spelling.backends[:2]
        caps = {"step_output_tokens": root, "call_output_tokens": sub}
        changes |= {
            name: each.max_output_tokens for name, each in caps.items() if each.max_output_tokens
        }
    if "depth" in given:
        changes["max_depth"] = max(1, given.get("max_depth", 1) - given["depth"])
    return replace(limits or Limits(), **changes) if changes else limits
