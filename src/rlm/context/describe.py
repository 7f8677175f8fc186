"""What a model is told about a context it can't see: its structure, never its values.

Names are told (JSON keys, column names) because code needs them; they are cut and filtered so that
no sentence of the context can pass as one.
"""

import json
import re
from collections import Counter
from typing import Any

__all__ = ["describe"]

SAMPLE_CHARS = 200_000
MOST_NAMES = 20
NAME = re.compile(r"[A-Za-z_][\w .\-/]{0,39}")


def describe(value: Any) -> str:
    """One or two lines on type, size and inner structure."""
    if isinstance(value, str):
        return _describe_text(value)
    if isinstance(value, bytes):
        return f"bytes, {_count(len(value), 'byte')}."
    if isinstance(value, list):
        return _describe_list(value)
    if isinstance(value, dict):
        return f"a dict of {_count(len(value), 'item')}{_names(value)}."
    return f"a {type(value).__name__}."


def _describe_text(text: str) -> str:
    if not text:
        return "an empty str: everything you need is in the query."
    lines = text.count("\n") + (not text.endswith("\n"))
    average = len(text) / lines
    size = f"a str of {_count(len(text), 'character')} in {_count(lines, 'line')}"
    if lines > 1:
        size += f", {average:,.0f} on average"
    return f"{size}{_format_of(text)}."


def _format_of(text: str) -> str:
    """The format that the beginning of a text shows, with its field names."""
    sample = text[:SAMPLE_CHARS]
    stripped = sample.lstrip()
    if stripped.startswith(("{", "[")):
        return _json_format(text, stripped)
    lines = sample.split("\n")[:200]
    if len(lines) > 2:
        lines.pop()  # the last line of the sample may be cut
    if columns := _columns(lines):
        return f"; looks like CSV with columns {columns}"
    if sum(line.startswith("#") for line in lines) > 1 and "\n## " in sample:
        return "; looks like Markdown"
    if stripped[:500].lower().startswith(("<!doctype html", "<html")):
        return "; looks like HTML"
    return ""


def _json_format(text: str, stripped: str) -> str:
    first_line = stripped.split("\n", 1)[0]
    row = _parsed(first_line)
    if isinstance(row, dict) and "\n{" in stripped:
        return f"; looks like JSON Lines{_names(row)}"
    whole = _parsed(text) if len(text) <= SAMPLE_CHARS else None
    if isinstance(whole, dict):
        return f"; looks like a JSON object{_names(whole)}"
    if isinstance(whole, list):
        return f"; looks like a JSON array of {_count(len(whole), 'item')}"
    return "; looks like JSON"


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _columns(lines: list[str]) -> str:
    """Column names, if the first line holds only names and later lines have as many cells."""
    for separator in (",", "\t", ";", "|"):
        names = [name.strip().strip('"') for name in lines[0].split(separator)]
        if len(names) < 2 or len(lines) < 3 or len(set(names)) < len(names):
            continue
        if not all(NAME.fullmatch(name) and len(name.split()) <= 3 for name in names):
            continue
        rows = [line for line in lines[1:] if line.strip()]
        fitting = sum(line.count(separator) >= len(names) - 1 for line in rows)
        if rows and fitting >= 0.9 * len(rows):
            return ", ".join(names[:MOST_NAMES])
    return ""


def _describe_list(items: list[Any]) -> str:
    if not items:
        return "an empty list."
    kinds = ", ".join(
        f"{count:,} {kind}"
        for kind, count in Counter(type(i).__name__ for i in items).most_common(5)
    )
    told = f"a list of {_count(len(items), 'item')} ({kinds})"
    texts = [len(item) for item in items if isinstance(item, str)]
    if texts:
        told += f"; texts of {min(texts):,} to {max(texts):,} characters, {sum(texts):,} in all"
    rows = [item for item in items[:1000] if isinstance(item, dict)]
    if rows:
        told += f"; dicts{_names({key: None for row in rows for key in row})}"
    return told + "."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _names(mapping: dict[Any, Any]) -> str:
    names = [str(key) for key in mapping if isinstance(key, str) and NAME.fullmatch(key)]
    if not names:
        return ""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return f" with keys {', '.join(names[:MOST_NAMES])}{more}"
