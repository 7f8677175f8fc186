"""What is told of a background run, however it stands."""

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from rlm._util.text import sendable
from rlm.results import RunResult
from rlm.server.answering import facts_of
from rlm.server.errors import ApiError
from rlm.server.replies import ErrorBody, RunObject, RunState, usage_of
from rlm.server.requests import RunRequest
from rlm.server.run_store import RunRow

__all__ = ["completed", "failed", "told_of"]

SHOWN_QUERY_CHARS = 2_000
ENDINGS: Mapping[str, RunState] = {
    "answer": "completed",
    "steps": "incomplete",
    "limit": "incomplete",
    "cancelled": "cancelled",
    "error": "failed",
}


def told_of(row: RunRow, state: RunState, **more: Any) -> RunObject:
    query = msgspec.json.decode(row.request, type=RunRequest).query if row.request else ""
    return RunObject(
        id=row.run_id,
        created_at=int(row.created),
        model=row.model,
        status=state,
        query=query[:SHOWN_QUERY_CHARS],
        **more,
    )


def completed(row: RunRow, result: RunResult) -> RunObject:
    """A run that came to an end of its own, or at a limit."""
    state, answer = ENDINGS[result.stop_reason], result.answer
    if state == "completed" and answer is None:
        state = "failed"  # there is none of the wanted type
    return told_of(
        row,
        state,
        answer=sendable(answer) if isinstance(answer, str) else answer,
        usage=usage_of(result.usage.total),
        rlm=facts_of("rlm", result),
        ended_at=int(time.time()),
    )


def failed(row: RunRow, state: RunState, error: ApiError | None) -> RunObject:
    """A run that raised, or that was cancelled before it had anything."""
    body = None
    if error is not None:
        body = ErrorBody(error.message, error.kind, error.param, error.code)
    return told_of(row, state, error=body, ended_at=int(time.time()))
