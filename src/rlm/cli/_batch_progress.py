"""How far a batch is: a bar in a terminal, else a line now and then."""

import sys
import time
from contextlib import AbstractContextManager
from typing import Any

from rlm.batch import Tally
from rlm.cli._border import say
from rlm.limits import Budget
from rlm.messages import PICODOLLARS

__all__ = ["progress_of"]

SECONDS_BETWEEN_LINES = 10.0


class Silent(AbstractContextManager["Silent"]):
    """Nothing is shown."""

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, tally: Tally) -> None:
        return None


class Lines(Silent):
    """For logs: a line at most every few seconds, and one at the end."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._began = time.monotonic()
        self._said_at = self._began
        self._tally = Tally()

    def __exit__(self, *_: object) -> None:
        self._show(self._words())

    def update(self, tally: Tally) -> None:
        self._tally = tally
        if time.monotonic() - self._said_at >= SECONDS_BETWEEN_LINES:
            self._said_at = time.monotonic()
            self._show(self._words())

    def _show(self, text: str) -> None:
        say(text)

    def _words(self) -> str:
        """Rows, rate, money, and when it will be over."""
        tally, seconds = self._tally, time.monotonic() - self._began
        done = tally.answered + tally.failed
        words = [f"{done:,}/{tally.total:,} rows"]
        rate = tally.done_now / seconds if seconds else 0.0
        if tally.done_now:
            words.append(f"{rate:,.1f} rows/s" if rate >= 1 else f"{rate * 60:,.1f} rows/min")
        words.append(f"{self._budget.used.tokens:,} tokens")
        if self._budget.used.picodollars:
            words.append(f"${self._budget.used.picodollars / PICODOLLARS:,.4f}")
        if tally.failed:
            words.append(f"{tally.failed:,} failed")
        if rate and done < tally.total:
            words.append(f"{duration((tally.total - done) / rate)} left")
        else:
            words.append(duration(seconds))
        return " · ".join(words)


class Bar(Lines):
    """For people: a bar with the same words, drawn in place."""

    def __init__(self, budget: Budget) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.progress_bar import ProgressBar

        super().__init__(budget)
        self._bar = ProgressBar(total=1, width=30)
        console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._live = Live(
            get_renderable=self._drawn,
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> "Bar":
        self._live.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._live.__exit__(*exception)
        super().__exit__()

    def update(self, tally: Tally) -> None:
        self._tally = tally

    def _drawn(self) -> Any:
        from rich.table import Table

        tally = self._tally
        self._bar.update(completed=tally.answered + tally.failed, total=max(1, tally.total))
        table = Table.grid(padding=(0, 1))
        table.add_row(self._bar, f"{self._words()} · {tally.running} running")
        return table


def progress_of(budget: Budget, *, quiet: bool) -> Silent:
    """What suits where stderr leads."""
    if quiet or sys.stderr is None:
        return Silent()
    return Bar(budget) if sys.stderr.isatty() else Lines(budget)


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes:02}m"
    return f"{minutes}m {rest:02}s" if minutes else f"{rest}s"
