"""Regular expressions from outside, matched in linear time where their meaning stays the same.

`re` may take longer than anyone can wait for a pattern such as `(a+)+$`. RE2 never does, but reads
some patterns differently and refuses others. So RE2 (the extra `re2`) matches the patterns that
mean the same to both, and `re` matches the rest, within the deadline that the caller has set.
"""

import functools
import re
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

__all__ = [
    "LineFilter",
    "LinePattern",
    "compile_filter",
    "compile_for_lines",
    "compile_literal",
    "prepare",
]

# The parser of `re`, which shows exactly what a pattern means to `re`.
_parser: Any = getattr(re, "_parser")  # noqa: B009 - unknown to type checkers
_LARGEST_REPEAT = 1000
"""RE2 refuses more."""

_SAME_IN_A_LINE = re.UNICODE | re.MULTILINE | re.DOTALL | re.VERBOSE
"""Flags that change nothing, once a pattern is parsed, in a line without a newline."""
_CATEGORIES = {"CATEGORY_DIGIT": r"\d", "CATEGORY_SPACE": r"\s", "CATEGORY_WORD": r"\w"}
_NEGATED = {name.replace("_", "_NOT_", 1): name for name in _CATEGORIES}


class LinePattern(Protocol):
    """What `re.compile` and RE2 both return."""

    def search(self, text: str, /) -> object | None: ...


def compile_for_lines(pattern: str, *, ignore_case: bool = False) -> LinePattern:
    """Compile a pattern for searching single lines. Raises what `re.compile` raises."""
    ours = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    if ignore_case or find_spec("re2") is None:  # Upper and lower case differ in a few letters.
        return ours
    parsed = _parser.parse(pattern)
    if re.RegexFlag(parsed.state.flags) & ~_SAME_IN_A_LINE:
        return ours  # such as (?i), which is not translated
    try:
        translated = _Exactly().pattern(parsed)
    except _Differs:
        return ours
    return _linear(translated) or ours


LineFilter = Callable[[bytes, int], int]
"""Returns an offset in the first line that may match, or -1, given a text and where to start.

The text must be valid UTF-8, unless the filter is for a literal; a line must begin at the start.
"""


def compile_filter(
    pattern: str, *, ignore_case: bool = False, in_json: bool = False
) -> LineFilter | None:
    """Return a filter for a pattern that `re` accepts; None if lines must be searched one by one.

    Every line in which `re` finds the pattern passes, and perhaps some others. With `in_json`, the
    filter searches raw lines of JSON, and passes those that hold a string with such a line.
    """
    if find_spec("re2") is None:
        return None
    parsed = _parser.parse(pattern, re.IGNORECASE if ignore_case else 0)
    flags = re.RegexFlag(parsed.state.flags)
    if flags & ~(re.UNICODE | re.IGNORECASE):
        return None
    ignores = bool(flags & re.IGNORECASE)
    try:
        translated = (_InJson if in_json else _Loosely)(ignores).pattern(parsed)
    except _Differs:
        return None
    compiled = _linear(("(?i)" if ignores else "") + translated)
    return None if compiled is None else _places(compiled)


def compile_literal(literal: bytes) -> LineFilter:
    """Return a filter for lines that contain these bytes."""
    compiled = None
    if find_spec("re2") is not None:
        compiled = _linear(b"".join(b"\\x%02x" % code for code in literal))
    if compiled is None:
        return lambda text, start: text.find(literal, start)
    return _LiteralFilter(literal, _places(compiled))


class _LiteralFilter:
    """Looks for the byte of a literal that is rarest in the text, as long as it is rare.

    Finding one byte is many times faster than finding several. But Python checks each hit, so for
    a frequent byte RE2 is faster.
    """

    def __init__(self, literal: bytes, otherwise: LineFilter) -> None:
        self._literal = literal
        self._otherwise = otherwise
        self._rarest: int | None = None
        self._is_rare = True

    def __call__(self, text: bytes, start: int) -> int:
        if self._rarest is None:
            sample = text[: 1 << 16]
            self._rarest = min(set(self._literal), key=sample.count)
        if not self._is_rare:
            return self._otherwise(text, start)
        offset = self._literal.index(self._rarest)
        at, hits = start + offset, 0
        while (found := text.find(self._rarest, at)) >= 0:
            if text.startswith(self._literal, found - offset):
                return found - offset
            at, hits = found + 1, hits + 1
            if hits >= _FEW_HITS:
                self._is_rare = at - start > hits * _RARE_BYTES
                if not self._is_rare:
                    return self._otherwise(text, at - offset)
        return -1


_FEW_HITS, _RARE_BYTES = 20, 1_000
"""After this many hits, a byte counts as rare if its hits are this far apart on average."""


def _places(compiled: Any) -> LineFilter:
    def first(text: bytes, start: int) -> int:
        found = compiled.search(text, start)
        return -1 if found is None else int(found.start())

    return first


def prepare() -> None:
    """Do the slow work that forked processes can share, if RE2 is installed."""
    if find_spec("re2") is not None:
        for name in _CATEGORIES:
            _characters(name)


class _Differs(Exception):
    """RE2 would match something else, or nothing."""


def _linear(pattern: str | bytes) -> LinePattern | None:
    re2: Any = import_module("re2")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    if isinstance(pattern, bytes):
        options.encoding = re2.Options.Encoding.LATIN1
    try:
        compiled: LinePattern = re2.compile(pattern, options=options)
    except re2.error:
        return None  # It needs more memory than RE2 allows.
    return compiled


class _Exactly:
    """Translates a parsed pattern to one that matches in the same single lines."""

    def pattern(self, nodes: Iterable[tuple[Any, Any]]) -> str:
        return "".join(self._one(str(op), value) for op, value in nodes)

    def _one(self, op: str, value: Any) -> str:
        if op == "LITERAL":
            return self._literal(value)
        if op == "NOT_LITERAL":
            return self._not(value)
        if op == "ANY":
            return "[^\\n]"
        if op == "IN":
            return self._set(value)
        if op == "BRANCH" and value[0] is None:
            return f"(?:{'|'.join(self.pattern(each) for each in value[1])})"
        if op == "SUBPATTERN" and not value[1] and not value[2]:
            return f"(?:{self.pattern(value[3])})"
        if op in ("MAX_REPEAT", "MIN_REPEAT"):
            return self._repeat(*value, lazy="?" if op == "MIN_REPEAT" else "")
        if op == "AT":
            return self._at(str(value))
        raise _Differs(op)  # Lookaround, references, flags, atomic groups.

    def _literal(self, code: int) -> str:
        return _character(code)

    def _not(self, code: int) -> str:
        return f"[^{_character(code)}]"

    def _at(self, place: str) -> str:
        if place in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
            return r"\A"
        if place in ("AT_END", "AT_END_STRING"):
            return r"\z"  # A line holds no newline that `$` could stand before.
        raise _Differs(place)  # RE2 has other ideas of a word.

    def _repeat(self, least: int, most: int, repeated: Any, *, lazy: str) -> str:
        inside = f"(?:{self.pattern(repeated)})"
        is_open = str(most) == "MAXREPEAT"
        if least > _LARGEST_REPEAT or (not is_open and most > _LARGEST_REPEAT):
            raise _Differs("repeat")
        bounds = f"{{{least},}}" if is_open else f"{{{least},{most}}}"
        return f"{inside}{bounds}{lazy}"

    def _set(self, members: Iterable[tuple[Any, Any]]) -> str:
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


class _Loosely(_Exactly):
    """Translates a parsed pattern to one that matches at least there, in texts of many lines."""

    def __init__(self, ignores_case: bool) -> None:
        self._ignores_case = ignores_case

    def _at(self, place: str) -> str:
        if place.startswith("AT_BEGINNING"):
            return "(?m:^)"
        return "(?m:$)" if place.startswith("AT_END") else ""  # A boundary of words is left out.

    def _literal(self, code: int) -> str:
        self._check_case(code)
        is_i = self._ignores_case and code in b"iI"
        return f"[i{_LIKE_I}]" if is_i else _character(code)

    def _not(self, code: int) -> str:
        self._check_case(code)
        return super()._not(code)

    def _set(self, members: Iterable[tuple[Any, Any]]) -> str:
        members = list(members)
        if not self._ignores_case:
            return super()._set(members)
        kinds = [str(op) for op, _ in members]
        for op, value in members:
            if str(op) in ("LITERAL", "RANGE"):
                self._check_case(*(value if isinstance(value, tuple) else (value,)))
        if "NEGATE" in kinds:
            if "CATEGORY" in kinds:
                raise _Differs("set")  # RE2 excludes more, because its letter cases differ.
            return super()._set(members)
        return f"{super()._set(members)[:-1]}{_LIKE_I}]"

    def _check_case(self, *codes: int) -> None:
        if self._ignores_case and max(codes) > 127:
            raise _Differs("case")


class _InJson(_Loosely):
    """Translates a parsed pattern to one that matches at least there, in strings written as JSON.

    In those, any character may be escaped, and some must be.
    """

    def _one(self, op: str, value: Any) -> str:
        if op == "ANY":
            return _or_escaped("[^\\n]", _SHORT, _ANY_UNIT)
        return super()._one(op, value)

    def _at(self, place: str) -> str:
        return ""  # A line begins after an escaped newline, or after a quotation mark.

    def _literal(self, code: int) -> str:
        return _or_escaped(super()._literal(code), chr(code), self._units([code]))

    def _not(self, code: int) -> str:
        return _or_escaped(super()._not(code), _SHORT, _ANY_UNIT)

    def _set(self, members: Iterable[tuple[Any, Any]]) -> str:
        members = list(members)
        held = "".join(each for each in _SHORT if _holds(members, each))
        codes = [code for op, value in members for code in _codes(str(op), value)]
        return _or_escaped(super()._set(members), held, self._units(codes))

    def _units(self, codes: list[int]) -> str:
        """Return what an escaped character may look like, given some of a set's characters."""
        return _ANY_UNIT if self._ignores_case or max(codes) > 127 else _ASCII_UNIT


_SHORT = {
    '"': r'\\"',
    "\\": r"\\\\",
    "/": r"\\/",
    "\b": r"\\b",
    "\f": r"\\f",
    "\r": r"\\r",
    "\t": r"\\t",
}
"""Escapes of two characters. The newline's is missing: no line contains one."""
_ASCII_UNIT = r"\\u00[0-7][0-9A-Fa-f]"
_ANY_UNIT = r"\\u[0-9A-Fa-f]{4}(?:\\u[dD][c-fC-F][0-9A-Fa-f]{2})?"
"""The second escape is for characters that need two."""


def _or_escaped(plain: str, short: Iterable[str], units: str) -> str:
    escapes = [_SHORT[each] for each in short if each in _SHORT]
    return f"(?:{'|'.join([plain, *escapes, units])})"


def _holds(members: Iterable[tuple[Any, Any]], character: str) -> bool:
    held = negated = False
    for op, value in members:
        if str(op) == "NEGATE":
            negated = True
        elif str(op) == "CATEGORY":
            sign = _CATEGORIES.get(str(value)) or _CATEGORIES[_NEGATED[str(value)]].upper()
            held |= re.match(sign, character) is not None
        else:
            first, last = value if isinstance(value, tuple) else (value, value)
            held |= first <= ord(character) <= last
    return held != negated


def _codes(op: str, value: Any) -> tuple[int, ...]:
    """Return the largest characters of a member of a set: all of them, if it is open."""
    if op in ("NEGATE", "CATEGORY"):
        return (sys.maxunicode,)
    return value if isinstance(value, tuple) else (value,)


_LIKE_I = r"\x{130}\x{131}"
"""To `re`, these are an i in another case; to RE2, they are not."""


def _character(code: int) -> str:
    if 0xD800 <= code < 0xE000:
        raise _Differs("surrogate")
    return f"\\x{{{code:x}}}"


@functools.cache
def _characters(category: str, *, outside: bool = False) -> str:
    """List the characters of a category as ranges: RE2 has another version of Unicode."""
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
