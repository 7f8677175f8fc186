"""What a row comes to, as one line of JSON."""

import json
from typing import Any

from rlm.batch.rows import Place, Row
from rlm.limits import Amount
from rlm.records.journal.metering import amount_of
from rlm.results import RunResult

__all__ = ["answered", "failed", "spent"]


def answered(
    place: Place, row: Row, result: RunResult, attempts: int, lacked_budget: bool = False
) -> str:
    """The line of a row that has an answer, or the best there was when a limit was reached.

    `lacked_budget`: some of its calls were refused, because others had used up the batch's.
    """
    total = result.usage.total
    return _line(
        place,
        row,
        {
            "answer": result.answer,
            "stop_reason": result.stop_reason,
            "limit": result.limit,
            "error": result.detail if result.stop_reason == "error" else None,
            "attempts": attempts,
            "run_id": result.run_id,
            "steps": result.steps,
            "requests": total.requests,
            "tokens": total.total_tokens,
            "cost_usd": result.cost_usd,
            "seconds": round(result.seconds, 3),
            **({"lacked_budget": True} if lacked_budget else {}),
        },
    )


def failed(place: Place, row: Row | None, error: str, attempts: int) -> str:
    """The line of a row without an answer."""
    facts = {"answer": None, "stop_reason": "error", "error": error, "attempts": attempts}
    return _line(place, row, facts)


def spent(result: RunResult) -> Amount:
    """Tokens and money of a run that has ended."""
    return amount_of(result.usage.total)


def _line(place: Place, row: Row | None, facts: dict[str, Any]) -> str:
    """ASCII, and no control character at all, so that it is safe to look at."""
    named: dict[str, Any] = {"row": place.number}
    if row is not None and row.id is not None:
        named["id"] = row.id
    facts = {**named, **facts}
    if row is not None and row.meta is not None:
        facts["meta"] = row.meta
    return json.dumps(facts, default=str).replace("\x7f", "\\u007f")
