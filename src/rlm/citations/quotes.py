"""Find the quotes in an answer: between quotation marks, and in Markdown block quotes."""

import re
from collections.abc import Iterator

__all__ = ["MAX_QUOTE_CHARS", "MIN_QUOTE_CHARS", "quotes_in"]

MIN_QUOTE_CHARS = 20
"""Shorter texts between quotation marks are mostly names and words, not quotes."""

MAX_QUOTE_CHARS = 20_000
MAX_ANSWER_CHARS = 1_000_000
"""Quotes after this many characters of an answer are not searched for."""

_FENCED = re.compile(r"^(```|~~~).*?(?:^\1|\Z)", re.MULTILINE | re.DOTALL)
_PARAGRAPHS = re.compile(r"\n[ \t]*\n")
_QUOTED_LINE = re.compile(r"[ \t]{0,3}>[ \t]?")
_MARKED = re.compile(r"“([^“”]+)”|„([^„“”]+)[“”]|«([^«»]+)»")
_OMITTED = ("…", "...", "[…]", "[...]")
_MAX_OMITTED = 4
_MARKS = '"“”„«»'


def quotes_in(answer: str) -> list[str]:
    """Return the quotes of an answer in order, each once; code is not a quote."""
    found: dict[str, None] = {}
    prose = _FENCED.sub("\n\n", answer[:MAX_ANSWER_CHARS])
    for paragraph in _PARAGRAPHS.split(prose):
        for quote in _in_paragraph(paragraph):
            text = _trimmed(quote)
            if MIN_QUOTE_CHARS <= len(text) <= MAX_QUOTE_CHARS:
                found[text] = None
    return list(found)


def _in_paragraph(paragraph: str) -> Iterator[str]:
    block: list[str] = []
    rest: list[str] = []
    for line in paragraph.split("\n"):
        mark = _QUOTED_LINE.match(line)
        (rest if mark is None else block).append(line if mark is None else line[mark.end() :])
    if block:
        yield "\n".join(block).strip().strip(_MARKS)
    text = "\n".join(rest)
    yield from (next(filter(None, each.groups())) for each in _MARKED.finditer(text))
    # Straight marks do not show whether they open or close: in a paragraph, they alternate.
    pieces = text.split('"')
    yield from pieces[1 : len(pieces) - 1 : 2]


def _trimmed(quote: str) -> str:
    """Return a quote without white space and ellipses at its ends."""
    text = quote.strip()
    for _ in range(_MAX_OMITTED):
        for mark in _OMITTED:
            text = text.removeprefix(mark).removesuffix(mark).strip()
    return text
