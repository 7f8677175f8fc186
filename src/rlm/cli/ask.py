"""`rlm ask`: one question about a file, several files, or what is piped in."""

import json
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from rlm.api import RLM
from rlm.errors import RLMError
from rlm.limits import Limits
from rlm.recorders.console import ConsoleRecorder, harmless
from rlm.registry import OFFLINE_MODEL
from rlm.results import RunResult
from rlm.text import sendable

__all__ = ["ask"]

EXIT_CODES = {"answer": 0, "error": 1, "steps": 3, "limit": 3, "cancelled": 130}
"""0: an answer. 1: an error. 2: wrong usage. 3: a limit was reached. 130: cancelled."""


@click.command()
@click.argument("query")
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A text file to ask about; may be given several times.",
)
@click.option("-m", "--model", help="provider/model; else RLM_MODEL, else the offline stand-in.")
@click.option("--sub-model", help="The model for calls made from cells.")
@click.option(
    "--strategy", type=click.Choice(["rlm", "direct", "mapreduce", "auto"]), default="rlm"
)
@click.option("--max-steps", type=int, help="Steps of the root run.")
@click.option("--max-depth", type=int, help="Levels that own a REPL; 1 means no child runs.")
@click.option("--max-tokens", type=int, help="Tokens of the whole run tree.")
@click.option("--timeout", type=float, help="Seconds for the whole run.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def ask(
    query: str,
    files: tuple[Path, ...],
    model: str | None,
    sub_model: str | None,
    strategy: Any,
    max_steps: int | None,
    max_depth: int | None,
    max_tokens: int | None,
    timeout: float | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Ask QUERY about the files given, or about what is piped in."""
    given: dict[str, Any] = {
        "max_steps": max_steps,
        "max_depth": max_depth,
        "max_tokens": max_tokens,
        "max_seconds": timeout,
    }
    try:
        limits = Limits(**{name: value for name, value in given.items() if value is not None})
        chosen = model or os.environ.get("RLM_MODEL") or _offline(quiet)
        recorders = () if quiet else (ConsoleRecorder(sys.stderr),)
        engine = RLM(
            chosen, sub_model=sub_model, strategy=strategy, limits=limits, recorders=recorders
        )
        with engine, _first_interrupt_stops(engine):
            result = engine.ask(query, _context(files))
    except KeyboardInterrupt:
        click.echo("Cancelled.", err=True)
        sys.exit(EXIT_CODES["cancelled"])
    except (RLMError, OSError) as error:
        raise click.ClickException(harmless(str(error))) from error
    _print(result, chosen, as_json)
    sys.exit(EXIT_CODES[result.stop_reason])


@contextmanager
def _first_interrupt_stops(engine: RLM) -> Generator[None, None, None]:
    """The first Ctrl-C ends the run with its best answer; the second ends the program."""

    def stop(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        click.echo("Stopping; press Ctrl-C again to quit at once.", err=True)
        engine.stop()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _offline(quiet: bool) -> str:
    if not quiet:
        click.echo(
            "No model is configured (set RLM_MODEL=provider/model or pass -m): the built-in "
            "extractive stand-in answers. It finds passages; it is not a language model.",
            err=True,
        )
    return OFFLINE_MODEL


def _context(files: tuple[Path, ...]) -> str | dict[str, Any] | None:
    """One file is a text; several are a dict by name; with none, what is piped in."""
    if len(files) == 1:
        return _text(files[0])
    if files:
        return {str(path): _text(path) for path in files}
    if sys.stdin is None or sys.stdin.isatty():
        return None
    return sys.stdin.buffer.read().decode("utf-8", "surrogateescape")


def _text(path: Path) -> str:
    """Byte for byte: what is not UTF-8 survives as surrogates."""
    return path.read_bytes().decode("utf-8", "surrogateescape")


def _print_answer(answer: str) -> None:
    """Harmless in a terminal; byte for byte when something else reads it."""
    if sys.stdout.isatty():
        click.echo(harmless(answer))
    else:
        click.echo(sendable(answer))


def _print(result: RunResult, model: str, as_json: bool) -> None:
    if not as_json:
        _print_answer(result.answer or "")
        if result.stop_reason != "answer":
            click.echo(f"Stopped early: {harmless(result.detail)}", err=True)
        return
    usage = result.usage.total
    click.echo(
        json.dumps(
            {
                "answer": result.answer,
                "stop_reason": result.stop_reason,
                "answer_source": result.answer_source,
                "model": model,
                "run_id": result.run_id,
                "steps": result.steps,
                "tokens": usage.total_tokens,
                "cost_usd": result.cost_usd,
                "seconds": round(result.seconds, 3),
                "limit": result.limit,
            }
        )
    )
