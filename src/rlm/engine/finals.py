r"""Finals written as prose: `FINAL(42)`, `FINAL_VAR: rows`, `**Final Answer:** Paris`.

A final starts a line, outside fenced blocks. There are two shapes:

- a call, `FINAL(...)`, ends at its balanced bracket and may hold whole fenced blocks;
- a label, `FINAL: ...`, runs to the end of the message or to the next cell.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from keyword import iskeyword
from typing import Literal

from msgspec import Struct

from rlm._util.lazy import pattern

__all__ = ["Final", "FoundFinal", "Region", "final_is_supported", "find_finals", "unfenced"]

MAX_FINALS = 16
"""Only the last N finals of a reply are read, because the last one wins."""

MAX_ANSWER_CHARS = 300_000
"""How far the closing bracket of `FINAL(` is searched for."""


class Final(Struct, frozen=True):
    """A submitted answer: literal text, or the name of the REPL variable that holds it.

    `maybe_name`: the literal text is a lone identifier, so a variable of that name may be meant.
    """

    kind: Literal["value", "variable"]
    text: str
    maybe_name: bool = False


class Region(Struct, frozen=True):
    """The position of a fenced block in a reply; `is_cell` if it will run."""

    start: int
    end: int
    is_cell: bool


class FoundFinal(Struct, frozen=True):
    """A final and the part of the reply it covers; if `is_closed`, no other begins in it."""

    start: int
    end: int
    final: Final
    is_closed: bool = False


_CALL = r"(?P<call>FINAL_VAR|FINAL|SUBMIT|submit_answer)[ ]?\("
_CALL_HERE = pattern(rf"[ \t]*+{_CALL}")
_MARKER = pattern(
    rf"""
    ^[ \t]*+
    (?P<prefix>(?:(?:[-+*•>]|\d{{1,3}}[.)]|\#{{1,6}})[ \t]++){{0,4}})  # list, quote, heading
    (?P<mark>[*_`]{{0,3}})                                             # bold, italic, code
    (?: {_CALL}
      | (?P<label>FINAL_VAR|FINAL|(?P<words>(?i:final[ _]answer)))
        (?P<closed>[*_`]{{0,3}})[ \t]*+
        (?: [:：] | (?P<heading>\r?$) )
    )""",
    re.MULTILINE | re.VERBOSE,
)


def find_finals(text: str, regions: Sequence[Region] = ()) -> tuple[FoundFinal, ...]:
    """Return the finals of a reply in order; `regions` are its fenced blocks, in order."""
    found: list[FoundFinal] = []
    position = 0
    for marker in list(_MARKER.finditer(text))[-MAX_FINALS:]:
        if marker.start() < position or _region_around(regions, marker.start()):
            continue
        one = _read_marker(text, marker, regions)
        if one is not None:
            found.append(one)
            position = one.end if one.is_closed else position
    return tuple(found)


def _read_marker(text: str, marker: re.Match[str], regions: Sequence[Region]) -> FoundFinal | None:
    """Return the final that a marker begins, or None if it only looks like one."""
    if marker["call"]:
        return _read_call(text, marker, marker.start(), regions, in_code_span="`" in marker["mark"])
    nested = _CALL_HERE.match(text, marker.end())
    if nested:  # "Final Answer: FINAL(42)"
        return _read_call(text, nested, marker.start(), regions)
    if marker["heading"] is not None and not _is_heading(marker):
        return None
    return _read_label(text, marker, regions)


def _is_heading(marker: re.Match[str]) -> bool:
    """Whether a label without a colon is a heading: `## Final Answer` or `**Final Answer**`."""
    return bool(marker["words"]) and ("#" in marker["prefix"] or bool(marker["closed"]))


# --- calls: FINAL(...) ---------------------------------------------------------------------------

_BRACKET = pattern(r"[()]")
_BRACKET_OR_STRING = pattern(
    r"""
    [()]
    | (?:(?<![\w\\]) | (?<=\b[rRbBfFuU]) | (?<=\b[rRbBfF]{2}))  # not the apostrophe of "don't"
      (?: \"{3}(?s:[^\\]|\\.)*?\"{3}
        | '{3}(?s:[^\\]|\\.)*?'{3}
        | "(?:[^"\\\n]|\\.)*+"(?!\w)
        | '(?:[^'\\\n]|\\.)*+'(?!\w) )
    """,
    re.VERBOSE,
)
_ENDS_CODE_SPAN = pattern(r"`[ \t\r*_.!`]*$", re.MULTILINE)


def _read_call(
    text: str,
    call: re.Match[str],
    start: int,
    regions: Sequence[Region],
    in_code_span: bool = False,
) -> FoundFinal | None:
    """Read `FINAL(...)` up to its closing bracket; without one, up to the next cell or the end.

    A line that begins with a code span and continues (`FINAL(x)` ends the run) only mentions it.
    """
    closing = _closing_bracket(text, call.end())
    is_closed = closing is not None and not _region_around(regions, closing)
    if closing is None or not is_closed:
        closing = _next_cell(text, call.end(), regions)
    elif in_code_span and not _ENDS_CODE_SPAN.match(text, closing + 1):
        return None
    final = _call_final(call["call"], text[call.end() : closing].strip())
    return None if final is None else FoundFinal(start, closing + is_closed, final, is_closed)


def _closing_bracket(text: str, start: int) -> int | None:
    """Return where the bracket before `start` closes, ignoring brackets in string literals.

    If quotes make that impossible (an odd quote in prose), they are read as plain characters.
    """
    for tokens in (_BRACKET_OR_STRING, _BRACKET):
        depth = 1
        for token in tokens.finditer(text, start, start + MAX_ANSWER_CHARS):
            depth += {"(": 1, ")": -1}.get(token[0], 0)
            if depth == 0:
                return token.start()
    return None


_KEYWORD = pattern(r"(answer|value|variable_name)\s*=\s*(?=[rRuU]?[\"'])")


def _call_final(name: str, argument: str) -> Final | None:
    """Return what a call submits; `submit_answer(variable_name="x")` is understood too."""
    keyword = _KEYWORD.match(argument)
    literal = _unquoted(argument[keyword.end() :] if keyword else argument)
    if name == "FINAL_VAR" or (literal is not None and keyword and keyword[1] == "variable_name"):
        return _variable(argument if literal is None else literal)
    if literal is not None:
        return Final("value", literal)
    return _value(argument)


# --- labels: FINAL: ... --------------------------------------------------------------------------

_FENCE = pattern(r"(?P<mark>`{3,}+|~{3,}+)[^`\n]*+\n")
_VARIABLE_LINE = pattern(r"[*`\"'(\s]*+(?P<name>[^\W\d]\w*+)[*`\"')\s.]*+")


def _read_label(text: str, marker: re.Match[str], regions: Sequence[Region]) -> FoundFinal | None:
    """Read `FINAL: ...` up to the next cell or the end; `FINAL_VAR: name` is one line."""
    end = _next_cell(text, marker.end(), regions)
    value = _without_mark(
        text[marker.end() : end].strip(), "" if marker["closed"] else marker["mark"]
    )
    if marker["label"] == "FINAL_VAR":
        line = value.partition("\n")[0].strip()
        named = _VARIABLE_LINE.fullmatch(line)
        final = _variable(named["name"] if named else line)
    else:
        final = _value(unfenced(value))
    return None if final is None else FoundFinal(marker.start(), end, final)


def unfenced(value: str) -> str:
    """Return the content of a value that is exactly one fenced block, else the value."""
    fence = _FENCE.match(value)
    if fence is None:
        return value
    content, _, last = value[fence.end() - 1 :].rpartition("\n")
    if last.strip() != fence["mark"] or f"\n{fence['mark']}" in content:
        return value
    return content.strip()


def _without_mark(value: str, mark: str) -> str:
    """Return the value without the end of the emphasis its label opened: `**Final Answer:** 42`."""
    if not mark:
        return value
    if value.startswith(mark):
        return value[len(mark) :].strip()
    end_of_mark = re.compile(rf"{re.escape(mark)}(?=[ \t\r]*$)", re.MULTILINE)
    return end_of_mark.sub("", value, count=1).strip()


# --- shared --------------------------------------------------------------------------------------


def _value(text: str) -> Final | None:
    """Return literal text as a final; None if it is empty."""
    return Final("value", text, text.isidentifier() and not iskeyword(text)) if text else None


def _variable(name: str) -> Final | None:
    name = name.strip("` \t\r\n")
    return Final("variable", name) if name else None


def _region_around(regions: Sequence[Region], position: int) -> bool:
    return any(region.start <= position < region.end for region in regions)


def _next_cell(text: str, position: int, regions: Sequence[Region]) -> int:
    starts = (region.start for region in regions if region.is_cell and region.start >= position)
    return next(starts, len(text))


_STRING = pattern(
    r"""\s*+(?P<raw>[rR])?[uU]?(?P<quote>\"{3}|'{3}|"|')(?P<body>(?:[^\\]|\\.)*?)(?P=quote)\s*+""",
    re.DOTALL,
)
_ESCAPE = pattern(r"\\(?P<known>[\\'\"abfnrtvxNuU0-3]|\r?\n|[4-7](?![0-7]{2}))?|\r")


def _unquoted(text: str) -> str | None:
    """Return the text without quotes if it is one or more string literals, else None.

    Escapes are evaluated if Python would accept them, else kept as written.
    """
    parts: list[str] = []
    position = 0
    while position < len(text):
        string = _STRING.match(text, position)
        if string is None:
            return None
        parts.append(_evaluated(string))
        position = string.end()
    return "".join(parts) if parts else None


def _evaluated(string: re.Match[str]) -> str:
    """Return the value of one string literal.

    Unknown escapes are doubled, which gives the same value without a warning; a CR stays a CR.
    """
    body = string["body"]
    if string["raw"] or "\\" not in body:
        return body
    quote = string["quote"]
    quiet = _ESCAPE.sub(
        lambda found: found[0] if found["known"] else {"\\": r"\\", "\r": r"\r"}[found[0]], body
    )
    try:
        value = ast.literal_eval(f"{quote}{quiet}{quote}")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return body
    return str(value)


# --- does the output support the answer? ---------------------------------------------------------

_NUMBER = pattern(r"\d+(?:,\d+)*+(?:\.\d+)?")
_QUOTED = pattern(r"\"([^\"]++)\"|“([^“”]++)”|`([^`]++)`|(?<!\w)'([^'\n]++)'(?!\w)")


def final_is_supported(final_text: str, printed: str) -> bool:
    """Whether every number and quoted string of a final occurs in what was printed.

    Case, runs of white space, thousands commas and trailing zeros do not matter.
    """
    seen = frozenset(
        number for match in _NUMBER.finditer(printed) for number in _readings(match[0])
    )
    for match in _NUMBER.finditer(final_text):
        whole, *pieces = _readings(match[0])
        if whole not in seen and not (pieces and seen.issuperset(pieces)):
            return False
    haystack = _plain(printed)
    return all(quoted in haystack for quoted in _quoted_strings(final_text))


def _readings(number: str) -> list[str]:
    """Return readings of a number: `1,234` as one number and as two; `2.50` as `2.5`."""
    pieces = number.split(",")
    readings = ["".join(pieces), *(pieces if len(pieces) > 1 else ())]
    return [one.rstrip("0").rstrip(".") if "." in one else one for one in readings]


def _quoted_strings(text: str) -> Iterator[str]:
    for match in _QUOTED.finditer(text):
        yield _plain(match[match.lastindex or 0]).rstrip(".;:!?")


def _plain(text: str) -> str:
    return " ".join(text.casefold().replace(",", "").split())
