"""The words of a query: their stems, and the patterns that find its quoted phrases."""

from __future__ import annotations

import functools
import re
from itertools import islice

__all__ = ["IGNORED", "WITHOUT_SPACES", "WORD", "Query", "stem"]

MAX_TERMS = 32
MAX_PHRASES = 8
PHRASE_WORDS = 12

_IGNORED = (
    "a about all also am an and any are as at be been but by can could did do does for from had "
    "has have he her him his how i if in into is it its itself may me might mine must my no not of "
    "on or our ours please shall she should so some such tell than that the their them then there "
    "these they this those to us was we were what when where which who whom whose why will with "
    "would you your"
)
IGNORED = frozenset(_IGNORED.split())
"""Words that say nothing about what a query looks for."""

WORD = re.compile(r"[^\W_]+")
WITHOUT_SPACES = "\u2e80"
"""Scripts that write words without spaces begin at this character."""

_QUOTED = re.compile(r"\"([^\"\n]{1,200})\"")
_LETTERS_AND_NUMBER = re.compile(r"\b([^\W\d_]{1,5})(\d{2,})\b")


class Query:
    """What a query looks for: `patterns` of its "quoted words", and `stems` of the others.

    The first `required` patterns find each phrase; as many after them find it as it is written.
    """

    def __init__(self, query: str) -> None:
        phrases = list(dict.fromkeys(" ".join(each.split()) for each in _QUOTED.findall(query)))
        phrases = [each.lower() for each in phrases if WORD.search(each)]
        usual = " ".join([_QUOTED.sub(" ", query), *phrases[MAX_PHRASES:]])
        phrases = list(dict.fromkeys(map(_beginning, phrases[:MAX_PHRASES])))
        self.required = len(phrases)
        self.patterns = [*map(_phrase, phrases), *map(_verbatim, phrases)]
        self.stems = _stems(usual)[:MAX_TERMS]
        self.words = WORD.findall(query.lower())
        if not self.patterns and not self.stems:
            raise ValueError("the query contains no words to search for")


@functools.lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return a word in lower case, without the most common English endings."""
    word = word.lower()
    if len(word) > 4 and word.endswith(("ies", "ied")):
        word = word[:-3] + "y"
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ation", "ment", "ing", "ion", "ed", "er", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            word = word[: -len(ending)]
            break
    else:
        for ending in ("ing", "ed"):
            if word.endswith(ending) and len(word) - len(ending) == 3:
                word = word[: -len(ending)]
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiousl":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith(("e", "y")) else word


def _stems(query: str) -> list[str]:
    """Return the distinct stems of a query; words that say nothing count if there are no others."""
    words = [word.lower() for word in WORD.findall(query)]
    telling = [word for word in words if word not in IGNORED] or words
    stems: list[str] = []
    for word in telling:
        if word >= WITHOUT_SPACES:
            stems += (word[n : n + 2] for n in range(max(1, len(word) - 1)))
        else:
            stems.append(stem(word))
    return list(dict.fromkeys(stems))


def _beginning(phrase: str) -> str:
    """Return the first words of a phrase, as they are written."""
    words = list(islice(WORD.finditer(phrase), PHRASE_WORDS + 1))
    return phrase if len(words) <= PHRASE_WORDS else phrase[: words[PHRASE_WORDS - 1].end()]


def _verbatim(phrase: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![^\W_]){re.escape(phrase)}(?![^\W_])")


def _phrase(phrase: str) -> re.Pattern[str]:
    """Return a pattern that also finds `red otter` as red-otter, and `kx4821` as kx-4821."""
    parts = WORD.findall(_LETTERS_AND_NUMBER.sub(r"\1 \2", phrase))
    pattern = last = ""
    for part in parts:
        apart = last[-1:].isdigit() and part[0].isdigit()  # otherwise 12-34 would match 1234
        between = (r"[\W_]" if apart else r"[\W_]?") if last else ""
        pattern, last = pattern + between + re.escape(part), part
    before = r"(?<!\d[-_.])" if parts[0][0].isdigit() else ""  # otherwise 3.4 would match 2.3.4
    after = r"(?![-_.]\d)" if last[-1:].isdigit() else ""
    return re.compile(rf"(?<![^\W_]){before}{pattern}(?![^\W_]){after}")
