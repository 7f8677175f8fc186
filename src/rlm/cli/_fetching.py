"""Fetch files elsewhere for a command, with progress on standard error."""

from collections.abc import Callable

from rlm._util.text import counted
from rlm.cli._errors import say
from rlm.cli._progress_line import ProgressLine
from rlm.data.places import Fetched, Fetching, Place, fetch

__all__ = ["FetchProgress", "fetch_shown"]

_MEGA = 1_000_000


class FetchProgress(ProgressLine[Fetching]):
    """How far fetching has come. Ctrl-C, which indexing handles itself, ends it at once."""

    def __init__(self, *, quiet: bool, is_wanted: Callable[[], bool] = lambda: True) -> None:
        super().__init__(quiet=quiet)
        self._is_wanted = is_wanted

    def show(self, done: Fetching) -> None:
        if not self._is_wanted():
            self.end()
            raise KeyboardInterrupt
        super().show(done)

    def line(self, done: Fetching) -> str:
        if not done.found_files:
            return "Listing files"
        of_all = f" of {done.found_bytes / _MEGA:,.1f}" if done.found_bytes else ""
        return (
            f"Fetching {counted(done.found_files, 'file')}: {done.files:,} started, "
            f"{done.bytes / _MEGA:,.1f}{of_all} MB"
        )


def fetch_shown(place: Place, *, quiet: bool) -> Fetched:
    """Fetch a place, and report the outcome."""
    progress, last = FetchProgress(quiet=quiet), Fetching()

    def show(done: Fetching) -> None:
        nonlocal last
        last = done
        progress.show(done)

    try:
        fetched = fetch(place, show)
    finally:
        progress.end()
    if not quiet:
        known = f", {last.reused_files:,} of them unchanged" if last.reused_files else ""
        say(
            f"Fetched {counted(len(fetched.names), 'file')} ({last.bytes / _MEGA:,.1f} MB) from "
            f"{place.shown}{known}."
        )
    return fetched
