"""What stands around a run of a command: progress, a log, Ctrl-C, and a word on how to go on."""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from rlm.api import RLM
from rlm.cli._border import FAILED, say
from rlm.cli._complaints import Complaints
from rlm.cli._interrupts import Watch, first_interrupt_stops
from rlm.cli._output import how_to_go_on, show
from rlm.errors import RLMError, UnknownPriceError
from rlm.logger import RLMLogger
from rlm.protocols import Recorder
from rlm.records.recorders.console import ConsoleRecorder
from rlm.results import RunResult

__all__ = ["Manner", "Stage"]


class Manner(Struct, frozen=True, kw_only=True):
    """How a run shows itself, as options say."""

    as_json: bool
    log_dir: Path | None
    quiet: bool
    verbose: bool


class Stage:
    """One run on it. `journaled`: what is interrupted can be gone on with."""

    def __init__(self, manner: Manner, *, journaled: bool) -> None:
        self._manner = manner
        self._log = None if manner.log_dir is None else RLMLogger(log_dir=manner.log_dir)
        self._watch = Watch(journaled=journaled)
        self._progress = _progress(manner)
        self._complaints = Complaints()
        self._complaints.listen()

    @property
    def recorders(self) -> list[Recorder]:
        given: tuple[Any, ...] = (self._watch, self._log, self._progress)
        return [each for each in given if each is not None]

    def run(self, engine: RLM, ask: Callable[[], RunResult]) -> RunResult:
        """Ask, with everything around it. An error is told here, if one can go on after it."""
        note = None if self._progress is None else self._progress.note
        try:
            with ExitStack() as stack:
                if self._progress is not None:
                    stack.enter_context(self._progress)
                stack.enter_context(first_interrupt_stops(engine, self._watch, note))
                # What libraries and tools print is no answer.
                stack.enter_context(redirect_stdout(sys.stderr))
                result = ask()
        except UnknownPriceError:
            raise
        except RLMError as error:
            self._tell_complaints()
            if self._watch.run_id is None or not self._watch.journaled or self._manner.quiet:
                raise
            say(f"Error: {error}")
            say(how_to_go_on(self._watch.run_id))
            raise click.exceptions.Exit(FAILED) from error
        self._tell_complaints()
        return result

    def show(self, result: RunResult, model: str, *, typed: bool) -> int:
        """The answer, where its log is, and how to go on; returns the exit code."""
        manner = self._manner
        if self._log is not None and self._log.log_file_path and not manner.quiet:
            say(f"Log: {self._log.log_file_path}")
        return show(
            result,
            model,
            as_json=manner.as_json,
            typed=typed,
            quiet=manner.quiet,
            resumable=self._watch.journaled,
        )

    def leave_with(self, farewell: str) -> None:
        """What a second Ctrl-C is to say; with it, nobody is told how to resume the run."""
        self._watch.farewell = farewell
        self._watch.journaled = False

    def close(self) -> None:
        """For those who have several, one after the other."""
        self._complaints.close()

    def _tell_complaints(self) -> None:
        """A journal that is not whole is of no use to go on with."""
        if self._complaints.texts:
            self._watch.journaled = False
        for text in self._complaints.texts:
            if not self._manner.quiet:
                say(text)


def _progress(manner: Manner) -> Any:
    """A live tree in a terminal, plain lines elsewhere, nothing if nobody wants to know."""
    if manner.quiet or sys.stderr is None:
        return None
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from rlm.records.recorders.live import LiveRecorder

        return LiveRecorder(sys.stderr, verbose=manner.verbose)
    return ConsoleRecorder(sys.stderr, verbose=manner.verbose)
