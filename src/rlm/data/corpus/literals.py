"""What every match of a pattern contains, and whether lines must be searched one by one."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

__all__ = ["PatternFacts", "facts_of"]

# The parser of `re` itself, because only it knows exactly what a pattern means.
_parser: Any = getattr(re, "_parser")  # noqa: B009 - unknown to type checkers

_SAME_ACROSS_LINES = frozenset(
    (
        *("LITERAL", "NOT_LITERAL", "ANY", "IN", "BRANCH", "SUBPATTERN", "MAX_REPEAT"),
        *("MIN_REPEAT", "AT", "GROUPREF"),
    )
)
_LINE_ANCHORS = frozenset(("AT_BEGINNING", "AT_END", "AT_BOUNDARY", "AT_NON_BOUNDARY"))
_MAX_NODES = 10_000


class PatternFacts(NamedTuple):
    """`literal` is in every match (empty if none is known), in any case if `ignores_case`.

    `spans_lines` means that lines need not be searched one by one: whatever matches in a line also
    matches in the whole text, if `^` and `$` match at line ends.
    """

    literal: str
    ignores_case: bool
    spans_lines: bool


def facts_of(pattern: str, *, ignore_case: bool = False) -> PatternFacts:
    """Examine a pattern. Raises what `re.compile` raises."""
    parsed = _parser.parse(pattern, re.IGNORECASE if ignore_case else 0)
    ignores = bool(parsed.state.flags & re.IGNORECASE)
    flags_inside = parsed.state.flags & (re.MULTILINE | re.VERBOSE | re.DOTALL | re.ASCII)
    literal = max(_literals(parsed), key=len, default="")
    if "\n" in literal:
        literal = ""
    return PatternFacts(literal, ignores, not flags_inside and _same_across_lines(parsed))


def _literals(nodes: Iterable[tuple[Any, Any]]) -> Iterable[str]:
    """Yield the runs of literals that are in every match."""
    run = ""
    for op, value in nodes:
        name = str(op)
        if name == "LITERAL":
            run += chr(value)
            continue
        if name == "AT":
            continue  # It matches a position, not characters.
        yield run
        run = ""
        if name == "SUBPATTERN" and not value[1] and not value[2]:
            yield from _literals(value[3])
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and value[0] > 0:
            yield from _literals(value[2])
    yield run


def _same_across_lines(nodes: Any) -> bool:
    ahead, seen = [nodes], 0
    while ahead:
        for op, value in ahead.pop():
            seen += 1
            name = str(op)
            if seen > _MAX_NODES or name not in _SAME_ACROSS_LINES:
                return False
            if name == "AT" and str(value) not in _LINE_ANCHORS:
                return False
            if name == "SUBPATTERN":
                if value[1] or value[2]:
                    return False
                ahead.append(value[3])
            elif name == "BRANCH":
                ahead += value[1]
            elif name.endswith("_REPEAT"):
                ahead.append(value[2])
    return True
