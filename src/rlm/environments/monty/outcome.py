"""What became of a cell in monty, as the CellResult that every environment gives."""

from collections.abc import Iterable

from msgspec import structs

from rlm.environments.monty.cell import Cell
from rlm.environments.monty.questions import Questions
from rlm.environments.monty.reports import Ending, Row
from rlm.environments.monty.running import Running
from rlm.results import CellError, CellResult, Submission
from rlm.worker.capture import BoundedStream

__all__ = ["cell_result", "refused", "timed_out", "with_note"]

_MOST_REPORTED = 1_000
_LINES_SHOWN = 20


def cell_result(
    cell: Cell,
    name: str,
    ending: Ending,
    before: Iterable[Row],
    questions: Questions,
    running: Running,
    streams: tuple[BoundedStream, BoundedStream],
    seconds: float,
    max_chars: int,
) -> CellResult:
    """Everything the engine is told about one cell."""
    (stdout, stdout_chars), (stderr, stderr_chars) = (stream.take() for stream in streams)
    submission, answer_error = _submission(ending, questions, max_chars)
    known = {row.name: row for row in before}
    new = [row for row in ending.rows if row.name not in known]
    changed = [row for row in ending.rows if known.get(row.name, row)[2:] != row[2:]]
    return CellResult(
        stdout=stdout,
        stderr=stderr,
        stdout_chars=stdout_chars,
        stderr_chars=stderr_chars,
        error=_error(cell, name, ending, running) or answer_error,
        new_variables=_described(new),
        changed_variables=_described(changed),
        submission=submission,
        answer_content=ending.answer.text if ending.answer is not None else None,
        interrupted=running.was_interrupted,
        calls=questions.prompts,
        seconds=seconds,
    )


def _described(rows: list[Row]) -> dict[str, str]:
    return {
        row.name: row.type if row.size < 0 else f"{row.type}[{row.size}]"
        for row in rows[:_MOST_REPORTED]
    }


def _submission(
    ending: Ending, questions: Questions, max_chars: int
) -> tuple[Submission | None, CellError | None]:
    """What was handed in by a function, or by `answer`, which must not be too long either."""
    answer = ending.answer
    if questions.submission is not None or answer is None or not answer.is_ready:
        return questions.submission, None
    if answer.chars > max_chars:
        message = f"the answer has {answer.chars:,} characters, at most {max_chars:,} are allowed"
        return None, CellError("ValueError", message, f"ValueError: {message}\n")
    return Submission(answer.text, "answer", answer.json), None


def _error(cell: Cell, name: str, ending: Ending, running: Running) -> CellError | None:
    if ending.raised is not None:
        kind = running.failures.get(ending.raised.message)
        is_ours = kind is not None and ending.raised.type == "RuntimeError"
        return ending.raised.as_cell_error(name, cell.echo_line, kind if is_ours else None)
    if ending.crashed is None:
        return None
    lines = cell.source.split("\n")
    shown = "\n".join(f"    {line}" for line in lines[:_LINES_SHOWN])
    more = (
        f"\n    ... ({len(lines) - _LINES_SHOWN} more lines)" if len(lines) > _LINES_SHOWN else ""
    )
    kind = "KeyboardInterrupt" if running.was_interrupted else "MemoryError"
    message = "the cell was stopped" if running.was_interrupted else ending.crashed
    message += "; variables are as they were before it"
    trace = f'  File "{name}", somewhere in\n{shown}{more}\n{kind}: {message}\n'
    return CellError(kind, message, trace)


def timed_out(result: CellResult, timeout_seconds: float) -> CellResult:
    """A cell that was stopped because its time was up."""
    where = result.error.traceback if result.error is not None else ""
    message = f"cell stopped after {timeout_seconds:g} s"
    return structs.replace(result, error=CellError("TimeoutError", message, where))


def refused(lack: str, why: str) -> CellResult:
    """A cell that was not run, because monty lacks something and nothing else may run it."""
    message = f"monty lacks {lack}. {why}"
    return CellResult(
        error=CellError("NotImplementedError", message, f"NotImplementedError: {message}\n")
    )


def with_note(result: CellResult, note: str) -> CellResult:
    """The result with one line more on stderr, before everything else."""
    line = f"[monty] {note}\n"
    return structs.replace(
        result, stderr=line + result.stderr, stderr_chars=result.stderr_chars + len(line)
    )
