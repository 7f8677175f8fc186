"""Ctrl-C: the first ends a run with its best answer, the second ends the program at once."""

import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rlm.api import RLM
from rlm.cli._border import CANCELLED
from rlm.cli._output import how_to_go_on
from rlm.events import Event, RunStarted

SHOW_CURSOR = "\x1b[?25h"


class Watch:
    """A recorder that knows whether a run has begun, and which; and whether it is journaled."""

    def __init__(self, *, journaled: bool = False) -> None:
        self.run_id: str | None = None
        self.journaled = journaled
        self.farewell: str | None = None
        """What to say on leaving at once, if it is something of the caller's own."""

    def record(self, event: Event) -> None:
        if self.run_id is None and isinstance(event, RunStarted):
            self.run_id = event.run_id


@contextmanager
def first_interrupt_stops(
    engine: RLM, watch: Watch, note: Callable[[str], None] | None
) -> Generator[None, None, None]:
    """Before a run has begun there is nothing to answer with: Ctrl-C then just ends the command."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:  # started in the background: Ctrl-C is not meant for us
        yield
        return

    def stop(*_: object) -> None:
        signal.signal(signal.SIGINT, lambda *_: _quit(watch))
        if watch.run_id is None:
            raise KeyboardInterrupt
        if note is not None:
            note("Stopping; press Ctrl-C again to quit at once.")
        engine.stop()

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _quit(watch: Watch) -> None:
    """Without another word from anyone: workers end with this process."""
    if sys.stderr is not None:
        cursor = SHOW_CURSOR if sys.stderr.isatty() else ""
        more = f"\n{how_to_go_on(watch.run_id)}" if watch.journaled and watch.run_id else ""
        said = watch.farewell or f"Quit: run {watch.run_id}{more}"
        os.write(2, f"{cursor}\n{said}\n".encode())
    os._exit(CANCELLED)
