"""Run `rlm index`: update a corpus, show how far it is, and say what was left out."""

import signal
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from rlm._util.text import counted
from rlm.cli._errors import ANSWERED, CANCELLED, say
from rlm.data.corpus import Corpus, Fields, Indexed, update_corpus

__all__ = ["IndexOptions", "run_index"]

SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_UPDATES = 0.2
_MEGA = 1_000_000


@dataclass(frozen=True)
class IndexOptions:
    """The options of the command."""

    text_field: str | None
    id_field: str | None
    watch: bool
    every: float
    quiet: bool


def run_index(sources: Sequence[Path], out: Path, options: IndexOptions) -> int:
    """Update the corpus once, or until Ctrl-C; return the exit code."""
    fields = Fields(options.text_field, options.id_field)
    with _interrupts() as is_wanted:
        first = True
        while True:
            progress = Progress(quiet=options.quiet or not first)
            done = update_corpus(
                out, sources, fields, on_progress=progress.show, is_wanted=is_wanted
            )
            progress.end()
            if first or _has_news(done):
                _summarize(done, out, options, progress.seconds)
            if not is_wanted():
                return CANCELLED
            if not options.watch:
                return ANSWERED
            if first and not options.quiet:
                say("Watching for changes; Ctrl-C ends it.")
            first, sources = False, ()
            _sleep(options.every, is_wanted)


class Progress:
    """One line that is written over on a terminal; elsewhere a line now and then."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._began = time.monotonic()
        self._reading_since: float | None = None
        self._shown_at = self._began
        self._is_open = False

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def show(self, done: Indexed) -> None:
        now = time.monotonic()
        if self._reading_since is None and done.bytes:
            self._reading_since = now
        often = SECONDS_BETWEEN_UPDATES if self._is_terminal else SECONDS_BETWEEN_LINES
        if self._quiet or now - self._shown_at < often:
            return
        self._shown_at = now
        text = self._line(done, now)
        if self._is_terminal:
            click.echo(f"\r{text}\x1b[K", err=True, nl=False)
            self._is_open = True
        else:
            say(text)

    def end(self) -> None:
        if self._is_open:
            click.echo("\r\x1b[K", err=True, nl=False)
            self._is_open = False

    def _line(self, done: Indexed, now: float) -> str:
        if self._reading_since is None:
            return f"Looking through {counted(done.found_files, 'file')}"
        speed = done.bytes / max(0.001, now - self._reading_since)
        left = max(0, done.bytes_to_read - done.bytes) / max(1.0, speed)
        return (
            f"{counted(done.documents, 'document')}, {done.bytes / _MEGA:,.0f} of "
            f"{done.bytes_to_read / _MEGA:,.0f} MB, {speed / _MEGA:,.1f} MB/s, "
            f"{_duration(left)} left"
        )


def _summarize(done: Indexed, out: Path, options: IndexOptions, seconds: float) -> None:
    if options.quiet:
        return
    for line in done.skipped.lines():
        say(line)
    with Corpus(out) as corpus:
        total, size_bytes = len(corpus), corpus.size_bytes
    removed = (
        f", {counted(done.removed_files, 'file')} changed or gone" if done.removed_files else ""
    )
    say(
        f"{counted(done.documents, 'document')} indexed ({done.bytes / _MEGA:,.1f} MB in "
        f"{seconds:,.1f} s), {counted(done.unchanged_files, 'file')} unchanged{removed}."
    )
    if not done.finished:
        say(f"Stopped; what is done is kept. Continue with: rlm index -o {out}")
    else:
        say(
            f"{out} has {counted(total, 'document')}, {size_bytes / _MEGA:,.1f} MB. "
            f'Next: rlm ask "What is this about?" -f {out}'
        )


def _has_news(done: Indexed) -> bool:
    return bool(done.documents or done.removed_files)


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6_000 else f"{seconds / 3600:.1f} h"


def _sleep(seconds: float, is_wanted: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while is_wanted() and time.monotonic() < until:
        time.sleep(min(0.1, seconds))


@contextmanager
def _interrupts() -> Generator[Callable[[], bool], None, None]:
    """Let the first Ctrl-C finish the batch in progress; the second ends the command at once."""
    before = signal.getsignal(signal.SIGINT)
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        if stopped:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            raise KeyboardInterrupt
        stopped = True

    if before is not signal.SIG_IGN:  # started in the background, where Ctrl-C is for others
        signal.signal(signal.SIGINT, stop)
    try:
        yield lambda: not stopped
    finally:
        signal.signal(signal.SIGINT, before)
