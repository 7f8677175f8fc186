"""Text from models and files as lines that a terminal shows but never obeys."""

import re

from rlm._util.text import counted
from rlm.events import DATA, CellOutput, CellStarted, DataRead, RunStarted

__all__ = [
    "CONTROL",
    "SHOWN_CHARS",
    "SHOWN_LINES",
    "cell_details",
    "data_read",
    "harmless",
    "one_line",
]

CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
SHOWN_LINES = 30
SHOWN_CHARS = 2_000
LINE_CHARS = 300
CONTEXT_CHARS = 100


def harmless(text: str) -> str:
    """Return text in which everything that a terminal could obey is made visible."""
    return CONTROL.sub(_visible, text.replace("\r\n", "\n"))


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def one_line(text: str, limit: int = LINE_CHARS) -> str:
    """Return harmless text on a single line, so that it cannot pass for our own lines."""
    shown = harmless(" ".join(text.split()))
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def context_size(event: RunStarted) -> str:
    """Return how large a context is, in units of what the user gave.

    The bytes of values and tables are those of their encoding, so their description says it.
    """
    if event.context_kind == "text" or not event.context_description:
        return f"context of {counted(event.context_bytes, 'byte')}"
    return f"context: {one_line(event.context_description.rstrip('.'), CONTEXT_CHARS)}"


def cell_details(event: CellStarted | CellOutput) -> list[str]:
    """Return a cell's code or output, cut, each line behind a mark."""
    is_code = isinstance(event, CellStarted)
    text, mark = (event.code, "> ") if isinstance(event, CellStarted) else (event.text, "| ")
    lines = harmless(text[:SHOWN_CHARS]).splitlines()
    cut = len(text) > SHOWN_CHARS or len(lines) > SHOWN_LINES
    end = [f"{mark}… ({len(text):,} characters in total)"] if cut else []
    what = "runs" if is_code else "wrote"
    head = one_line(f"cell {event.cell} of step {event.step}, run {event.run_id[-6:]}, {what}:")
    return [head, *(mark + line for line in lines[:SHOWN_LINES]), *end]


_RETURNED = {
    "sql": "row",
    "rows": "row",
    "search": "hit",
    "grep": "matching line",
    "read": "part",
    "sample": "document",
    "names": "name",
}


def data_read(event: DataRead) -> str:
    """Return what a cell read of data, in one harmless line."""
    parts = [counted(event.count, "request")]
    if event.failed:
        parts.append(f"{event.failed:,} failed")
    parts.append(counted(event.returned, _RETURNED.get(event.method, "answer")))
    if event.documents:
        parts[-1] += f" of {counted(len(event.documents), 'document')}"
    if read := sum(end - start for each in event.documents for start, end in each.ranges):
        parts.append(f"{read:,} of {event.source_bytes:,} bytes")
    if event.from_journal:
        parts.append(f"{event.from_journal:,} from the journal")
    line = f"{DATA}{event.method}: {', '.join(parts)}, {event.seconds:.2f} s"
    if event.error is not None:
        return one_line(f"{line}; failed: {event.error}")
    asked = " | ".join(one_line(each.text, 60) for each in event.requests[:3])
    return one_line(f"{line}: {asked}" if asked else line)
