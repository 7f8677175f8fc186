"""What surrounds a run of a command: progress, a log, Ctrl-C, and how to continue."""

import logging
import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, redirect_stdout
from http import HTTPStatus
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from rlm.api import RLM
from rlm.cli._errors import CANCELLED, FAILED, say
from rlm.cli._output import how_to_go_on, show
from rlm.cli._stopping import exit_code_of, on_stop
from rlm.clients.command import kill_programs
from rlm.errors import ConfigError, ModelError, RLMError
from rlm.events import Event, RunStarted
from rlm.logger import RLMLogger
from rlm.prompts import call_chars
from rlm.protocols import Recorder
from rlm.records.recorders.console import ConsoleRecorder
from rlm.results import RunResult

__all__ = ["Complaints", "Manner", "RunDisplay"]

JOURNAL, LOGGER = "journal", "logger"
SAID_AT_ONCE = ("rlm.context", "rlm.environments.auto")
"""Loggers that warn of files that were not read, and of an unexpected environment."""
MAX_TEXTS = 20


class Complaints(logging.Handler):
    """Collect what journals and logs could not store; say at once what is known before a run.

    That is which files were not read, and which environment was chosen and why. Other log messages
    are dropped meanwhile.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        self.lost_logs: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.name in SAID_AT_ONCE:
            say(text)  # As it is: it may begin with the name of a file.
        kinds = {JOURNAL: self.texts, LOGGER: self.lost_logs}
        texts = kinds.get(Path(record.pathname).parent.name)
        if texts is not None and len(texts) < MAX_TEXTS and text not in texts:
            texts.append(text)

    def listen(self) -> None:
        """Listen in place of an earlier one, so that nothing is reported twice."""
        logger = logging.getLogger("rlm")
        for handler in [each for each in logger.handlers if isinstance(each, Complaints)]:
            logger.removeHandler(handler)
        logger.addHandler(self)

    def close(self) -> None:
        logging.getLogger("rlm").removeHandler(self)
        super().close()


SHOW_CURSOR = "\x1b[?25h"
ANOTHER_MODEL = "Ask again with a model that the server has: -m MODEL."


class Watch:
    """A recorder that knows which run has begun, and whether it is journaled."""

    def __init__(self, *, journaled: bool = False) -> None:
        self.run_id: str | None = None
        self.journaled = journaled
        self.farewell: str | None = None
        """What to print on leaving at once, if the caller wants its own text."""

    def record(self, event: Event) -> None:
        if self.run_id is None and isinstance(event, RunStarted):
            self.run_id = event.run_id


@contextmanager
def first_interrupt_stops(
    engine: RLM, watch: Watch, note: Callable[[str], None] | None
) -> Generator[None, None, None]:
    """Let the first Ctrl-C, SIGTERM or SIGHUP stop the run with its best answer.

    Before a run, it ends the command.
    """
    is_stopping = False

    def stop(number: int) -> None:
        nonlocal is_stopping
        if is_stopping:
            _quit(watch)
        is_stopping = True
        if watch.run_id is None:
            raise KeyboardInterrupt
        if note is not None:
            again = "; press Ctrl-C again to quit at once" if number == signal.SIGINT else ""
            note(f"Stopping{again}.")
        engine.stop()

    with on_stop(stop):
        yield


def _quit(watch: Watch) -> None:
    """Exit at once; workers end with this process, and programs that answer are killed."""
    kill_programs()
    if sys.stderr is not None:
        cursor = SHOW_CURSOR if sys.stderr.isatty() else ""
        more = f"\n{how_to_go_on(watch.run_id)}" if watch.journaled and watch.run_id else ""
        said = watch.farewell or f"Quit: run {watch.run_id}{more}"
        os.write(2, f"{cursor}\n{said}\n".encode())
    os._exit(exit_code_of(CANCELLED))


def _is_unknown_model(error: RLMError) -> bool:
    """Return whether a server knows no such model: a resumed run would ask for the same name."""
    return isinstance(error, ModelError) and error.status == HTTPStatus.NOT_FOUND


class Manner(Struct, frozen=True, kw_only=True):
    """How a run is shown, as the options say."""

    as_json: bool
    log_dir: Path | None
    quiet: bool
    verbose: bool
    cite: bool = False
    raw: bool = False


class RunDisplay:
    """Runs queries with progress, a log and Ctrl-C. `journaled` runs can be continued."""

    def __init__(self, manner: Manner, *, journaled: bool) -> None:
        self._manner = manner
        self._log = None if manner.log_dir is None else RLMLogger(log_dir=manner.log_dir)
        self._watch = Watch(journaled=journaled)
        self._progress = _progress(manner)
        self._call_chars = 0
        self._complaints = Complaints()
        self._complaints.listen()

    @property
    def recorders(self) -> list[Recorder]:
        given: tuple[Any, ...] = (self._watch, self._log, self._progress)
        return [each for each in given if each is not None]

    def run(self, engine: RLM, ask: Callable[[], RunResult]) -> RunResult:
        """Ask with progress, log and Ctrl-C in place; report an error, and how to continue."""
        note = None if self._progress is None else self._progress.note
        self._call_chars = call_chars(engine.runner.resources.info(engine.config.model))
        try:
            with ExitStack() as stack:
                if self._progress is not None:
                    stack.enter_context(self._progress)
                stack.enter_context(first_interrupt_stops(engine, self._watch, note))
                # What libraries and tools print is not an answer.
                stack.enter_context(redirect_stdout(sys.stderr))
                result = ask()
        except ConfigError:  # It says what to change; to resume as it is would repeat it.
            self._tell_complaints()
            raise
        except RLMError as error:
            self._tell_complaints()
            if self._watch.run_id is None or not self._watch.journaled or self._manner.quiet:
                raise
            say(f"Error: {error}")
            say(ANOTHER_MODEL if _is_unknown_model(error) else how_to_go_on(self._watch.run_id))
            raise click.exceptions.Exit(FAILED) from error
        self._tell_complaints()
        return result

    def show(self, result: RunResult, model: str, *, typed: bool) -> int:
        """Print the answer, the path of its log and how to continue; return the exit code."""
        manner = self._manner
        log = None if self._complaints.lost_logs else self._log
        if log is not None and log.log_file_path and not manner.quiet:
            say(f"Log: {log.log_file_path}")
        return show(
            result,
            model,
            as_json=manner.as_json,
            typed=typed,
            quiet=manner.quiet,
            resumable=self._watch.journaled,
            cite=manner.cite,
            raw=manner.raw,
            call_chars=self._call_chars,
        )

    def leave_with(self, farewell: str) -> None:
        """Set what a second Ctrl-C prints instead of how to resume."""
        self._watch.farewell = farewell
        self._watch.journaled = False

    def close(self) -> None:
        """Close the log after several runs."""
        self._complaints.close()

    def _tell_complaints(self) -> None:
        """Report an incomplete log, or journal, from which a run cannot continue."""
        for text in self._complaints.lost_logs:
            say(text)
        if self._complaints.texts:
            self._watch.journaled = False
        for text in self._complaints.texts:
            if not self._manner.quiet:
                say(text)


def _progress(manner: Manner) -> Any:
    """Return a live tree in a terminal, plain lines elsewhere, or nothing if quiet."""
    if manner.quiet or sys.stderr is None:
        return None
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from rlm.records.recorders.live import LiveRecorder

        return LiveRecorder(sys.stderr, verbose=manner.verbose)
    return ConsoleRecorder(sys.stderr, verbose=manner.verbose)
