"""Regular expressions from outside, matched in linear time where their meaning stays the same.

`re` may need longer than anyone can wait for a pattern such as `(a+)+$`. RE2 never does, but reads
some patterns differently and refuses others. So RE2 (the extra `re2`) matches the patterns that
mean the same to both, and `re` matches the rest, under whatever deadline the caller has set.
"""

import functools
import re
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

__all__ = ["LinePattern", "compile_for_lines", "prepare"]

# The parser of `re`, which says exactly what a pattern means to it.
_parser: Any = getattr(re, "_parser")  # noqa: B009 - unknown to type checkers
_LARGEST_REPEAT = 1000
"""RE2 refuses more."""

_CATEGORIES = {"CATEGORY_DIGIT": r"\d", "CATEGORY_SPACE": r"\s", "CATEGORY_WORD": r"\w"}
_NEGATED = {name.replace("_", "_NOT_", 1): name for name in _CATEGORIES}


class LinePattern(Protocol):
    """What `re.compile` and RE2 both return."""

    def search(self, text: str, /) -> object | None: ...


def compile_for_lines(pattern: str, *, ignore_case: bool = False) -> LinePattern:
    """Compile a pattern that is searched for in single lines. Raises what `re.compile` raises."""
    ours = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    if ignore_case or find_spec("re2") is None:  # Upper and lower case differ in a few letters.
        return ours
    try:
        translated = _translate(_parser.parse(pattern))
    except _Differs:
        return ours
    return _linear(translated) or ours


def prepare() -> None:
    """Do what takes long and can be shared by forked processes, if RE2 is installed."""
    if find_spec("re2") is not None:
        for name in _CATEGORIES:
            _characters(name)


class _Differs(Exception):
    """RE2 would match something else, or nothing."""


def _linear(pattern: str) -> LinePattern | None:
    re2: Any = import_module("re2")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        compiled: LinePattern = re2.compile(pattern, options=options)
    except re2.error:
        return None  # It needs more memory than RE2 grants.
    return compiled


def _translate(nodes: Iterable[tuple[Any, Any]]) -> str:
    return "".join(_translate_one(str(op), value) for op, value in nodes)


def _translate_one(op: str, value: Any) -> str:
    if op == "LITERAL":
        return _character(value)
    if op == "NOT_LITERAL":
        return f"[^{_character(value)}]"
    if op == "ANY":
        return "[^\\n]"
    if op == "IN":
        return _translate_set(value)
    if op == "BRANCH" and value[0] is None:
        return f"(?:{'|'.join(_translate(each) for each in value[1])})"
    if op == "SUBPATTERN" and not value[1] and not value[2]:
        return f"(?:{_translate(value[3])})"
    if op in ("MAX_REPEAT", "MIN_REPEAT"):
        return _translate_repeat(*value, lazy="?" if op == "MIN_REPEAT" else "")
    if op == "AT" and str(value) in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
        return r"\A"
    if op == "AT" and str(value) in ("AT_END", "AT_END_STRING"):
        return r"\z"  # A line holds no newline that `$` could stand before.
    raise _Differs(op)  # Lookaround, references, word boundaries, flags, atomic groups.


def _translate_repeat(least: int, most: int, repeated: Any, *, lazy: str) -> str:
    inside = f"(?:{_translate(repeated)})"
    is_open = str(most) == "MAXREPEAT"
    if least > _LARGEST_REPEAT or (not is_open and most > _LARGEST_REPEAT):
        raise _Differs("repeat")
    bounds = f"{{{least},}}" if is_open else f"{{{least},{most}}}"
    return f"{inside}{bounds}{lazy}"


def _translate_set(members: Iterable[tuple[Any, Any]]) -> str:
    parts, negated = [], ""
    for op, value in members:
        if str(op) == "NEGATE":
            negated = "^"
        elif str(op) == "LITERAL":
            parts.append(_character(value))
        elif str(op) == "RANGE":
            parts.append(f"{_character(value[0])}-{_character(value[1])}")
        elif str(op) == "CATEGORY" and str(value) in _CATEGORIES:
            parts.append(_characters(str(value)))
        elif str(op) == "CATEGORY" and str(value) in _NEGATED:
            parts.append(_characters(_NEGATED[str(value)], outside=True))
        else:
            raise _Differs(op)
    return f"[{negated}{''.join(parts)}]"


def _character(code: int) -> str:
    if 0xD800 <= code < 0xE000:
        raise _Differs("surrogate")
    return f"\\x{{{code:x}}}"


@functools.cache
def _characters(category: str, *, outside: bool = False) -> str:
    """List the characters of a category as ranges: RE2 knows another version of Unicode."""
    every = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    sign = _CATEGORIES[category]
    runs = re.finditer(f"{sign.upper() if outside else sign}+", every)
    ranges = []
    for run in runs:
        first, last = ord(run[0][0]), ord(run[0][-1])
        if first < 0xD800 <= last:  # The surrogates are missing between these two.
            ranges.append(f"{_character(first)}-{_character(0xD7FF)}")
            first = 0xE000
        ranges.append(f"{_character(first)}-{_character(last)}")
    return "".join(ranges)
