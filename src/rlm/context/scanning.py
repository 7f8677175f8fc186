"""Measure and describe files piece by piece, without holding them in memory."""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from rlm._util.text import counted
from rlm.context.describe import MAX_NAMES, SAMPLE_CHARS, table_of
from rlm.context.parts import FilePart, Part, TextPart
from rlm.data.filesystem.opening import Stamp, encoding_of

__all__ = [
    "HASHED_AT_ONCE_BYTES",
    "TABLES",
    "Tally",
    "TextCount",
    "describe_files",
    "describe_table",
    "scan_text",
]

HASHED_AT_ONCE_BYTES = 4 << 20
"""A larger context is hashed during the run, and only if needed."""


class Tally:
    """The size of a blob, counted as its bytes pass, and its hash while it is small."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._digest = hashlib.sha256()

    def add(self, data: bytes | memoryview) -> None:
        self.size_bytes += len(data)
        if self.size_bytes <= HASHED_AT_ONCE_BYTES:
            self._digest.update(data)

    def copy(self) -> "Tally":
        twin = Tally()
        twin.size_bytes = self.size_bytes
        twin._digest = self._digest.copy()
        return twin

    @property
    def sha256(self) -> str | None:
        """Return None for a large blob, which `StoredContext` hashes when needed."""
        return self._digest.hexdigest() if self.size_bytes <= HASHED_AT_ONCE_BYTES else None


class TextCount:
    """The facts for the description of a text, counted as its pieces pass."""

    def __init__(self) -> None:
        self.chars = 0
        self.sample = ""
        self._ends = 0
        self._last = "\n"

    def add(self, piece: str) -> None:
        if len(self.sample) < SAMPLE_CHARS:
            self.sample += piece[: SAMPLE_CHARS - len(self.sample)]
        self.chars += len(piece)
        self._last = piece[-1:] or self._last
        self._ends += piece.count("\n")

    @property
    def lines(self) -> int:
        return self._ends + (self._last != "\n")


def scan_text(
    path: Path, stamp: Stamp, head: bytes, tally: Tally, *, in_json: bool = False
) -> tuple[Part, Tally, TextCount]:
    """Read a text file once; the result continues `tally`, which stays unchanged.

    A byte order mark may be a coincidence: if it does not fit, the file is read as UTF-8.
    """
    part = TextPart(path, stamp, encoding_of(head), in_json)
    try:
        return _scanned(part, tally)
    except UnicodeDecodeError:
        return _scanned(replace(part, encoding="utf-8"), tally)


def _scanned(part: TextPart, tally: Tally) -> tuple[Part, Tally, TextCount]:
    now, count = tally.copy(), TextCount()
    for block in part.blocks(count.add):
        now.add(block)
    same = not part.in_json and now.size_bytes - tally.size_bytes == part.stamp.size
    if same and part.encoding == "utf-8":  # Nothing was escaped, so it need not be decoded again.
        return FilePart(part.path, part.stamp), now, count
    return part, now, count


TABLES = {".csv": (",", ";", "\t", "|"), ".tsv": ("\t",)}
MAX_KINDS = 8
FILE_NAME = re.compile(r"[\w.@+\-()\[\],'&=~ /]{1,100}")
SUFFIX = re.compile(r"\.\w{1,10}")


def describe_table(suffix: str, count: TextCount) -> str | None:
    """Describe a table in a file, naming its columns if the first row holds only names.

    Return None if it is not a table; only the beginning of a long table is examined.
    """
    whole = count.chars <= len(count.sample)
    table = table_of(count.sample, TABLES[suffix], whole=whole)
    if table is None:
        return None
    rows, names = table
    kind, columns = suffix[1:].upper(), f" with columns {names}" if names else ""
    if whole:
        return f"; a {kind} table of {counted(rows, 'row')}{columns}"
    return f"; begins like a {kind} table{columns}"


def describe_files(names: Sequence[str], chars: int) -> str:
    """Describe texts by file name: their number, size and kinds, and the first names."""
    kinds = Counter(_kind(name) for name in names)
    kinds_text = ", ".join(f"{number:,} {kind}" for kind, number in kinds.most_common(MAX_KINDS))
    if len(kinds) > MAX_KINDS:
        kinds_text += ", others"
    shown = [name for name in names if FILE_NAME.fullmatch(name)][:MAX_NAMES]
    text = f"a dict of {counted(len(names), 'file')}, name to text, "
    text += f"{counted(chars, 'character')} in all ({kinds_text})"
    if shown:
        more = f" and {len(names) - len(shown):,} more" if len(names) > len(shown) else ""
        text += f": {', '.join(shown)}{more}"
    return f"{text}."


def _kind(name: str) -> str:
    suffix = PurePosixPath(name).suffix.lower()
    if not suffix:
        return "without suffix"
    return suffix if SUFFIX.fullmatch(suffix) else "other"
