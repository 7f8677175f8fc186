"""Read prompts that ask for labels, and write replies to them, well-formed or not.

`Prompt.read` takes the prompts of `rlm.operators` (`classify` and `where`, for one item or many)
and `plain_prompt`, which a benchmark uses as its baseline.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

__all__ = ["DRIFTS", "Prompt", "Verdict", "plain_prompt", "written"]

_LABEL = re.compile(r"(\S+) = (.+)")
_PLAIN = re.compile(
    r"Label each line with one of these labels:\n((?:- .+\n)+)\n"
    r"Reply with one `number: label` per line\.\n\n"
)
_YES_NO = {"yes": "yes", "no": "no"}
_INDENT = "   "


class Verdict(Struct, frozen=True):
    """The label of one item, and whether the reply says that it is not sure."""

    label: str
    unsure: bool = False


class Prompt(Struct, frozen=True):
    """What a prompt asks: `items` by their numbers, and `codes`, from a code to its label.

    A prompt for one item has the number None: its reply is a code without a number.
    """

    items: Mapping[int | None, str]
    codes: Mapping[str, str]

    @classmethod
    def read(cls, text: str) -> "Prompt | None":
        """Read a prompt; None if it has another form."""
        if found := _PLAIN.match(text):
            labels = [line[2:] for line in found[1].splitlines()]
            items = _numbered(text[found.end() :].split("\n"), separator=": ")
            return cls(items, {label: label for label in labels})
        lines = text.split("\n")
        codes, begin = _codes(lines)
        body, instruction = _body(lines[begin:])
        if not codes or not instruction:
            return None
        if body[0] == "Item:":
            return cls({None: "\n".join(body[1:])}, codes)
        return cls(_numbered(body[1:], separator=". "), codes)


def _codes(lines: Sequence[str]) -> tuple[dict[str, str], int]:
    """Return the codes of a prompt, and the index of the line below them."""
    if lines[0].startswith("Condition: "):
        return dict(_YES_NO), 1
    codes: dict[str, str] = {}
    place = 1
    while lines[0] == "Labels:" and place < len(lines):
        found = _LABEL.fullmatch(lines[place])
        if found is None:
            break
        codes[found[1]] = found[2]
        place += 1
    return codes, place


def _body(lines: Sequence[str]) -> tuple[list[str], str]:
    """Return the lines from `Item:` or `Items:` to the instruction, and the instruction.

    The instruction is the last line, below an empty one; an item may also have empty lines.
    """
    begin = next((place for place, line in enumerate(lines) if line in {"Item:", "Items:"}), None)
    if begin is None or len(lines) < begin + 4 or lines[-2] != "":
        return [], ""
    return list(lines[begin:-2]), lines[-1]


def _numbered(lines: Sequence[str], *, separator: str) -> dict[int | None, str]:
    """Return items by their numbers; only the next number begins another item."""
    found: dict[int | None, list[str]] = {}
    number: int | None = None
    for line in lines:
        head, _, rest = line.partition(separator)
        is_next = head.isdecimal() and head.isascii() and len(head) < 10
        if is_next and (number is None or int(head) == number + 1):
            number = int(head)
            found[number] = [rest]
        elif number is not None:
            found[number].append(line.removeprefix(_INDENT))
    return {number: "\n".join(parts).strip("\n") for number, parts in found.items()}


def plain_prompt(items: Sequence[str], labels: Sequence[str]) -> str:
    """Return a prompt as programs usually write it: labels in words, items with numbers from 1.

    Line breaks in items become spaces.
    """
    named = "".join(f"- {label}\n" for label in labels)
    listed = "\n".join(f"{place}: {' '.join(text.split())}" for place, text in enumerate(items, 1))
    return (
        f"Label each line with one of these labels:\n{named}\n"
        f"Reply with one `number: label` per line.\n\n{listed}"
    )


DRIFTS = (
    "parenthesis",
    "dash and label",
    "bold",
    "lower case",
    "label beside",
    "words before",
    "words after",
    "fence",
)
"""The ways in which a reply may drift from the form that was asked for."""


def written(prompt: Prompt, verdicts: Mapping[int | None, Verdict], drift: str = "") -> str:
    """Return a reply with these verdicts, in the form that was asked for or one of `DRIFTS`."""
    codes = {label: code for code, label in prompt.codes.items()}
    lines = [_line(number, codes, each, drift) for number, each in verdicts.items()]
    text = "\n".join(lines) or "I cannot tell."
    if drift == "words before":
        return f"Here is what I found:\n\n{text}"
    if drift == "words after":
        return f"{text}\n\nLet me know if you need anything else."
    return f"```\n{text}\n```" if drift == "fence" else text


def _line(number: int | None, codes: Mapping[str, str], verdict: Verdict, drift: str) -> str:
    code, mark = codes[verdict.label], "?" if verdict.unsure else ""
    if drift == "lower case":
        code = code.lower()
    elif drift == "dash and label":
        code = verdict.label
    elif drift == "label beside" and code != verdict.label:
        code = f"{code} ({verdict.label})"
    if number is None:
        return f"**{code}**{mark}" if drift == "bold" else f"{code}{mark}"
    head = {
        "parenthesis": f"{number}) ",
        "dash and label": f"{number} - ",
        "bold": f"**{number}**: ",
    }.get(drift, f"{number}: ")
    return f"{head}{code}{mark}"
