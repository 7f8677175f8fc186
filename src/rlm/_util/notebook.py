"""Outputs of notebook cells that change in place. IPython is used where it runs, never imported.

A run shows its progress in one output, and ends as a card there. If the cell's value is the result
of that run, the result shows its own card below, and the first one is removed.
"""

import os
import sys
import threading
from collections import OrderedDict
from typing import Any

__all__ = ["LiveOutput", "kernel_shell", "make_room"]

REMEMBERED = 64
"""For how many finished runs the output may still be removed."""

_lock = threading.Lock()
_ended: "OrderedDict[str, LiveOutput]" = OrderedDict()


def kernel_shell() -> Any:
    """Return the shell of the Jupyter kernel that this program runs in; None if there is none."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell if hasattr(shell, "kernel") else None


class LiveOutput:
    """One output of the running cell, replaced whenever it changes.

    A kernel takes messages from any thread; the caller's context variables say which cell they
    belong to.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._name = f"rlm-{os.urandom(16).hex()}"
        self._cell = shell.execution_count
        self._shown = ""

    def show(self, html: str, text: str) -> None:
        """Show this in place of what is shown, unless it is the same."""
        if html == self._shown:
            return
        self._shell.display_pub.publish(
            data={"text/html": html, "text/plain": text},
            metadata={},
            transient={"display_id": self._name},
            update=bool(self._shown),
        )
        self._shown = html

    def end(self, html: str, text: str, run_id: str) -> None:
        """Show the final state of a run; it is removed if the same cell shows the result itself."""
        self.show(html, text)
        with _lock:
            _ended[run_id] = self
            while len(_ended) > REMEMBERED:
                _ended.popitem(last=False)

    def clear(self) -> None:
        """Show nothing, unless a later cell is running."""
        if self._shell.execution_count == self._cell:
            self.show("<div></div>", "")


def make_room(run_id: str) -> None:
    """Clear the output of a run whose result the same cell is about to show."""
    with _lock:
        output = _ended.pop(run_id, None)
    if output is not None:
        output.clear()
