"""What `verbose` shows of a run: the model's words, its code, what cells print and how they fail.

Every such line is made harmless and put behind a mark, so none can pass for one of ours. Colours
are added afterwards, if the stream is a terminal that has them.
"""

import io
from typing import TYPE_CHECKING, Any, TextIO, cast

from rlm.events import CellEnded, CellOutput, CellStarted, DataRead, Event, ModelReplied
from rlm.records.recorders._lines import (
    SHOWN_CHARS,
    SHOWN_LINES,
    cell_details,
    data_read,
    harmless,
    one_line,
)
from rlm.results.cards import last_line, words_of

if TYPE_CHECKING:  # rich is slow to import, and only verbose output in a terminal needs it.
    from rich.console import Console
    from rich.text import Text

__all__ = ["DETAILED", "Details"]

DETAILED = frozenset({CellEnded, CellOutput, CellStarted, DataRead, ModelReplied})
"""Events that may have details."""

FAILURE_LINES = 12
"""How much of the end of a traceback is shown: the last line says what went wrong."""

TAB = 4
"""A tab is shown as this many spaces: rich would do so only in colour."""

FAINT, FAILED, REASON = "dim", "bright_red", "bold bright_red"


class Details:
    """Makes lines of events, in colour if `stream` is a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._console = _console(stream)

    def of(self, event: Event) -> list[str]:
        """Return the lines of an event; most events have none."""
        if isinstance(event, ModelReplied):
            return self._said(event)
        if isinstance(event, CellStarted):
            lines = [f"{line[:2]}{line[2:].expandtabs(TAB)}" for line in cell_details(event)]
            return self._marked(lines, is_code=True)
        if isinstance(event, CellOutput):
            return self._marked(cell_details(event))
        if isinstance(event, DataRead):
            return [self._painted(data_read(event), FAINT)]
        return self._failed(event) if isinstance(event, CellEnded) else []

    def _said(self, event: ModelReplied) -> list[str]:
        if event.purpose != "step":
            return []
        from rlm.engine.cells import parse_reply  # Imported late: commands need no engine.

        codes = [cell.code for cell in parse_reply(event.text).cells]
        lines = harmless(words_of(event.text, codes, SHOWN_CHARS)).splitlines()
        if not lines:
            return []
        more = [f": … ({len(lines) - SHOWN_LINES:,} more lines)"] if lines[SHOWN_LINES:] else []
        head = one_line(f"the model says in step {event.step}, run {event.run_id[-6:]}:")
        return self._marked([head, *(f": {line}" for line in lines[:SHOWN_LINES]), *more])

    def _failed(self, event: CellEnded) -> list[str]:
        reason = one_line(last_line(event))
        if not reason:
            return []
        head = one_line(f"cell {event.cell} of step {event.step}, run {event.run_id[-6:]}, failed:")
        lines = harmless((event.traceback or "")[-SHOWN_CHARS:]).splitlines()[-FAILURE_LINES:]
        lines = [line.expandtabs(TAB) for line in lines]
        if not lines or reason[:40] not in lines[-1]:
            lines.append(reason)
        shown = [self._painted(f"! {line}", FAILED) for line in lines[:-1]]
        return [self._painted(head, FAINT), *shown, self._painted(f"! {lines[-1]}", REASON)]

    def _marked(self, lines: list[str], *, is_code: bool = False) -> list[str]:
        """Return lines with a faint first line and faint marks, and code in colour."""
        if self._console is None:
            return lines
        bodies = [line[2:] for line in lines[1:]]
        if is_code:
            bodies = self._highlighted(bodies)
        marks = [self._painted(line[:2], FAINT) for line in lines[1:]]
        marked = [f"{mark}{body}" for mark, body in zip(marks, bodies, strict=True)]
        return [self._painted(lines[0], FAINT), *marked]

    def _highlighted(self, lines: list[str]) -> list[str]:
        from rich.syntax import Syntax

        # The terminal's own colours suit any background it has.
        text = Syntax("", "python", theme="ansi_dark").highlight("\n".join(lines))
        found = [self._ansi(each) for each in text.split("\n", allow_blank=True)]
        return found[: len(lines)] if len(found) >= len(lines) else lines

    def _painted(self, line: str, style: str) -> str:
        if self._console is None:
            return line
        from rich.text import Text

        return self._ansi(Text(line, style))

    def _ansi(self, text: "Text") -> str:
        assert self._console is not None
        with self._console.capture() as captured:
            self._console.print(text, end="", soft_wrap=True)
        return captured.get()


def _console(stream: TextIO) -> "Console | None":
    """Return a console that makes colours for a stream; None if the stream has none."""
    try:
        if not stream.isatty():
            return None
    except (OSError, ValueError):
        return None
    from rich.console import Console

    there = Console(file=stream)
    if there.color_system is None or there.no_color:
        return None
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        color_system=cast("Any", there.color_system),
        highlight=False,
        markup=False,
        emoji=False,
    )
