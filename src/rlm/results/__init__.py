"""The results of a cell and of a whole run."""

import os
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from rlm._util.state_folder import usual_state_folder
from rlm.citations import Citation, footnotes
from rlm.errors import NoAnswerError
from rlm.events import Event
from rlm.messages import Usage, total_of
from rlm.worker import bounds
from rlm.worker.capture import cut

__all__ = [
    "BY_ITSELF",
    "CellError",
    "CellResult",
    "RunResult",
    "Sample",
    "Shown",
    "Submission",
    "UsageSummary",
    "bounded",
]

StopReason = Literal["answer", "passages", "steps", "limit", "cancelled", "error"]
BY_ITSELF: frozenset[str] = frozenset({"answer", "passages"})
"""The stop reasons of a run that has nothing left to do: it can't be continued."""

AnswerSource = Literal["submitted", "variable", "asked", "last_output", "none"]


class CellError(Struct, frozen=True):
    """The exception that ended a cell; `traceback` is cut to the useful part."""

    type: str
    message: str
    traceback: str


class Submission(Struct, frozen=True):
    """A value submitted by FINAL, FINAL_VAR, SUBMIT, submit_answer or `answer["ready"]`.

    `json` is the value as JSON text if it has such a form, for typed answers.
    """

    text: str
    how: str
    json: str | None = None

    @property
    def is_new(self) -> bool:
        """Whether this step submitted it; `answer` may keep a value of an earlier step."""
        return self.how != "kept answer"


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


_MARK_CHARS = 100
"""The longest line that says how much was cut; it must not cause another cut."""


def bounded(
    result: CellResult, kept_output_chars: int, answer_chars: int = bounds.MAX_ANSWER_CHARS
) -> CellResult:
    """Return a result cut to what the caller allows; the sandbox is not trusted to cut it.

    A result within the limits is returned unchanged. An answer that is too long is an error.
    """
    changes: dict[str, Any] = {}
    for stream in ("stdout", "stderr"):
        text, written = getattr(result, stream), getattr(result, f"{stream}_chars")
        if len(text) > kept_output_chars + _MARK_CHARS:
            changes[stream] = cut(text, kept_output_chars)
        believed = min(max(written, len(text)), bounds.MAX_REPORTED_CHARS)
        if written < 0 or written > believed:
            changes[f"{stream}_chars"] = believed
    for name in ("new_variables", "changed_variables"):
        variables = getattr(result, name)
        if variables and (few := _few(variables)) is not variables:
            changes[name] = few
    if result.error is not None and (error := _short_error(result.error)) is not result.error:
        changes["error"] = error
    if result.answer_content is not None and len(result.answer_content) > answer_chars:
        changes["answer_content"] = result.answer_content[:answer_chars]
    if result.submission is not None:
        changes |= _submitted(result.submission, answer_chars)
    return replace(result, **changes) if changes else result


def _few(variables: dict[str, str]) -> dict[str, str]:
    """Limit the number of variables and the length of their names and descriptions."""
    longest = max(map(len, variables)), max(map(len, variables.values()))
    if (
        len(variables) <= bounds.MAX_CHANGED_VARIABLES
        and longest[0] <= bounds.MAX_NAME_CHARS
        and longest[1] <= bounds.MAX_DESCRIPTION_CHARS
    ):
        return variables
    first = list(variables.items())[: bounds.MAX_CHANGED_VARIABLES]
    return {
        name: kind[: bounds.MAX_DESCRIPTION_CHARS]
        for name, kind in first
        if len(name) <= bounds.MAX_NAME_CHARS
    }


def _short_error(error: CellError) -> CellError:
    most = {
        "type": bounds.MAX_ERROR_TYPE_CHARS,
        "message": bounds.MAX_MESSAGE_CHARS,
        "traceback": bounds.MAX_TRACEBACK_CHARS,
    }
    changes = {
        name: cut(text, limit)
        for name, limit in most.items()
        if len(text := getattr(error, name)) > limit + _MARK_CHARS
    }
    return replace(error, **changes) if changes else error


def _submitted(submission: Submission, answer_chars: int) -> dict[str, Any]:
    """Return the changes for a submission that is too long: no JSON form, or an error."""
    size = len(submission.text)
    if size > answer_chars:
        text = f"the answer has {size:,} characters; at most {answer_chars:,} are allowed"
        return {"submission": None, "error": CellError("ValueError", text, f"ValueError: {text}")}
    if submission.json is not None and len(submission.json) > 2 * answer_chars:
        return {"submission": replace(submission, json=None)}
    return {}


class Shown(Struct, frozen=True):
    """A text that a model was shown: after a step, at the start, after a compaction.

    `outputs` is a digest of what the cells of the step printed; `is_last` if no later is stored.
    """

    text: str
    outputs: str = ""
    is_last: bool = True


class UsageSummary(Struct, frozen=True):
    """Usage of a run tree: in total, by model, and by depth."""

    total: Usage = field(default_factory=Usage)
    by_model: dict[str, Usage] = field(default_factory=dict)
    by_depth: dict[int, Usage] = field(default_factory=dict)

    @classmethod
    def of(cls, usage: dict[tuple[str, int], Usage]) -> "UsageSummary":
        """Add up the usage of a budget, whose keys are (model, depth)."""
        by_model, by_depth = dict[str, Usage](), dict[int, Usage]()
        for (model, depth), part in usage.items():
            by_model[model] = by_model.get(model, Usage()) + part
            by_depth[depth] = by_depth.get(depth, Usage()) + part
        return cls(total_of(usage.values()), by_model, by_depth)


class Sample(Struct, frozen=True, kw_only=True):
    """One of several runs that answered the same query.

    `votes` counts the samples with an equal answer, this one included.
    """

    answer: str | None
    run_id: str
    stop_reason: StopReason
    cost_usd: float | None
    votes: int = 0
    detail: str = ""


SHOWN_ANSWER_CHARS = 80
"""How much of the answer the `repr` of a result shows."""


class RunResult(Struct, frozen=True, kw_only=True):
    """The end of a run. `answer` is None only when there is no answer of any kind.

    `calls` counts what `max_calls` limits, in the whole tree. If `stop_reason` is "passages", no
    language model was asked, and `answer` lists what a search found. `rejected_answer` is the last
    answer that had the wrong shape. `citations` are checked passages of the context;
    `unsupported_quotes` counts quotes and citations that the context does not contain, and
    `omitted_citations` those left out because there were too many. `samples` are the runs that the
    answer was chosen from, if there were several. `journal_path` is the file of the journal, if
    there is one.
    """

    answer: Any
    stop_reason: StopReason
    answer_source: AnswerSource
    run_id: str
    steps: int
    calls: int = 0
    usage: UsageSummary
    cost_usd: float | None
    seconds: float
    limit: str | None = None
    detail: str = ""
    events: tuple[Event, ...] = ()
    answer_json: str | None = None
    rejected_answer: str | None = None
    citations: tuple[Citation, ...] = ()
    unsupported_quotes: int = 0
    omitted_citations: int = 0
    samples: tuple[Sample, ...] = ()
    journal_path: str | None = None

    @property
    def has_answer(self) -> bool:
        """Whether there is an answer: a typed one may be None."""
        return self.answer is not None or self.answer_source != "none"

    def __str__(self) -> str:
        """Return the answer, or why there is none. A best guess is marked as such."""
        if not self.has_answer:
            return f"(no answer: {self._problem()})"
        if self.stop_reason in BY_ITSELF:
            return str(self.answer)
        from rlm.results.cards import problem_of

        return f"{self.answer}\n\n({problem_of(self, self.answer)})"

    def __repr__(self) -> str:
        """Return a summary in one short line."""
        is_text = isinstance(self.answer, str)
        answer = repr(self.answer[:SHOWN_ANSWER_CHARS] if is_text else self.answer)
        answer = " ".join(answer.splitlines())
        if len(answer) > SHOWN_ANSWER_CHARS:
            answer = answer[: SHOWN_ANSWER_CHARS - 1] + "…"
        return f"<RunResult {answer}, {', '.join([self.stop_reason, *self._figures()])}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Show the card in a notebook, in place of the one shown during the run."""
        from rlm._util.notebook import make_room

        make_room(self.run_id)
        return {
            "text/plain": repr(self),
            "text/markdown": self._repr_markdown_(),
            "text/html": self._repr_html_(),
        }

    def _repr_html_(self) -> str:
        """Return a card for notebooks: answer, citations, steps, timeline and figures."""
        from rlm._util.html_card import card_html
        from rlm.results.cards import Outline, ended_card, problem_of

        card = ended_card(
            Outline(self.events),
            str(self.answer) if self.has_answer else None,
            self._figures(),
            problem=problem_of(self, self.answer),
            citations=self.citations,
            command=self._command(),
        )
        return card_html(card)

    def _repr_markdown_(self) -> str:
        """Return the answer and its citations, escaped, for programs that show no HTML."""
        from rlm._util.safe_markdown import harmless_markdown

        notes = "\n".join(f"- {line}" for line in footnotes(self.citations))
        return harmless_markdown(f"{self}\n\n{notes}" if notes else str(self))

    def _command(self) -> str:
        """Return the command that shows the run, if it is journaled; else its id."""
        if self.journal_path is None:
            return self.run_id
        import shlex

        usual = Path(self.journal_path).is_relative_to(usual_state_folder(os.environ))
        return f"rlm show {self.run_id if usual else shlex.quote(self.journal_path)}"

    def _problem(self) -> str:
        limit = f" ({self.limit})" if self.limit else ""
        return self.detail or f"{self.stop_reason}{limit}"

    def _figures(self) -> list[str]:
        from rlm.results.cards import figures

        return figures(self.steps, self.usage.total, self.seconds)

    def strictly(self, strict: bool) -> "RunResult":
        """Return this result; if `strict` and it has no answer, raise NoAnswerError."""
        if strict and (not self.has_answer or self.stop_reason == "passages"):
            why = self.detail or self.stop_reason
            raise NoAnswerError(f"the run ended without an answer: {why}", result=self)
        return self
