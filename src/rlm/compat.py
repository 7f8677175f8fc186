"""The reference engine's spelling: its constructor keywords, its result and its errors.

Every keyword of the reference's `RLM` means the same here, or raises one clear error; none is
silently ignored.
"""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, cast

from msgspec import Struct
from msgspec.structs import replace

from rlm.errors import (
    BudgetExceededError,
    CancellationError,
    ConfigError,
    ErrorThresholdExceededError,
    TimeoutExceededError,
    TokenLimitExceededError,
)
from rlm.limits import Limits
from rlm.messages import Usage
from rlm.results import RunResult

__all__ = [
    "Completion",
    "ModelUsage",
    "UsageTotals",
    "accepts_reference_keywords",
    "native_options",
    "raise_if_ended_early",
]

NO_LIMIT_ON_ERRORS = 10**9
"""`max_errors=None` of the reference means no limit."""

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
BACKEND_PROVIDERS = {"azure_openai": "azure"}
AZURE_NAMES = {"azure_endpoint": "base_url"}

Arguments = ParamSpec("Arguments")


def accepts_reference_keywords(init: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """Let a constructor be called in the reference's spelling.

    Keywords of the same name and meaning (`environment`, `logger`, `verbose`, `persistent`, `on_*`
    …) need no translation.
    """

    @functools.wraps(init)
    def translated(self: Any, *model: Any, **options: Any) -> None:
        given = {name: options.pop(name) for name in REFERENCE_KEYWORDS & options.keys()}
        given = {name: value for name, value in given.items() if value is not None}
        if "backend_kwargs" in given and len(model) == 1 and isinstance(model[0], str):
            given.setdefault("backend", model[0])  # the reference's first argument
            model = ()
        if model == (...,):  # as documents write it: RLM(..., logger=logger), with any model
            model = ()
        if given:
            native = native_options(given, options.pop("limits", None))
            options.update((n, v) for n, v in native.items() if options.get(n) is None)
        cast("Callable[..., None]", init)(self, *model, **options)

    return cast("Callable[Arguments, None]", translated)


def native_options(given: dict[str, Any], limits: Any) -> dict[str, Any]:
    """Return our keywords for those of the reference."""
    options = {SAME_MEANING[name]: given[name] for name in SAME_MEANING if name in given}
    options.update(_models(given))
    if is_reference_spelling(given):
        options["compaction"] = False
    options["limits"] = _limits(given, limits)
    if given.get("depth", 0) >= given.get("max_depth", 1):
        options["strategy"] = "direct"  # at the depth limit, the reference makes a plain call
    return {name: value for name, value in options.items() if value is not None}


def is_reference_spelling(given: dict[str, Any]) -> bool:
    return not given.keys().isdisjoint({"backend", "backend_kwargs"})


def _limits(given: dict[str, Any], limits: Limits | None) -> Limits | None:
    changes = {
        LIMIT_KEYWORDS[name]: given[name] for name in LIMIT_KEYWORDS if given.get(name) is not None
    }
    if is_reference_spelling(given):
        changes.setdefault("max_errors", NO_LIMIT_ON_ERRORS)
    if "depth" in given:
        changes["max_depth"] = max(1, given.get("max_depth", 1) - given["depth"])
    return replace(limits or Limits(), **changes) if changes else limits


def _models(given: dict[str, Any]) -> dict[str, Any]:
    """Return `backend` and `backend_kwargs` as a model name and the options of its client."""
    options: dict[str, Any] = {"client_options": {}}
    if is_reference_spelling(given):
        name, client = _model(given.get("backend", "openai"), given.get("backend_kwargs"))
        options = {"model": name, "client_options": {name: client}}
    others = given.get("other_backends") or []
    kwargs = given.get("other_backend_kwargs")
    kwargs = [{}] * len(others) if kwargs is None else kwargs
    if len(kwargs) != len(others):
        raise ConfigError("other_backends and other_backend_kwargs must be of the same length")
    pairs = [_model(name, options) for name, options in zip(others, kwargs, strict=True)]
    if pairs:
        options["sub_model"] = pairs[0][0]
        options["models"] = tuple(name for name, _ in pairs[1:])
        options["client_options"].update(pairs)
    return options


def _model(backend: str, kwargs: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
    options = dict(kwargs or {})
    model = options.pop("model_name", None) or options.pop("model", None)
    if backend == "azure_openai":
        model = options.pop("azure_deployment", None) or model
        options |= {n: options.pop(old) for old, n in AZURE_NAMES.items() if old in options}
    if not isinstance(model, str):
        raise ConfigError(
            f"backend_kwargs for {backend!r} needs a model: backend_kwargs={{'model_name': ...}}"
        )
    return f"{BACKEND_PROVIDERS.get(backend, backend)}/{model}", options


# -- what comes out ------------------------------------------------------------------------------


class ModelUsage(Struct, frozen=True):
    """The usage of one model in a completion."""

    total_calls: int
    total_input_tokens: int
    total_output_tokens: int
    total_cost: float | None = None


class UsageTotals(Struct, frozen=True):
    """Usage by model, with the sums that the reference offers."""

    model_usage_summaries: dict[str, ModelUsage]

    @property
    def total_cost(self) -> float | None:
        costs = [m.total_cost for m in self.model_usage_summaries.values()]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if known else None

    @property
    def total_input_tokens(self) -> int:
        return sum(m.total_input_tokens for m in self.model_usage_summaries.values())

    @property
    def total_output_tokens(self) -> int:
        return sum(m.total_output_tokens for m in self.model_usage_summaries.values())

    def to_dict(self) -> dict[str, Any]:
        models = {
            name: {
                key: value
                for key in usage.__struct_fields__
                if (value := getattr(usage, key)) is not None
            }
            for name, usage in self.model_usage_summaries.items()
        }
        cost = {} if self.total_cost is None else {"total_cost": self.total_cost}
        return {"model_usage_summaries": models, **cost}


class Completion(Struct, frozen=True, kw_only=True):
    """What `completion()` returns: the fields of the reference, and our own result as `result`."""

    response: str
    root_model: str
    prompt: Any
    usage_summary: UsageTotals
    execution_time: float
    metadata: dict[str, Any] | None = None
    error: str | None = None
    result: RunResult

    @classmethod
    def of(
        cls, result: RunResult, prompt: Any, model: str, metadata: dict[str, Any] | None
    ) -> "Completion":
        return cls(
            response="" if result.answer is None else str(result.answer),
            root_model=model.partition("/")[2] or model,
            prompt=prompt,
            usage_summary=UsageTotals({n: _usage(u) for n, u in result.usage.by_model.items()}),
            execution_time=result.seconds,
            metadata=metadata,
            error=result.detail if result.stop_reason == "error" else None,
            result=result,
        )

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "root_model": self.root_model,
            "prompt": self.prompt,
            "response": self.response,
            "usage_summary": self.usage_summary.to_dict(),
            "execution_time": self.execution_time,
        }
        more = {"metadata": self.metadata, "error": self.error}
        return {**fields, **{name: value for name, value in more.items() if value is not None}}


def _usage(usage: Usage) -> ModelUsage:
    return ModelUsage(usage.requests, usage.input_tokens, usage.output_tokens, usage.cost_usd)


def raise_if_ended_early(result: RunResult, limits: Limits) -> None:
    """Raise the reference's named error for money, time, tokens, errors and cancellation.

    A run that used up its steps returns its best answer, there and here.
    """
    partial = None if result.answer is None else str(result.answer)
    message = result.detail
    used = result.usage.total
    if result.stop_reason == "cancelled":
        raise CancellationError(message, partial_answer=partial)
    if result.limit == "cost_usd":
        raise BudgetExceededError(
            message, partial_answer=partial, spent=used.cost_usd, budget=limits.max_cost_usd
        )
    if result.limit == "seconds":
        raise TimeoutExceededError(
            message, partial_answer=partial, elapsed=result.seconds, timeout=limits.max_seconds
        )
    if result.limit in {"tokens", "calls"}:
        raise TokenLimitExceededError(
            message,
            partial_answer=partial,
            tokens_used=used.total_tokens,
            token_limit=limits.max_tokens,
        )
    if result.stop_reason == "error" and (result.limit == "errors" or partial is None):
        raise ErrorThresholdExceededError(
            message,
            partial_answer=partial,
            error_count=limits.max_errors,
            threshold=limits.max_errors,
            last_error=message,
        )
