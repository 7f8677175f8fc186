"""What is told of files: tables by columns and rows, folders by names, sizes and kinds."""

import io
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import PurePosixPath

from rlm.context.describe import MOST_NAMES, counted, header_of
from rlm.context.scanning import TextCount

__all__ = ["TABLES", "told_files", "told_table"]

TABLES = {".csv": (",", ";", "\t", "|"), ".tsv": ("\t",)}
MOST_KINDS = 8
MOST_ROWS = 200
FILE_NAME = re.compile(r"[\w.@+\-()\[\],'&=~ /]{1,100}")
SUFFIX = re.compile(r"\.\w{1,10}")


def told_table(suffix: str, count: TextCount) -> str:
    """The structure of a table in a file; its first row is told only if it holds just names."""
    kind = suffix[1:].upper()
    for separator in TABLES[suffix]:
        if columns := _columns(count, separator):
            rows = counted(count.rows - 1, "row")
            return f"; a {kind} table of {rows} with columns {columns}"
    return f"; a {kind} table of {counted(count.rows, 'row')}"


def _columns(count: TextCount, separator: str) -> str:
    import csv

    sample = count.sample.removeprefix("\N{BYTE ORDER MARK}")
    try:
        table = csv.reader(io.StringIO(sample, newline=""), delimiter=separator)
        header, *rows = islice(table, MOST_ROWS)
    except (csv.Error, ValueError):
        return ""
    if len(rows) > 1 and count.chars > len(count.sample):
        rows.pop()  # it may be cut
    rows = [row for row in rows if row]
    fitting = sum(len(row) == len(header) for row in rows)
    return header_of(header) if rows and fitting >= 0.9 * len(rows) else ""


def told_files(names: Sequence[str], chars: int) -> str:
    """A dict of texts by file name: how many, how large, of which kinds, and the first names."""
    kinds = Counter(_kind(name) for name in names)
    told = ", ".join(f"{number:,} {kind}" for kind, number in kinds.most_common(MOST_KINDS))
    if len(kinds) > MOST_KINDS:
        told += ", others"
    shown = [name for name in names if FILE_NAME.fullmatch(name)][:MOST_NAMES]
    text = f"a dict of {counted(len(names), 'file')}, name to text, "
    text += f"{counted(chars, 'character')} in all ({told})"
    if shown:
        more = f" and {len(names) - len(shown):,} more" if len(names) > len(shown) else ""
        text += f": {', '.join(shown)}{more}"
    return f"{text}."


def _kind(name: str) -> str:
    suffix = PurePosixPath(name).suffix.lower()
    if not suffix:
        return "without suffix"
    return suffix if SUFFIX.fullmatch(suffix) else "other"
