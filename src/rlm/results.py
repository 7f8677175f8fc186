"""What comes out: of one cell, and of a whole run."""

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct, field

from rlm.errors import NoAnswerError
from rlm.events import Event
from rlm.messages import Usage

__all__ = ["CellError", "CellResult", "RunResult", "Submission", "Told", "UsageSummary", "total_of"]

StopReason = Literal["answer", "steps", "limit", "cancelled", "error"]
AnswerSource = Literal["submitted", "variable", "asked", "last_output", "none"]


class CellError(Struct, frozen=True):
    """The exception that ended a cell; `traceback` is already cut to what helps."""

    type: str
    message: str
    traceback: str


class Submission(Struct, frozen=True):
    """A value handed in by FINAL, FINAL_VAR, SUBMIT, submit_answer or `answer["ready"]`.

    `json` is the value as JSON text if it has such a form, for typed answers.
    """

    text: str
    how: str
    json: str | None = None


class CellResult(Struct, frozen=True, kw_only=True):
    """One executed cell. Output is cut to the kept size; `*_chars` count what was written."""

    stdout: str = ""
    stderr: str = ""
    stdout_chars: int = 0
    stderr_chars: int = 0
    error: CellError | None = None
    new_variables: dict[str, str] = field(default_factory=dict)
    changed_variables: dict[str, str] = field(default_factory=dict)
    submission: Submission | None = None
    answer_content: str | None = None
    interrupted: bool = False
    calls: int = 0
    seconds: float = 0.0


class Told(Struct, frozen=True):
    """What a model was told: after a step, at the start, after a compaction.

    `outputs` is a digest of what the step's cells printed; `is_last` if no later step was told of.
    """

    text: str
    outputs: str = ""
    is_last: bool = True


def total_of(parts: Iterable[Usage]) -> Usage:
    """Their sum."""
    total = Usage()
    for part in parts:
        total += part
    return total


class UsageSummary(Struct, frozen=True):
    """Usage of a run tree: in all, by model, and by depth."""

    total: Usage = field(default_factory=Usage)
    by_model: dict[str, Usage] = field(default_factory=dict)
    by_depth: dict[int, Usage] = field(default_factory=dict)

    @classmethod
    def of(cls, usage: dict[tuple[str, int], Usage]) -> "UsageSummary":
        """The sums of a budget's ledger, whose keys are (model, depth)."""
        by_model, by_depth = dict[str, Usage](), dict[int, Usage]()
        for (model, depth), part in usage.items():
            by_model[model] = by_model.get(model, Usage()) + part
            by_depth[depth] = by_depth.get(depth, Usage()) + part
        return cls(total_of(usage.values()), by_model, by_depth)


class RunResult(Struct, frozen=True, kw_only=True):
    """The end of a run. `answer` is None only when there is no answer of any kind.

    `rejected_answer` is the last one that did not have the shape that was asked for.
    """

    answer: Any
    stop_reason: StopReason
    answer_source: AnswerSource
    run_id: str
    steps: int
    usage: UsageSummary
    cost_usd: float | None
    seconds: float
    limit: str | None = None
    detail: str = ""
    events: tuple[Event, ...] = ()
    answer_json: str | None = None
    rejected_answer: str | None = None

    def strictly(self, strict: bool) -> "RunResult":
        """The same result; if `strict`, NoAnswerError where it has no answer."""
        if strict and self.answer is None:
            why = self.detail or self.stop_reason
            raise NoAnswerError(f"the run ended without an answer: {why}", result=self)
        return self
