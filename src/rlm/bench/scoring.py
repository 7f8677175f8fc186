"""Compare answers with the right ones."""

import json
import math
import re
from collections.abc import Hashable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from datetime import date
from typing import Any

__all__ = [
    "all_names",
    "all_numbers",
    "all_pairs",
    "choice",
    "day",
    "f1",
    "final_text",
    "identifier",
    "letter",
    "normal",
    "number",
    "numbers_found",
    "one_choice",
    "one_date",
    "one_letter",
    "one_number",
]

MAX_CHARS = 5_000_000
"""Characters of an answer that are read; the largest right answer has a tenth of that."""

MAX_CHARS_OF_ONE = 200_000
"""Characters of an answer that should name one thing only."""

_FENCE = re.compile(r"\A```[\w-]*\n(.*?)\n?```\Z", re.DOTALL)
_MARK = re.compile(r"\b(?:final\s+)?answer\W{0,3}\s*(?::|=|\bis\b:?)", re.IGNORECASE)
_ANSWER_KEYS = ("answer", "final_answer", "result", "value")
_NUMBER = re.compile(r"(?<![\w.,])-?(?:\d{1,3}(?:,\d{3})+|\d{1,15})(?:\.\d{1,9})?(?![\w]|[.,]\d)")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_DATES = (
    (re.compile(r"(?<!\d)(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)"), (1, 2, 3)),
    (re.compile(rf"\b{_MONTH}\.?\s+{_DAY},?\s+(\d{{4}})\b", re.IGNORECASE), (3, 1, 2)),
    (re.compile(rf"\b{_DAY}\s+(?:of\s+)?{_MONTH}\.?,?\s+(\d{{4}})\b", re.IGNORECASE), (3, 2, 1)),
)
_LETTERS = (
    re.compile(r"\A\W*([A-Da-d])\W*\Z"),
    re.compile(r"\(([A-D])\)|\[([A-D])\]|\*\*([A-D])\*\*"),
    re.compile(r"(?:\A|(?<=\s))([A-D])[).:](?=\s|\Z)"),
    re.compile(r"\b(?:[Oo]ption|[Cc]hoice)\s+([A-D])\b"),
)
_LEADING_LETTER = re.compile(r"\A\W*(?:option |choice )?[A-D]\b[\s).:\]*-]*", re.IGNORECASE)
_PAIR = re.compile(r"[(\[]\s*[\"']?(\d{1,15})[\"']?\s*[,;]\s*[\"']?(\d{1,15})[\"']?\s*[)\]]")
_LIST_NUMBER = re.compile(r"\s*\d{1,4}[.)]\s")
_FORM = re.compile(r"[\s_\-]+")
_EDGES = " \t\n\"'`*.,;:!?()[]{}<>“”‘’"


def final_text(answer: str) -> str:
    """Return the part that counts: a JSON value, a fenced block, or what follows "Answer:"."""
    text = answer[:MAX_CHARS].strip()
    if fenced := _FENCE.match(text):
        text = fenced[1].strip()
    value = _json_of(text)
    if isinstance(value, dict):
        named = [value[key] for key in _ANSWER_KEYS if key in value]
        if named or len(value) == 1:
            value = named[0] if named else next(iter(value.values()))
            text = value if isinstance(value, str) else json.dumps(value)
    elif isinstance(value, str):
        text = value
    marks = list(_MARK.finditer(text))
    after = text[marks[-1].end() :].strip() if marks else ""
    return after or text


def normal(text: str) -> str:
    """Normalize a name for comparison: case, quotes, underscores, trailing punctuation."""
    return _FORM.sub(" ", text.casefold().strip(_EDGES)).strip(_EDGES)


def all_numbers(text: str) -> list[str]:
    """Return standalone numbers, without thousands separators."""
    return [found.replace(",", "") for found in _NUMBER.findall(text)]


def one_number(answer: str) -> float | None:
    """Return the only number that is named; a repeated one counts once."""
    found = {float(number) for number in all_numbers(final_text(answer[:MAX_CHARS_OF_ONE]))}
    return found.pop() if len(found) == 1 else None


def one_date(answer: str) -> date | None:
    """Return the only date that is named: 2023-03-07, March 7th, 2023 or 7 March 2023.

    07/03/2023 does not count, because it is ambiguous.
    """
    text, found = final_text(answer[:MAX_CHARS_OF_ONE]), set()
    for pattern, (year, month, day) in _DATES:
        for match in pattern.finditer(text):
            said = match[month]
            number = int(said) if said.isdigit() else _MONTHS.index(said[:3].lower()) + 1
            try:
                found.add(date(int(match[year]), number, int(match[day])))
            except ValueError:
                return None
    return found.pop() if len(found) == 1 else None


def one_choice(answer: str, among: Sequence[str]) -> str | None:
    """Return the only one of these names that is mentioned; "not spam" mentions nothing.

    The longest names are searched first, and matches are removed.
    """
    text, found = f" {normal(final_text(answer[:MAX_CHARS_OF_ONE]))} ", []
    for name in sorted(among, key=lambda each: (-len(each), each)):
        pattern = re.compile(rf"(?<!\bnot )(?<!\w){re.escape(normal(name))}(?!\w)")
        if pattern.search(text):
            found.append(name)
            text = pattern.sub(" ", text)
    return found[0] if len(found) == 1 else None


def one_letter(answer: str, options: Sequence[str]) -> str | None:
    """Return the only choice that is named, by its letter or by its whole text."""
    text = final_text(answer[:MAX_CHARS_OF_ONE])
    letters = {
        next(filter(None, match.groups())).upper()
        for pattern in _LETTERS
        for match in pattern.finditer(text)
    }
    said = {normal(text), normal(_LEADING_LETTER.sub("", text))}
    letters |= {
        letter for letter, each in zip("ABCD", options, strict=False) if normal(each) in said
    }
    return letters.pop() if len(letters) == 1 else None


def all_pairs(answer: str) -> set[frozenset[int]]:
    """Return unordered pairs of numbers: JSON, `(1, 2)` anywhere, or two numbers per line."""
    text = final_text(answer)
    value = _json_of(text)
    if isinstance(value, list):
        pairs = [_as_pair(each) for each in value]
        if all(pair is not None for pair in pairs):
            return {pair for pair in pairs if pair is not None}
    found = _PAIR.findall(text)
    if not found:
        lines = (re.findall(r"\d+", _LIST_NUMBER.sub("", line, 1)) for line in text.splitlines())
        found = [numbers for numbers in lines if len(numbers) == 2 and max(map(len, numbers)) <= 15]
    return {frozenset((int(one), int(two))) for one, two in found}


def all_names(answer: str, pattern: re.Pattern[str]) -> set[str]:
    """Return everything in the final text that looks like a name of this kind."""
    return set(pattern.findall(final_text(answer)))


def _as_pair(value: Any) -> frozenset[int] | None:
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list) or len(value) != 2:
        return None
    return _whole_numbers(value)


def _whole_numbers(values: Iterable[Any]) -> frozenset[int] | None:
    numbers = [str(value) for value in values if isinstance(value, int | str)]
    if len(numbers) != 2 or not all(each.isdecimal() and len(each) <= 15 for each in numbers):
        return None
    return frozenset(map(int, numbers))


def _json_of(text: str) -> Any:
    if not text or text[0] not in '{["':
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


CLOSENESS = 0.75
"""The factor per unit of error in a number's score, as in OOLONG."""


def f1(found: AbstractSet[Hashable], wanted: AbstractSet[Hashable]) -> float:
    """Return the harmonic mean of precision and recall; 1 if both sets are empty."""
    if not found and not wanted:
        return 1.0
    return 2 * len(found & wanted) / (len(found) + len(wanted))


def number(answer: str, wanted: int) -> float:
    """Score a number: 1 if right, 0.75 if off by one, 0.75² if by two; 0 without a number."""
    said = one_number(answer)
    if said is None or not math.isfinite(said):
        return 0.0
    return float(CLOSENESS ** abs(said - wanted))


def day(answer: str, wanted: str) -> float:
    """Score a date: 1 if right, however it is written."""
    return float(one_date(answer) == date.fromisoformat(wanted))


def choice(answer: str, wanted: str, among: Sequence[str]) -> float:
    """Score a choice: 1 if it names the right one of several, and no other."""
    return float(one_choice(answer, among) == wanted)


def letter(answer: str, wanted: str, options: Sequence[str]) -> float:
    """Score a multiple choice of four: 1 if right."""
    return float(one_letter(answer, options) == wanted)


def numbers_found(answer: str, wanted: Sequence[str]) -> float:
    """Return the fraction of these numbers anywhere in the answer, as RULER does."""
    said = set(all_numbers(answer[:MAX_CHARS]))
    return sum(each in said for each in wanted) / len(wanted)


def identifier(answer: str, wanted: str) -> float:
    """Score an identifier: 1 if it is the only number of its length that is named."""
    return float(_numbers_like(answer, wanted) == {wanted})


def _numbers_like(answer: str, one: str) -> set[str]:
    numbers = all_numbers(final_text(answer))
    return {each for each in numbers if len(each) == len(one)}
