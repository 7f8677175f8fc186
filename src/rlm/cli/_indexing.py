"""Run `rlm index`: update a corpus, show progress, and report what was left out."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlm._util.text import counted
from rlm.cli._errors import ANSWERED, CANCELLED, say
from rlm.cli._fetching import FetchProgress
from rlm.cli._progress_line import ProgressLine
from rlm.cli._stopping import on_stop
from rlm.data.corpus import Corpus, Fields, Indexed, update_corpus
from rlm.data.filesystem.opening import display_path
from rlm.data.places import Place

__all__ = ["IndexOptions", "run_index"]

_MEGA = 1_000_000
_SHOWN_SOURCES = 3


@dataclass(frozen=True)
class IndexOptions:
    """The options of the command."""

    text_field: str | None
    id_field: str | None
    watch: bool
    every: float
    quiet: bool


def run_index(sources: Sequence[Path | Place], out: Path, options: IndexOptions) -> int:
    """Update the corpus once, or until Ctrl-C; return the exit code."""
    fields = Fields(options.text_field, options.id_field)
    with _interrupts() as is_wanted:
        first = True
        while True:
            progress = Progress(quiet=options.quiet or not first)
            fetching = FetchProgress(quiet=options.quiet or not first, is_wanted=is_wanted)
            done = update_corpus(
                *(out, sources, fields),
                on_progress=progress.show,
                on_fetch=fetching.show,
                is_wanted=is_wanted,
            )
            fetching.end()
            progress.end()
            if first or _has_news(done):
                _summarize(done, out, options, progress.seconds)
            if not is_wanted():
                return CANCELLED
            if not options.watch:
                return ANSWERED
            if first and not options.quiet:
                say("Watching for changes; Ctrl-C stops it.")
            first, sources = False, ()
            _sleep(options.every, is_wanted)


class Progress(ProgressLine[Indexed]):
    """How far indexing has come, and how long it will take."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._reading_since: float | None = None

    def show(self, done: Indexed) -> None:
        if self._reading_since is None and done.bytes:
            self._reading_since = time.monotonic()
        super().show(done)

    def line(self, done: Indexed) -> str:
        if self._reading_since is None:
            return f"Looking through {counted(done.found_files, 'file')}"
        speed = done.bytes / max(0.001, time.monotonic() - self._reading_since)
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
    if done.gone_sources:
        number, names = len(done.gone_sources), done.gone_sources[:_SHOWN_SOURCES]
        more = f" and {number - len(names):,} more" if number > len(names) else ""
        say(
            f"{counted(number, 'source')} gone, with all their documents: "
            f"{', '.join(map(display_path, names))}{more}"
        )
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
        say(f"Stopped; finished work is kept. Continue with: rlm index -o {out}")
    else:
        say(
            f"{out} contains {counted(total, 'document')}, {size_bytes / _MEGA:,.1f} MB. "
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
    """Let the first signal finish the batch in progress; the second ends the command at once."""
    stopped = False

    def stop(_: int) -> None:
        nonlocal stopped
        if stopped:
            raise KeyboardInterrupt
        stopped = True

    with on_stop(stop):
        yield lambda: not stopped
