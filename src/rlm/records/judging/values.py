"""What conditions compare, read from outlines and summaries of runs when it is needed."""

from collections.abc import Mapping

from rlm.records.journal.archive import RunSummary
from rlm.records.judging.judgments import Judgment
from rlm.records.judging.where import Values, status_words
from rlm.records.trajectories.index import RunOutline

__all__ = ["values_of_outline", "values_of_summary"]

NOTHING = Judgment()


def values_of_outline(
    run: RunOutline, judgments: Mapping[str, Judgment], scores: Mapping[str, float] | None = None
) -> Values:
    """Return the values of a root run; `scores` are scores that no person gave."""
    judgment = judgments.get(run.run_id, NOTHING)
    score = (scores or {}).get(run.run_id) if judgment.score is None else judgment.score
    return _Of(run, judgment, score)


def values_of_summary(run: RunSummary, judgments: Mapping[str, Judgment]) -> Values:
    """Return the values of a journaled run."""
    judgment = judgments.get(run.run_id, NOTHING)
    return _Of(run, judgment, judgment.score)


class _Of:
    """The values of one run. Most conditions use one or two of them, for thousands of runs."""

    __slots__ = ("_judgment", "_run", "score")

    def __init__(
        self, run: RunOutline | RunSummary, judgment: Judgment, score: float | None
    ) -> None:
        self._run = run
        self._judgment = judgment
        self.score = score

    @property
    def id(self) -> str:
        return self._run.run_id

    @property
    def query(self) -> str:
        return self._run.query

    @property
    def answer(self) -> str:
        return self._run.answer or ""

    @property
    def model(self) -> str:
        return self._run.model

    @property
    def status(self) -> frozenset[str]:
        if isinstance(self._run, RunOutline):
            return status_words(self._run.status, self._run.stop_reason, self._run.error)
        return status_words(self._run.status, self._run.status)

    @property
    def tag(self) -> tuple[str, ...]:
        return self._judgment.tags

    @property
    def comment(self) -> tuple[str, ...]:
        return tuple(each.text for each in self._judgment.comments)

    @property
    def cost(self) -> float | None:
        return self._run.cost_usd

    @property
    def tokens(self) -> float:
        return self._run.tokens

    @property
    def steps(self) -> float:
        return self._run.steps

    @property
    def seconds(self) -> float | None:
        return self._run.seconds
