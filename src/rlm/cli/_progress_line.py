"""One line of progress on standard error, for work that is not a run."""

import sys
import time
from typing import Generic, TypeVar

import click

from rlm.cli._errors import say

__all__ = ["ProgressLine"]

SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_UPDATES = 0.2

State = TypeVar("State")


class ProgressLine(Generic[State]):
    """One line, overwritten in place on a terminal; elsewhere, a line now and then."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._began = time.monotonic()
        self._shown_at = self._began
        self._is_open = False

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def line(self, done: State) -> str:
        """Return what to show."""
        raise NotImplementedError

    def show(self, done: State) -> None:
        """Show progress, unless that was done a moment ago."""
        now = time.monotonic()
        often = SECONDS_BETWEEN_UPDATES if self._is_terminal else SECONDS_BETWEEN_LINES
        if self._quiet or now - self._shown_at < often:
            return
        self._shown_at = now
        text = self.line(done)
        if self._is_terminal:
            click.echo(f"\r{text}\x1b[K", err=True, nl=False)
            self._is_open = True
        else:
            say(text)

    def end(self) -> None:
        """Remove the line."""
        if self._is_open:
            click.echo("\r\x1b[K", err=True, nl=False)
            self._is_open = False
