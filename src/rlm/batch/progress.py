"""The progress of a batch in a notebook: one output that changes, with a bar and figures."""

import time
from html import escape
from typing import Any

from rlm._util.notebook import LiveOutput, kernel_shell
from rlm._util.text import counted
from rlm.limits import Budget
from rlm.messages import PICODOLLARS

__all__ = ["NotebookBar", "notebook_bar"]

SECONDS_BETWEEN = 0.3
SHOWN_CHARS = 300


class NotebookBar:
    """Shows how many rows of all are done, their share, failures, and the cost so far."""

    def __init__(self, shell: Any, budget: Budget) -> None:
        self._output, self._budget = LiveOutput(shell), budget
        self._drawn_at = float("-inf")

    def update(self, tally: Any) -> None:
        """Redraw the bar, unless that was done a moment ago."""
        if time.monotonic() - self._drawn_at >= SECONDS_BETWEEN:
            self._drawn_at = time.monotonic()
            self._draw(tally)

    def end(self, tally: Any) -> None:
        """Draw the last state."""
        self._draw(tally)

    def _draw(self, tally: Any) -> None:
        done, total = tally.answered + tally.failed, tally.total
        text = " · ".join(self._figures(tally, done, total))
        bar = f'<progress value="{done}" max="{max(1, total)}" style="width:14em"></progress>'
        self._output.show(f"<div>{bar} <span>{escape(text)}</span></div>", text)

    def _figures(self, tally: Any, done: int, total: int) -> list[str]:
        share = 100 if not total else done * 100 // total
        used = self._budget.used
        return [
            f"{done:,} of {counted(total, 'row')} ({share} %)",
            *([f"{tally.failed:,} failed"] if tally.failed else []),
            *([f"{tally.running:,} running"] if tally.running else []),
            counted(used.tokens, "token"),
            *([f"${used.picodollars / PICODOLLARS:,.4f}"] if used.picodollars else []),
            *([f"stopped: {tally.stopped[:SHOWN_CHARS]}"] if tally.stopped else []),
        ]


def notebook_bar(budget: Budget) -> NotebookBar | None:
    """Return a bar if this program is the kernel of a notebook."""
    shell = kernel_shell()
    return None if shell is None else NotebookBar(shell, budget)
