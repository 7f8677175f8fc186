"""What conditions compare, made from outlines and summaries of runs."""

from collections.abc import Mapping

from rlm.records.journal.archive import RunSummary
from rlm.records.judging.judgments import Judgment
from rlm.records.judging.where import RunValues, status_words
from rlm.records.trajectories.index import RunOutline

__all__ = ["values_of_outline", "values_of_summary"]

NOTHING = Judgment()


def values_of_outline(
    run: RunOutline, judgments: Mapping[str, Judgment], scores: Mapping[str, float] | None = None
) -> RunValues:
    """Return the values of a root run; `scores` are those that no person gave."""
    judgment = judgments.get(run.run_id, NOTHING)
    score = (scores or {}).get(run.run_id) if judgment.score is None else judgment.score
    return RunValues(
        id=run.run_id,
        query=run.query,
        answer=run.answer or "",
        model=run.model,
        status=status_words(run.status, run.stop_reason, run.error),
        tag=judgment.tags,
        score=score,
        comment=tuple(each.text for each in judgment.comments),
        cost=run.cost_usd,
        tokens=run.tokens,
        steps=run.steps,
        seconds=run.seconds,
    )


def values_of_summary(run: RunSummary, judgments: Mapping[str, Judgment]) -> RunValues:
    """Return the values of a journaled run."""
    judgment = judgments.get(run.run_id, NOTHING)
    return RunValues(
        id=run.run_id,
        query=run.query,
        answer=run.answer or "",
        model=run.model,
        status=status_words(run.status, run.status),
        tag=judgment.tags,
        score=judgment.score,
        comment=tuple(each.text for each in judgment.comments),
        cost=run.cost_usd,
        tokens=run.tokens,
        steps=run.steps,
        seconds=run.seconds,
    )
