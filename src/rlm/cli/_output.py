"""How a result is shown: the answer on stdout, the rest on stderr."""

import json
import sys
from typing import Any

import click

from rlm.cli._border import ANSWERED, CANCELLED, FAILED, LIMITED, say
from rlm.recorders.console import harmless
from rlm.results import RunResult
from rlm.text import sendable

EXIT_CODES = {
    "answer": ANSWERED,
    "error": FAILED,
    "steps": LIMITED,
    "limit": LIMITED,
    "cancelled": CANCELLED,
}
"""By stop_reason; 2, wrong usage, has none."""

RAISED_BY = {
    "steps": "--max-steps",
    "tokens": "--max-tokens",
    "cost_usd": "--budget-usd",
    "seconds": "--timeout",
}


def show(result: RunResult, model: str, *, as_json: bool, typed: bool, quiet: bool) -> int:
    """Print a result; returns the exit code."""
    if as_json:
        click.echo(_json(_facts(result, model)))
    elif typed and (result.stop_reason == "answer" or result.answer is not None):
        click.echo(_json(result.answer))
    elif result.answer is not None:
        _show_answer(str(result.answer))
    if result.stop_reason == "error":
        say(f"Error: {result.detail or 'the run failed'}")
    elif result.stop_reason != "answer" and not quiet:
        say(_why_it_stopped(result))
    return EXIT_CODES[result.stop_reason]


def _show_answer(answer: str) -> None:
    """Harmless in a terminal; byte for byte, and a newline, when something else reads it."""
    if sys.stdout is not None and sys.stdout.isatty():
        click.echo(harmless(answer))
    else:
        click.echo(_exact(answer))


def _exact(text: str) -> bytes:
    """Bytes of the context that were not UTF-8 come out as they went in."""
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
        "tokens": result.usage.total.total_tokens,
        "cost_usd": result.cost_usd,
        "seconds": round(result.seconds, 3),
        "limit": result.limit,
    }


def _json(value: Any) -> str:
    """In ASCII, and with the one control character escaped that JSON itself leaves alone."""
    return json.dumps(value, default=str).replace("\x7f", "\\u007f")


def _why_it_stopped(result: RunResult) -> str:
    if result.stop_reason == "cancelled":
        what = "no answer yet" if result.answer is None else "this is the best answer so far"
        return f"Cancelled: {what} (run {result.run_id})."
    option = RAISED_BY.get(result.limit or result.stop_reason)
    hint = f" Raise {option} to let it go on." if option else ""
    best = "there is no answer" if result.answer is None else "this is the best answer so far"
    return f"Stopped early: {result.detail.rstrip('.')}; {best}.{hint}"
