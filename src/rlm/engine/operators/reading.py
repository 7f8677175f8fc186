"""Read what models reply to the prompts of operators.

Replies are untrusted and drift from the form that was asked for: `1) A`, `**1**: A`, `1 - label`,
fences, tables, prose around them. A result is read only if it is unambiguous; whatever is
missing is asked for again.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from rlm._util.untrusted import JsonBounds, read_json

__all__ = [
    "Codes",
    "Label",
    "codes_for",
    "json_in",
    "label_in",
    "labels_in",
    "lines_in",
    "numbers_in",
    "order_in",
    "rating_in",
    "values_in",
    "visible",
]

Value = TypeVar("Value")

MAX_REPLY_CHARS = 1_000_000
MAX_JSON = JsonBounds(1 << 20, 20_000)

_LINE = re.compile(
    r"^[^\w\n]{0,8}(?:item |no\.? ?)?[^\w\n]{0,4}(\d{1,6})(?![\d.,]*\d)[*_`\"')\]]{0,4}"
    r"[ \t]{0,4}(?:[:=.|)\]–—-]|->|→)+[ \t]*(.*)$",
    re.IGNORECASE,
)
_THOUGHTS = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL)
_INLINE = re.compile(
    r"(?<![\w.])(\d{1,6})\s{0,3}[:=]\s{0,3}([A-Za-z]{1,3})(\??)(?=\s*(?:[,;|]\s*\d|[\n.]|$))"
)
_AROUND = " \t\r\n*_`\"'.,;:!()[]{}<>|“”‘’–—-"
_SAYS_UNSURE = re.compile(r"\?|\b(?:not sure|unsure|uncertain)\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,7}")
_LINE_CHARS = 20_000
"""How much of a line is read."""


class Label(Struct, frozen=True):
    """A label as the model gave it; `unsure` if the model said so."""

    text: str
    unsure: bool = False


class Codes(dict[str, str]):
    """Labels by code, and in `names` by any spelling; None if several labels share a name."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        super().__init__(labels)
        self.names: dict[str, str | None] = {}
        for label in labels.values():
            name = _plain(label)
            self.names[name] = None if name in self.names else label


def codes_for(labels: Sequence[str]) -> Codes:
    """Return a short code for each label; no code equals a label, which would be ambiguous."""
    taken = {_plain(label) for label in labels}
    for codes in (_letters(len(labels)), [f"L{n}" for n in range(1, len(labels) + 1)]):
        if not taken.intersection(map(str.casefold, codes)):
            return Codes(dict(zip(codes, labels, strict=True)))
    return Codes({f"CODE{n}": label for n, label in enumerate(labels, 1)})


def _letters(count: int) -> list[str]:
    """Return A to Z, then AA, AB and so on."""
    one = [chr(ord("A") + n) for n in range(26)]
    return [*one, *(first + second for first in one for second in one)][:count] if count else []


def labels_in(reply: str, count: int, codes: Codes) -> dict[int, Label]:
    """Return the labels of items 1 to `count`; those with two different labels are left out."""
    found = values_in(reply, count, lambda text: label_in(text, codes))
    if found:
        return found
    inline: dict[int, set[Label]] = {}
    for number, code, unsure in _INLINE.findall(visible(reply)):
        label = _by_code(code, codes)
        if label is not None and 1 <= int(number) <= count:
            inline.setdefault(int(number), set()).add(Label(label, bool(unsure)))
    return {number: labels.pop() for number, labels in inline.items() if len(labels) == 1}


def label_in(text: str, codes: Codes) -> Label | None:
    """Return the label that a text names by its code or by its name; None if that is not clear."""
    text = text[:_LINE_CHARS]
    unsure = _SAYS_UNSURE.search(text) is not None
    label = _named(text, codes)
    return None if label is None else Label(label, unsure)


def _named(text: str, codes: Codes) -> str | None:
    bare = _SAYS_UNSURE.sub("", text).strip(_AROUND)
    if (label := _by_name(text.strip(_AROUND), codes) or _by_name(bare, codes)) is not None:
        return label
    if (label := _by_code(bare, codes)) is not None:
        return label
    head, *rest = re.split(r"[\s(=:–—-]+", bare, maxsplit=1)
    label = _by_code(head.strip(_AROUND), codes)
    if label is None or not rest:
        return None
    # `A = label` repeats a line of our own list; prose after a code may retract it.
    same = _by_name(rest[0].strip(_AROUND), codes)
    return label if same == label else None


def _by_code(text: str, codes: Codes) -> str | None:
    return codes.get(text.upper())


def _by_name(text: str, codes: Codes) -> str | None:
    return codes.names.get(_plain(text))


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).strip(_AROUND)


def values_in(reply: str, count: int, read: Callable[[str], Value | None]) -> dict[int, Value]:
    """Return what `read` finds for the numbers 1 to `count`; contradictions are left out."""
    found: dict[int, Value] = {}
    contradicted = set[int]()
    for number, text in lines_in(reply, count):
        value = read(text)
        if value is None:
            continue
        if number in found and found[number] != value:
            contradicted.add(number)
        found.setdefault(number, value)
    if not found:
        found = _unnumbered(reply, count, read)
    return {number: value for number, value in found.items() if number not in contradicted}


def _unnumbered(reply: str, count: int, read: Callable[[str], Value | None]) -> dict[int, Value]:
    """Return the values of a reply that has one line for every item, but no numbers."""
    lines = [line for line in visible(reply).splitlines() if line.strip(_AROUND)]
    values = [read(line) for line in lines] if len(lines) == count else []
    if not values or any(value is None for value in values):
        return {}
    return {number: value for number, value in enumerate(values, 1) if value is not None}


def lines_in(reply: str, count: int, *, whole: bool = False) -> list[tuple[int, str]]:
    """Return the numbered lines of a reply; with `whole`, also the lines that continue them."""
    found: list[tuple[int, list[str]]] = []
    for line in visible(reply).splitlines():
        match = _LINE.match(line[:_LINE_CHARS])
        if match is not None and 1 <= int(match[1]) <= count:
            found.append((int(match[1]), [match[2].strip()]))
        elif whole and found and line.strip():
            found[-1][1].append(line.rstrip())
    return [(number, "\n".join(lines).strip()) for number, lines in found]


def rating_in(text: str) -> float | None:
    """Return a rating from 0 to 100; None if there is none, or more than one."""
    match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,3})?)\s{0,3}(?:/\s{0,3}100|%)?", text.strip(_AROUND))
    if match is None:
        return None
    rating = float(match[1])
    return rating if rating <= 100 and math.isfinite(rating) else None


def order_in(reply: str, count: int) -> list[int]:
    """Return the numbers 1 to `count` in the order of their first mention."""
    numbers = (int(each) for each in _NUMBER.findall(visible(reply)))
    return list(dict.fromkeys(number for number in numbers if 1 <= number <= count))


def numbers_in(text: str, most: int) -> list[int] | None:
    """Return the numbers 1 to `most` that a line lists; [] for `none`; None if it has neither."""
    if re.match(r"(?:none|no\b|-|–|nothing)", text.strip(" `*."), re.IGNORECASE):
        return []
    numbers = [int(each) for each in _NUMBER.findall(text)]
    wrong = any(not 1 <= number <= most for number in numbers)
    return None if wrong or not numbers else sorted(set(numbers))


def json_in(text: str) -> Any:
    """Return the JSON value in a text, in a fence or with prose around it; ValueError if none."""
    text = visible(text)
    for candidate in (text, *_between_brackets(text)):
        try:
            return read_json(candidate, MAX_JSON)
        except ValueError:
            continue
    raise ValueError("the reply contains no JSON")


def _between_brackets(text: str) -> list[str]:
    """Return the text from the first opening bracket to the last closing one, of each kind."""
    spans = [(text.find(a), text.rfind(b) + 1) for a, b in ("{}", "[]")]
    return [text[start:end] for start, end in sorted(spans) if 0 <= start < end]


def visible(reply: str) -> str:
    """Return a reply without thoughts and fences, cut to the longest that any prompt needs."""
    text = _THOUGHTS.sub("", reply[:MAX_REPLY_CHARS])
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("```"))
