"""Decide what follows from a reply and its cells: continue, end, or try map/reduce.

The loop gathers facts in a `StepResult`; `decide` weighs them with the `Progress` of the run,
returns one decision, and notes in `Progress` which hints were given. Each rule is a small
function; their order in `decide` is the policy.
"""

from collections import Counter

from msgspec import Struct, field

from rlm._util.python_source import names_used
from rlm._util.text import counted
from rlm.config import Guards
from rlm.engine.cells import Actions, final_is_supported
from rlm.prompts import nudges
from rlm.results import CellResult, Submission

__all__ = [
    "Answered",
    "Continue",
    "Decision",
    "Progress",
    "StepResult",
    "TryMapReduce",
    "WrongShape",
    "decide",
    "guarded",
    "of_wrong_shape",
]

REPEATS_THAT_MEAN_STUCK = 3
MAX_ERROR_CHARS = 200
CONTEXT_NAMES = frozenset({"context", "context_0", "P", "ctx", "peek", "tail", "lenP"})


class StepResult(Struct, frozen=True):
    """A reply and what came of it. `looked_up` is the value of a final that names a variable."""

    actions: Actions
    results: tuple[CellResult, ...] = ()
    looked_up: str | None = None
    empty: bool = False


class Answered(Struct, frozen=True):
    """The run ends with this answer."""

    submission: Submission


class Continue(Struct, frozen=True):
    """The run continues; the model is shown `notes` besides the observation."""

    notes: tuple[str, ...] = ()


class TryMapReduce(Struct, frozen=True):
    """The loop can't get the answer: let map/reduce try."""

    reason: str


class WrongShape(Struct, frozen=True):
    """A typed answer had the same mistake as often as the guards allow: the run ends."""

    submission: Submission
    problem: str


Decision = Answered | Continue | TryMapReduce | WrongShape


class Progress(Struct, eq=False):
    """What a run remembers between steps for its decisions."""

    cells: int = 0
    calls: int = 0
    errors_in_a_row: int = 0
    invalid_in_a_row: int = 0
    asked_to_confirm: bool = False
    hinted: bool = False
    touched_context: bool = False
    asked_to_look: bool = False
    outputs: list[tuple[str, str]] = field(default_factory=list)
    """The code of every cell that printed something, and what it printed."""
    last_output: str = ""
    submitted: Submission | None = None
    codes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    last_error: str = ""
    same_code: int = 0
    same_error: int = 0
    mistake: str = ""
    same_mistakes: int = 0

    @property
    def printed(self) -> list[str]:
        return [output for _, output in self.outputs]

    def note(self, step_result: StepResult) -> None:
        """Count what a step did, before deciding on it."""
        for cell, result in zip(step_result.actions.cells, step_result.results, strict=False):
            self._note_cell(cell.code, result)
        acted = bool(step_result.results) or step_result.actions.final is not None
        self.invalid_in_a_row = 0 if acted else self.invalid_in_a_row + 1

    def _note_cell(self, code: str, result: CellResult) -> None:
        self.cells += 1
        self.calls += result.calls
        self.touched_context = self.touched_context or _touches_context(code)
        self.codes[code.strip()] += 1
        self.same_code = max(self.same_code, self.codes[code.strip()])
        if result.stdout.strip():
            self.last_output = result.stdout.strip()
            self.outputs.append((code, result.stdout))
        if result.answer_content:
            self.submitted = Submission(result.answer_content, "answer")
        if result.submission is not None:
            self.submitted = result.submission
        if result.error is None:
            self.errors_in_a_row = 0
        else:
            self.errors_in_a_row += 1
            error = f"{result.error.type}: {result.error.message}"
            self.errors[error] += 1
            self.last_error = error
            self.same_error = max(self.same_error, self.errors[error])

    def note_mistake(self, kind: str) -> int:
        """Return how often in a row answers had the wrong shape in this way."""
        self.same_mistakes = self.same_mistakes + 1 if kind == self.mistake else 1
        self.mistake = kind
        return self.same_mistakes

    def forget_repeats(self) -> None:
        """Start counting repetitions again."""
        self.codes.clear()
        self.errors.clear()
        self.same_code = self.same_error = 0

    def failing(self, guards: Guards, max_errors: int) -> tuple[str, str] | None:
        """Return why failures in a row end the run, and the limit they reach; else None."""
        failed, invalid = self.errors_in_a_row, self.invalid_in_a_row
        if failed >= (guards.repl_error_limit or max_errors):
            last = " ".join(self.last_error.split())[:MAX_ERROR_CHARS]
            reason = f"{counted(failed, 'cell')} failed in a row, the last with: {last}"
            return reason, "errors"
        if invalid >= guards.invalid_response_limit:
            reason = (
                f"{counted(invalid, 'reply', 'replies')} in a row had neither code nor an answer"
            )
            return reason, "invalid_responses"
        return None


def decide(
    step_result: StepResult,
    progress: Progress,
    guards: Guards,
    step: int,
    known: tuple[str, ...],
) -> Decision:
    """Return the decision on one step. `known` are the REPL variables, for a helpful message."""
    submission, objection = _submission(step_result, progress, guards, known)
    if submission is not None:
        progress.submitted = submission
        objection = objection or guarded(progress, guards, step)
        if objection is None:
            return Answered(submission)
    if objection is not None:
        return Continue((objection,))
    if not step_result.results:
        return Continue((nudges.EMPTY_REPLY if step_result.empty else nudges.NO_ACTION,))
    return _unstuck(step_result, progress, step)


def of_wrong_shape(
    submission: Submission,
    problem: str,
    kind: str,
    progress: Progress,
    guards: Guards,
) -> Decision:
    """Send an answer back; a value left in `answer` by an earlier step is not a new mistake."""
    repeated = progress.note_mistake(kind) if submission.is_new else progress.same_mistakes
    if guards.wrong_shape_limit is not None and repeated >= guards.wrong_shape_limit:
        return WrongShape(submission, problem)
    return Continue((nudges.wrong_shape(problem),))


def _submission(
    step_result: StepResult, progress: Progress, guards: Guards, known: tuple[str, ...]
) -> tuple[Submission | None, str | None]:
    """Return the answer this step submits, and the objection to it, if any."""
    of_cells = [each.submission for each in step_result.results if each.submission is not None]
    last, final = of_cells[-1] if of_cells else None, step_result.actions.final
    if final is None or (last is not None and last.is_new):
        return last, None
    if step_result.looked_up is not None:
        return Submission(step_result.looked_up, "FINAL_VAR"), None
    if final.kind == "variable":
        return None, nudges.unknown_variable(final.text, known)
    submission = Submission(final.text, "FINAL")
    if _is_premature(step_result, progress, guards, final.text):
        progress.asked_to_confirm = True
        return submission, nudges.CONFIRM_FINAL
    return submission, None


def _is_premature(step_result: StepResult, progress: Progress, guards: Guards, text: str) -> bool:
    """Whether a literal beside code may be invented; the model is asked once to confirm it."""
    if not step_result.actions.cells or progress.asked_to_confirm:
        return False
    failed = any(result.error is not None for result in step_result.results)
    if failed or not guards.confirm_final:
        return failed
    return not final_is_supported(text, "\n".join(progress.printed))


def guarded(progress: Progress, guards: Guards, step: int) -> str | None:
    """Return why an answer would be sent back at this step; None if it would not."""
    if guards.require_repl_before_final and not progress.cells:
        return nudges.need_repl()
    if guards.require_subcall_before_final and not progress.calls:
        return nudges.need_subcall()
    if step < guards.min_steps:
        return nudges.need_steps(guards.min_steps, step)
    return None


def _unstuck(step_result: StepResult, progress: Progress, step: int) -> Decision:
    """Give a hint the first time a run repeats itself; change course the second time."""
    hint = _stuck_hint(step_result, progress, step)
    if hint is None:
        return Continue()
    if progress.hinted:
        return TryMapReduce(nudges.STUCK[hint])
    progress.hinted = True
    progress.forget_repeats()
    return Continue((hint,))


def _stuck_hint(step_result: StepResult, progress: Progress, step: int) -> str | None:
    if progress.same_code >= REPEATS_THAT_MEAN_STUCK:
        return nudges.SAME_CODE
    if progress.same_error >= REPEATS_THAT_MEAN_STUCK:
        return nudges.SAME_ERROR
    if not progress.touched_context and step == REPEATS_THAT_MEAN_STUCK:
        return nudges.UNTOUCHED_CONTEXT
    return None


def _touches_context(code: str) -> bool:
    """Whether code reads the context; the text search is a fast test for most code."""
    return any(name in code for name in CONTEXT_NAMES) and not CONTEXT_NAMES.isdisjoint(
        names_used(code)
    )
