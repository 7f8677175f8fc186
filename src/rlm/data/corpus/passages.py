"""Find the passage of a text that best shows why a query found it."""

import re
from typing import NamedTuple

__all__ = ["Passage", "best_passage", "words_of"]

MAX_WORDS = 32
_MOST_PLACES = 40
_WINDOW_CHARS = 300
_WORD = re.compile(r"\w+")
_OPERATORS = frozenset(("AND", "OR", "NOT", "IN"))


class Passage(NamedTuple):
    """Part of a text, and how many lines of the text precede it."""

    text: str
    lines_before: int


def words_of(query: str) -> list[str]:
    """Return the words of a query in lower case, each once."""
    found = (each.lower() for each in _WORD.findall(query) if each not in _OPERATORS)
    return list(dict.fromkeys(found))[:MAX_WORDS]


def best_passage(text: str, words: list[str]) -> Passage:
    """Return about 300 characters, in whole lines, with as many of the words as possible."""
    lowered = text.lower()
    if len(lowered) != len(text):  # Lowering turns a few letters into two.
        lowered = text
    places = sorted(place for word in words for place in _places(lowered, word))
    best, most = 0, 0
    for index, (start, _) in enumerate(places):
        near = {
            word for at, word in places[index : index + _MOST_PLACES] if at < start + _WINDOW_CHARS
        }
        if len(near) > most:
            best, most = start, len(near)
    return _around(text, best)


def _places(text: str, word: str) -> list[tuple[int, str]]:
    """Return the first positions where a word begins."""
    found: list[tuple[int, str]] = []
    at = text.find(word)
    while at >= 0 and len(found) < _MOST_PLACES:
        if at == 0 or not text[at - 1].isalnum():
            found.append((at, word))
        at = text.find(word, at + len(word))
    return found


def _around(text: str, place: int) -> Passage:
    start = max(
        text.rfind("\n", max(0, place - _WINDOW_CHARS), place) + 1, place - _WINDOW_CHARS // 2
    )
    start = max(0, start)
    end = min(len(text), start + _WINDOW_CHARS)
    if end < len(text):
        cut = max(text.rfind("\n", place, end), text.rfind(" ", place, end))
        end = cut if cut > place else end
    return Passage(text[start:end].strip("\n"), text.count("\n", 0, start))
