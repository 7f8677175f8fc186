"""Write answers, tables and files."""

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from msgspec import structs, to_builtins

from rlm._util.text import counted, sendable
from rlm.citations import Citation, footnotes, warning_of
from rlm.cli._errors import ANSWERED, CANCELLED, FAILED, LIMITED, PASSAGES, say
from rlm.events import RunStarted
from rlm.records.recorders.console import harmless, one_line
from rlm.results import BY_ITSELF, RunResult

__all__ = [
    "EXIT_CODES",
    "NARROWEST",
    "as_harmless_json",
    "check_stdout",
    "how_to_go_on",
    "short_path",
    "show",
    "show_facts",
    "show_table",
    "terminal_width",
    "with_places",
]

LINE_PLACE = re.compile(r"^(\d+\. )lines? (?=\d)", re.MULTILINE)
INDENT = 13
NARROWEST = 40
PIPE_WIDTH = 1_000


def short_path(path: object) -> str:
    """Return a path as people write it: `~` for the home folder."""
    home, text = os.path.expanduser("~"), str(path)  # noqa: PTH111
    return f"~{text[len(home) :]}" if text.startswith(f"{home}{os.sep}") else text


def show_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print each fact after its name; in a terminal, long ones are wrapped below."""
    width = max(NARROWEST, terminal_width())
    for name, text in facts:
        line = f"{name:<{INDENT}}{one_line(text, limit=2_000)}"
        wrapped = textwrap.wrap(line, width, subsequent_indent=" " * INDENT, break_on_hyphens=False)
        click.echo("\n".join(wrapped) if len(line) > width else line)


def show_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, name: int, right: int
) -> None:
    """Print columns as wide as they need; a name too long for its column gets its own line.

    `name` and `right` are numbers of columns: the one with names, and the first with figures.
    """
    cells = [list(head), *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    others = sum(widths) - widths[name] + 2 * (len(widths) - 1)
    widths[name] = min(widths[name], max(NARROWEST // 2, terminal_width() - others))
    for row in cells:
        if len(row[name]) > widths[name]:
            click.echo(_line([*row[: name + 1]], widths, right))
            row = ["" if column <= name else cell for column, cell in enumerate(row)]
        click.echo(_line(row, widths, right))


def _line(row: Sequence[str], widths: Sequence[int], right: int) -> str:
    return "  ".join(
        cell.rjust(width) if column == right else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=False))
    ).rstrip()


def terminal_width() -> int:
    """Return the columns of the terminal that standard output is, or far more for a pipe."""
    if sys.stdout is None or not sys.stdout.isatty():
        return PIPE_WIDTH
    return shutil.get_terminal_size().columns


EXIT_CODES = {
    "answer": ANSWERED,
    "passages": PASSAGES,
    "error": FAILED,
    "steps": LIMITED,
    "limit": LIMITED,
    "cancelled": CANCELLED,
}
"""By stop_reason. 2, wrong usage, has no stop_reason."""

OPTIONS = {
    "max_steps": "--max-steps",
    "max_tokens": "--max-tokens",
    "max_cost_usd": "--budget-usd",
    "max_seconds": "--timeout",
}
"""By field of `Limits`: the option that sets it."""

MORE_OF = {
    "steps": "--max-steps N",
    "tokens": "--max-tokens N",
    "cost_usd": "--budget-usd USD",
    "seconds": "--timeout SECONDS",
}
"""By limit: the option of `rlm resume` that lets a run continue."""


ASK_AGAIN = {
    "errors": "with another model (-m) or --strategy {strategy}",
    "invalid_responses": "with another model (-m) or --strategy {strategy}",
    "stuck": "with another model (-m)",
    "wrong_shape": "with another model (-m) or a simpler schema",
}
"""By limit that the replies reached: how to ask again. To resume would only repeat the replies."""


def show(
    result: RunResult,
    model: str,
    *,
    as_json: bool,
    typed: bool,
    quiet: bool,
    resumable: bool = False,
    cite: bool = False,
    raw: bool = False,
    beside: Mapping[str, Any] | None = None,
    call_chars: int = 0,
) -> int:
    """Print a result and, if it is `resumable`, how to continue; return the exit code.

    `cite` adds footnotes; a `raw` answer is not rendered. `beside` are facts that come first in its
    JSON. One request to the model takes `call_chars`.
    """
    if as_json:
        click.echo(as_harmless_json({**(beside or {}), **_facts(result, model)}))
    elif typed and (result.stop_reason == "answer" or result.has_answer):
        click.echo(as_harmless_json(result.answer))
    elif result.answer is not None:
        # Passages are quotes of files, which are not written to be rendered.
        _show_answer(_told_apart(result), raw=raw or result.stop_reason == "passages")
    if cite and not as_json:
        _show_footnotes(result, quiet=quiet)
    if result.samples and not quiet:
        say(_how_they_voted(result))
    _say_why_it_ended(result, resumable=resumable)
    if not quiet and (advice := _advice(result, call_chars, resumable=resumable)):
        say(advice)
    return EXIT_CODES[result.stop_reason]


def _say_why_it_ended(result: RunResult, *, resumable: bool) -> None:
    if result.stop_reason == "error":
        say(f"Error: {result.detail or 'the run failed'}")
        if result.rejected_answer is not None:
            say(f"The last answer was: {result.rejected_answer}")
    elif result.stop_reason == "passages":
        if result.answer is None:
            say(f"No answer: {result.detail}.")
    elif result.stop_reason != "answer":
        # What was printed must not pass for an answer.
        say(_why_it_stopped(result, resumable=resumable))


def _advice(result: RunResult, call_chars: int, *, resumable: bool) -> str | None:
    """Return what to do about a run that has no answer of its own, if anything helps.

    A resumed run gets its recorded replies again. So it ends the same way, unless a limit is raised
    or the cause was outside the record: Ctrl-C, or a model that failed.
    """
    if result.stop_reason in BY_ITSELF:
        return None
    limit = result.limit
    if limit in ASK_AGAIN:
        again = ASK_AGAIN[limit].format(strategy=_strategy_without_code(result, call_chars))
        return f"The model could not complete the task: ask again {again}."
    if resumable and (limit is None or limit in MORE_OF):
        return how_to_go_on(result.run_id, MORE_OF.get(limit or result.stop_reason))
    return None


def _strategy_without_code(result: RunResult, call_chars: int) -> str:
    """Return `direct` if one request takes the context, or there is none; else `mapreduce`."""
    started = next((each for each in result.events if isinstance(each, RunStarted)), None)
    size = 0 if started is None else started.context_bytes
    return "direct" if size <= call_chars else "mapreduce"


def how_to_go_on(run_id: str, more: str | None = None) -> str:
    """Return the command that continues a run, with the options it needs."""
    return f"Continue with: rlm resume {run_id}" + (f" {more}" if more else "")


def with_places(answer: str, stop_reason: str, citations: Sequence[Citation]) -> str:
    """Return the text of an answer; passages also name their file.

    In the REPL one file is a text without a name, so the search could only count its lines.
    """
    if stop_reason == "passages" and citations and (file := citations[0].file):
        return LINE_PLACE.sub(lambda found: f"{found[1]}{file}:", answer)
    return answer


def check_stdout() -> None:
    """Refuse to pay for an answer that could be printed nowhere."""
    if sys.stdout is None:
        raise click.ClickException(
            "standard output is closed, so the answer would be lost: redirect it to a file"
        )


def _told_apart(result: RunResult) -> str:
    """Return the text of an answer; passages also say what they are."""
    answer = with_places(str(result.answer), result.stop_reason, result.citations)
    if result.stop_reason != "passages":
        return answer
    if answer.startswith("No language model"):
        return answer
    return f"{result.detail[:1].upper()}{result.detail[1:]}.\n\n{answer}"


def _show_answer(answer: str, *, raw: bool = True) -> None:
    """Print harmless text to a terminal, as Markdown if it is; elsewhere the exact bytes."""
    if sys.stdout is None or not sys.stdout.isatty():
        click.echo(_exact(answer))
        return
    text = harmless(answer)
    if not raw and os.environ.get("TERM", "dumb") != "dumb":
        from rlm.cli._markdown import rendered

        text = rendered(text, terminal_width()) or text
    click.echo(text)


def _show_footnotes(result: RunResult, *, quiet: bool) -> None:
    """Print the citations below the answer; report quotes that are not in the context."""
    if result.citations:
        _show_answer("\n" + "\n".join(footnotes(result.citations)))
    if result.unsupported_quotes:
        say(warning_of(result.unsupported_quotes))
    if quiet:
        return
    if count := result.omitted_citations:
        say(f"{counted(count, 'citation')} left out, because there were too many.")
    if not (result.citations or result.unsupported_quotes or result.answer is None):
        say("The model cited nothing.")


def _exact(text: str) -> bytes:
    """Encode an answer so that bytes of the context that were not UTF-8 come out unchanged."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return sendable(text).encode()


def _facts(result: RunResult, model: str) -> dict[str, Any]:
    return {
        "answer": result.answer,
        "stop_reason": result.stop_reason,
        "answer_source": result.answer_source,
        "model": model,
        "run_id": result.run_id,
        "steps": result.steps,
        "calls": result.calls,
        "tokens": result.usage.total.total_tokens,
        "cost_usd": result.cost_usd,
        "seconds": round(result.seconds, 3),
        "limit": result.limit,
        "detail": result.detail,
        "rejected_answer": result.rejected_answer,
        "citations": to_builtins(result.citations),
        "unsupported_quotes": result.unsupported_quotes,
        "omitted_citations": result.omitted_citations,
        "samples": [structs.asdict(each) for each in result.samples],
    }


def _how_they_voted(result: RunResult) -> str:
    votes = max(each.votes for each in result.samples)
    told = f"; {result.detail}" if result.stop_reason == "answer" and result.detail else ""
    return f"{votes} of {counted(len(result.samples), 'sample')} agree{told}."


def as_harmless_json(value: Any) -> str:
    """Return ASCII JSON with the one control character escaped that JSON leaves alone."""
    return json.dumps(value, default=str).replace("\x7f", "\\u007f")


def _why_it_stopped(result: RunResult, *, resumable: bool) -> str:
    if result.stop_reason == "cancelled":
        what = "this is a best guess" if result.has_answer else "no answer yet"
        return f"Cancelled: {what} (run {result.run_id})."
    option = MORE_OF.get(result.limit or result.stop_reason)
    # A turn of a chat can't be continued.
    purpose = "continue the run" if resumable else "allow more"
    hint = f" Raise {option.split()[0]} to {purpose}." if option else ""
    best = "this is a best guess" if result.has_answer else "there is no answer"
    if result.answer_source == "last_output":
        best = "there is no answer, only what the last cell printed"
    return f"Stopped early: {_with_options(result.detail).rstrip('.')}; {best}.{hint}"


def _with_options(detail: str) -> str:
    """Return why a run stopped, with the names of options in place of those of `Limits`."""
    for limit, option in OPTIONS.items():
        detail = detail.replace(f"({limit})", f"({option})")
    return detail
