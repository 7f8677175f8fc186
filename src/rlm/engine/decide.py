"""What follows from a reply and the cells it led to: go on, end, or change course. Pure rules.

The loop gathers facts in a `Turn`; `decide` looks at them and at the run's `Progress` and returns
one decision. Each rule is a small function; their order in `decide` is the policy.
"""

from collections import Counter

from msgspec import Struct, field

from rlm._util.python_source import names_used
from rlm.config import Guards
from rlm.engine.cells import Actions, final_is_supported
from rlm.prompts import nudges
from rlm.results import CellResult, Submission

__all__ = [
    "Again",
    "Answered",
    "ChangeCourse",
    "Decision",
    "Progress",
    "Turn",
    "WrongShape",
    "decide",
    "of_wrong_shape",
]

REPEATS_THAT_MEAN_STUCK = 3
CONTEXT_NAMES = frozenset({"context", "context_0", "P", "ctx", "peek", "tail", "lenP"})


class Turn(Struct, frozen=True):
    """One reply with everything it led to. `looked_up` is the value of a final that is a name."""

    actions: Actions
    results: tuple[CellResult, ...] = ()
    looked_up: str | None = None
    empty: bool = False


class Answered(Struct, frozen=True):
    """The run is over."""

    submission: Submission


class Again(Struct, frozen=True):
    """Go on; `notes` are told to the model besides the observation."""

    notes: tuple[str, ...] = ()


class ChangeCourse(Struct, frozen=True):
    """The model is stuck in spite of a hint: let the engine's own map/reduce try."""

    reason: str


class WrongShape(Struct, frozen=True):
    """The same mistake in a typed answer, as often as the guards allow: the run is over."""

    submission: Submission
    problem: str


Decision = Answered | Again | ChangeCourse | WrongShape


class Progress(Struct, eq=False):
    """What a run remembers between steps for its decisions."""

    cells: int = 0
    calls: int = 0
    errors_in_a_row: int = 0
    invalid_in_a_row: int = 0
    asked_to_confirm: bool = False
    hinted: bool = False
    touched_context: bool = False
    printed: list[str] = field(default_factory=list)
    last_output: str = ""
    submitted: Submission | None = None
    codes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    same_code: int = 0
    same_error: int = 0
    mistake: str = ""
    same_mistakes: int = 0

    def note(self, turn: Turn) -> None:
        """Take in what a turn did, before deciding on it."""
        for cell, result in zip(turn.actions.cells, turn.results, strict=False):
            self._note_cell(cell.code, result)
        acted = bool(turn.results) or turn.actions.final is not None
        self.invalid_in_a_row = 0 if acted else self.invalid_in_a_row + 1

    def _note_cell(self, code: str, result: CellResult) -> None:
        self.cells += 1
        self.calls += result.calls
        self.touched_context = self.touched_context or _touches_context(code)
        self.codes[code.strip()] += 1
        self.same_code = max(self.same_code, self.codes[code.strip()])
        if result.stdout.strip():
            self.last_output = result.stdout.strip()
            self.printed.append(result.stdout)
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
            self.same_error = max(self.same_error, self.errors[error])

    def note_mistake(self, problem: str) -> int:
        """Count how often in a row answers had the wrong shape in this very way."""
        self.same_mistakes = self.same_mistakes + 1 if problem == self.mistake else 1
        self.mistake = problem
        return self.same_mistakes

    def forget_repeats(self) -> None:
        """Count anew what happens again and again."""
        self.codes.clear()
        self.errors.clear()
        self.same_code = self.same_error = 0


def decide(
    turn: Turn,
    progress: Progress,
    guards: Guards,
    step: int,
    known: tuple[str, ...],
) -> Decision:
    """The decision on one turn. `known` are the user's variables, for a helpful message."""
    submission, objection = _submission(turn, progress, known)
    if submission is not None:
        progress.submitted = submission
        objection = objection or _guarded(progress, guards, step)
        if objection is None:
            return Answered(submission)
    if objection is not None:
        return Again((objection,))
    if not turn.results:
        return Again((nudges.EMPTY_REPLY if turn.empty else nudges.NO_ACTION,))
    return _unstuck(turn, progress, step)


def of_wrong_shape(
    turn: Turn, submission: Submission, problem: str, progress: Progress, guards: Guards
) -> Decision:
    """Send an answer back. One that only still lies in `answer` is no further mistake."""
    is_new = submission.how != "answer" or any(
        "answer" in names_used(cell.code) for cell in turn.actions.cells
    )
    repeated = progress.note_mistake(problem) if is_new else progress.same_mistakes
    if guards.wrong_shape_limit is not None and repeated >= guards.wrong_shape_limit:
        return WrongShape(submission, problem)
    return Again((nudges.wrong_shape(problem),))


def _submission(
    turn: Turn, progress: Progress, known: tuple[str, ...]
) -> tuple[Submission | None, str | None]:
    """The value this turn hands in, and what speaks against taking it."""
    for result in reversed(turn.results):
        if result.submission is not None:
            return result.submission, None
    final = turn.actions.final
    if final is None:
        return None, None
    if turn.looked_up is not None:
        return Submission(turn.looked_up, "FINAL_VAR"), None
    if final.kind == "variable":
        return None, nudges.unknown_variable(final.text, known)
    submission = Submission(final.text, "FINAL")
    if _is_premature(turn, progress, final.text):
        progress.asked_to_confirm = True
        return submission, nudges.CONFIRM_FINAL
    return submission, None


def _is_premature(turn: Turn, progress: Progress, text: str) -> bool:
    """A literal written together with code may be invented; ask once per run to confirm it."""
    if not turn.actions.cells or progress.asked_to_confirm:
        return False
    failed = any(result.error is not None for result in turn.results)
    return failed or not final_is_supported(text, "\n".join(progress.printed))


def _guarded(progress: Progress, guards: Guards, step: int) -> str | None:
    if guards.require_repl_before_final and not progress.cells:
        return nudges.need_repl()
    if guards.require_subcall_before_final and not progress.calls:
        return nudges.need_subcall()
    if step < guards.min_steps:
        return nudges.need_steps(guards.min_steps, step)
    return None


def _unstuck(turn: Turn, progress: Progress, step: int) -> Decision:
    """A specific hint the first time a run goes in circles; another course the second time."""
    hint = _stuck_hint(turn, progress, step)
    if hint is None:
        return Again()
    if progress.hinted:
        return ChangeCourse(hint)
    progress.hinted = True
    progress.forget_repeats()
    return Again((hint,))


def _stuck_hint(turn: Turn, progress: Progress, step: int) -> str | None:
    if progress.same_code >= REPEATS_THAT_MEAN_STUCK:
        return nudges.SAME_CODE
    if progress.same_error >= REPEATS_THAT_MEAN_STUCK:
        return nudges.SAME_ERROR
    if not progress.touched_context and step == REPEATS_THAT_MEAN_STUCK:
        return nudges.UNTOUCHED_CONTEXT
    return None


def _touches_context(code: str) -> bool:
    """Whether it reads one of the names; most code that does not has not even their letters."""
    return any(name in code for name in CONTEXT_NAMES) and not CONTEXT_NAMES.isdisjoint(
        names_used(code)
    )
