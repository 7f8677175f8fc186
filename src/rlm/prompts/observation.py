"""Render what the model sees after its cells have run."""

from collections.abc import Callable, Sequence

from rlm.limits import Limits
from rlm.prompts import nudges
from rlm.results import CellError, CellResult
from rlm.worker.lines import count_lines

__all__ = ["budget_worth_showing", "cut", "observation"]

TIMED_OUT = "cell stopped after"
"""How environments begin the message about a cell that timed out."""

MANY_LINES = 20
"""From this many lines, the model sees how many it printed: it may need to count them."""

MIN_OUTPUT_CHARS = 1_000
"""Output is not cut below this to save tokens: with less, the step would be wasted."""


def cut(text: str, limit: int, written_chars: int | None = None) -> str:
    """Return the head and tail of a text, with a line that says how much is missing."""
    total = max(len(text), written_chars or 0)
    if total <= limit:
        return text
    half = min(limit, len(text)) // 2
    head, tail = text[:half], text[len(text) - half :]
    missing = f"{total - len(head) - len(tail):,} of {total:,} characters cut"
    lines = count_lines(text) if len(text) == total else 0
    in_all = f"; {lines:,} lines in total" if lines >= MANY_LINES else ""
    return f"{head}\n… {missing}{in_all} …\n{tail}"


def observation(
    results: Sequence[CellResult],
    *,
    output_chars: int,
    steps_left: int,
    notes: Sequence[str] = (),
    left: dict[str, float | int | None] | None = None,
    fits: Callable[[str], bool] = lambda text: True,
) -> str:
    """Render the output, errors and changes of the cells, then a line of time, calls and budget.

    Output is cut further until the whole `fits`: a long output must not end a run whose budget
    would allow another step.
    """
    status = "\n".join([*notes, _status(results, steps_left, left)])
    text = f"{_cells(results, output_chars)}\n{status}"
    while output_chars > MIN_OUTPUT_CHARS and not fits(text):
        output_chars //= 2
        text = f"{_cells(results, output_chars)}\n{status}"
    return text


def _cells(results: Sequence[CellResult], output_chars: int) -> str:
    many = len(results) > 1
    blocks = [
        (f"[block {number}]\n" if many else "") + _cell(result, output_chars)
        for number, result in enumerate(results, 1)
    ]
    return "\n".join(blocks)


def _cell(result: CellResult, output_chars: int) -> str:
    parts = []
    if result.stdout:
        parts.append(cut(result.stdout.rstrip("\n"), output_chars, result.stdout_chars))
    if result.stderr:
        parts.append(
            "[stderr]\n" + cut(result.stderr.rstrip("\n"), output_chars, result.stderr_chars)
        )
    if result.error is not None:
        parts.append("[error]\n" + _error(result.error, output_chars))
    return "\n".join(parts) if parts else cut(_state_change(result), output_chars)


def _error(error: CellError, output_chars: int) -> str:
    """Return the traceback, and the reason below it if that is not its last line."""
    text = cut(error.traceback.rstrip("\n"), output_chars)
    message = cut(error.message, output_chars)
    if message.strip() not in text:
        text = cut(f"{text}\n{error.type}: {message}", output_chars)
    ran_out = error.type == "TimeoutError" and message.startswith(TIMED_OUT)
    return f"{text}\n{nudges.TIMED_OUT}" if ran_out else text


def _state_change(result: CellResult) -> str:
    """Describe what a cell without output changed."""
    parts = []
    for word, variables in (("new", result.new_variables), ("changed", result.changed_variables)):
        if variables:
            listed = ", ".join(f"{name} = {kind}" for name, kind in list(variables.items())[:20])
            more = f" and {len(variables) - 20} more" if len(variables) > 20 else ""
            parts.append(f"{word}: {listed}{more}")
    return "\n".join(parts) or "(no output)"


def _status(
    results: Sequence[CellResult], steps_left: int, left: dict[str, float | int | None] | None
) -> str:
    written = sum(result.stdout_chars for result in results)
    calls = sum(result.calls for result in results)
    parts = [f"stdout {_short(written)} chars"]
    if calls:
        parts.append(f"{calls} call{'s' if calls != 1 else ''}")
    parts.append(f"{sum(result.seconds for result in results):.1f} s")
    for name, value in (left or {}).items():
        shown = f"${value:.4f}" if name == "cost_usd" else f"{value:,} {name}"
        parts.append(f"{shown} left")
    parts.append(f"{steps_left} step{'s' if steps_left != 1 else ''} left")
    return " | ".join(parts)


def _short(count: int) -> str:
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.1f}K" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"


def budget_worth_showing(
    left: dict[str, float | int | None], limits: Limits
) -> dict[str, float | int | None]:
    """Return the money and tokens left once half is used; before, they would only distract."""
    limit = {"tokens": limits.max_tokens, "cost_usd": limits.max_cost_usd}
    shown: dict[str, float | int | None] = {}
    for name, most in limit.items():
        rest = left[name]
        if most is not None and rest is not None and rest < most / 2:
            shown[name] = rest
    return shown
