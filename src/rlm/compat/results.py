"""What `completion()` returns and raises."""

from pathlib import Path
from typing import Any

from rlm.compat.attributes import ReferenceAttributes
from rlm.compat.types import Completion, ModelUsage, UsageTotals
from rlm.errors import (
    BudgetExceededError,
    CancellationError,
    ErrorThresholdExceededError,
    TimeoutExceededError,
    TokenLimitExceededError,
)
from rlm.limits import Limits
from rlm.logger.rows import trajectory
from rlm.messages import Usage, bare_name
from rlm.records.journal import how_to_continue
from rlm.results import RunResult

__all__ = ["completion_of", "raise_if_ended_early"]


def completion_of(
    rlm: ReferenceAttributes, result: RunResult, prompt: Any, *, logged: bool
) -> Completion:
    """Return a result in the reference's shape; with a logger, it has the whole trajectory."""
    return Completion(
        root_model=bare_name(rlm.config.model),
        prompt=prompt,
        response="" if result.answer is None else str(result.answer),
        usage_summary=_usage(result, bare=rlm.spelling.is_reference),
        execution_time=result.seconds,
        metadata=_metadata(rlm, result) if logged else None,
        error=result.detail if result.stop_reason == "error" else None,
        result=result,
    )


def _usage(result: RunResult, *, bare: bool) -> UsageTotals:
    """Return usage by model; the reference's names have no provider."""
    by_name: dict[str, Usage] = {}
    for model, usage in result.usage.by_model.items():
        name = bare_name(model) if bare else model
        by_name[name] = by_name.get(name, Usage()) + usage
    return UsageTotals({name: ModelUsage.of(usage) for name, usage in by_name.items()})


def _metadata(rlm: ReferenceAttributes, result: RunResult) -> dict[str, Any]:
    values = rlm.cell_values
    found = trajectory(result.events, None if values is None else values.after)
    if values is not None:
        values.forget(result.events)
    about = rlm.reference_metadata.to_dict()
    found["run_metadata"] = about if rlm.spelling.is_reference else found["run_metadata"] | about
    return found


def raise_if_ended_early(result: RunResult, limits: Limits) -> None:
    """Raise the reference's named error for money, time, tokens, errors and cancellation.

    As in the reference, a run that used up its steps returns its best answer.
    """
    partial = None if result.answer is None else str(result.answer)
    message = result.detail
    used = result.usage.total
    if result.stop_reason == "cancelled":
        error = CancellationError(partial, message)
        if result.journal_path is not None:
            error.add_note(how_to_continue(Path(result.journal_path)))
        raise error
    if result.limit == "cost_usd":
        raise BudgetExceededError(
            used.cost_usd or 0.0, limits.max_cost_usd, message, partial_answer=partial
        )
    if result.limit == "seconds":
        raise TimeoutExceededError(result.seconds, limits.max_seconds, partial, message)
    if result.limit in {"tokens", "calls"}:
        raise TokenLimitExceededError(used.total_tokens, limits.max_tokens, partial, message)
    if result.stop_reason == "error" and (result.limit == "errors" or partial is None):
        count = limits.max_errors
        raise ErrorThresholdExceededError(count, count, message, partial, message)
