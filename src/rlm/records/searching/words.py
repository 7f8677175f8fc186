"""Words of texts and of queries, as the index compares them."""

import re

from rlm._util.text import sendable

__all__ = ["excerpt", "fts_query", "indexable"]

MAX_QUERY_CHARS = 1_000
MAX_WORDS = 20
PREFIX_CHARS = 3
"""The last word of a query also matches the beginning of a word if it is at least this long."""

AROUND_CHARS = 80
_WIDE = re.compile(
    "([\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff])"
)
"""Scripts that write without spaces: each of their characters counts as a word."""

_PART = re.compile(r'"([^"]*)"|(\S+)')
_WORD = re.compile(r"\w+")


def indexable(text: str) -> str:
    """Return a text with spaces between everything that counts as a word."""
    return text if text.isascii() else _WIDE.sub(r" \1 ", text)


def _parts(query: str) -> list[tuple[str, bool]]:
    """Return the words and quoted phrases of a query, and whether each is quoted."""
    found = []
    for match in _PART.finditer(sendable(query[:MAX_QUERY_CHARS])):
        quoted = match[1] is not None
        text = (match[1] if quoted else match[2]).replace("\0", " ").replace('"', " ")
        if _WORD.search(text.replace("_", " ")):
            found.append((text, quoted))
    return found[:MAX_WORDS]


def fts_query(query: str, *, prefix: bool = False) -> str | None:
    """Return an FTS5 query that finds texts with all words; None if there is no word.

    Everything is quoted, so nothing in it is an operator. With `prefix`, the last word may be the
    beginning of a longer one, unless it is quoted or a space follows it.
    """
    parts = _parts(query)
    if not parts:
        return None
    phrases = [f'"{indexable(text)}"' for text, _ in parts]
    last, quoted = parts[-1]
    if (
        prefix
        and not quoted
        and not query[-1:].isspace()
        and len(_WORD.findall(last)[-1]) >= PREFIX_CHARS
    ):
        phrases[-1] += "*"
    return " ".join(phrases)


def excerpt(text: str, query: str) -> str:
    """Return the text around the first word of a query that it contains as written."""
    low = text.lower()
    for part, _ in _parts(query):
        for word in (part.lower(), *(each.lower() for each in _WORD.findall(part))):
            at = low.find(word)
            if at >= 0:
                start = max(0, at - AROUND_CHARS)
                piece = text[start : at + len(word) + AROUND_CHARS]
                return f"{'…' if start else ''}{piece}"
    return text[: 2 * AROUND_CHARS]
