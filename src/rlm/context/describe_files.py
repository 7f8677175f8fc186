"""What is told of files: tables by columns and rows, folders by names, sizes and kinds."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath

from rlm.context.formats import MOST_NAMES, counted, table_of
from rlm.context.scanning import TextCount

__all__ = ["TABLES", "told_files", "told_table"]

TABLES = {".csv": (",", ";", "\t", "|"), ".tsv": ("\t",)}
MOST_KINDS = 8
FILE_NAME = re.compile(r"[\w.@+\-()\[\],'&=~ /]{1,100}")
SUFFIX = re.compile(r"\.\w{1,10}")


def told_table(suffix: str, count: TextCount) -> str | None:
    """The structure of a table in a file; its first row is told only if it holds just names.

    None if it is no table; of a long one only the beginning is known.
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
