"""Texts for one line of a prompt, whoever wrote them."""

import unicodedata
from collections.abc import Mapping

__all__ = ["cut", "one_line", "with_notes"]

MOST_NOTE_CHARS = 100
MOST_NOTES_CHARS = 400


def cut(text: str, most: int) -> str:
    """The text, or its beginning and an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


def one_line(text: str, most: int) -> str:
    """A stranger's text on one line: no control characters, nothing that ends a code span."""
    some = text[: 8 * most]
    kept = (
        " " if each.isspace() or unicodedata.category(each) in {"Zl", "Zp"} else each
        for each in some
        if each.isspace() or unicodedata.category(each)[0] != "C"
    )
    return cut(" ".join("".join(kept).replace("`", "'").split()), most)


def with_notes(text: str, notes: Mapping[str, str]) -> str:
    """A description, and behind it in short what is told of each parameter."""
    told, left = [], MOST_NOTES_CHARS
    for name, note in notes.items():
        line = f"{name}: {one_line(note, MOST_NOTE_CHARS).rstrip('.')}"
        left -= len(line)
        if left < 0:
            break
        told.append(line)
    if not told:
        return text
    return f"{text} ({'; '.join(told)})" if text else f"({'; '.join(told)})"
