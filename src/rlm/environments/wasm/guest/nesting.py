"""Cells with too many brackets in brackets are refused before Python's parser sees them.

The parser calls itself for each, and in WebAssembly a stack that overflows there ends the process.
"""

import io
import itertools
import tokenize
from typing import Any

__all__ = ["MOST_BRACKETS", "guard"]

MOST_BRACKETS = 100
"""The parser gives in at some 130 here, and by itself at 200."""

_STEPS = {**dict.fromkeys("([{", 1), **dict.fromkeys(")]}", -1)}


def guard(compiling: Any) -> None:
    """Have `compiling.compile_cell` look first."""
    compile_cell = compiling.compile_cell

    def compile_shallow(source: str, filename: str) -> Any:
        if _depth(source) > MOST_BRACKETS and _depth_outside_strings(source) > MOST_BRACKETS:
            raise SyntaxError("too many nested parentheses")
        return compile_cell(source, filename)

    compiling.compile_cell = compile_shallow


def _depth(brackets: Any) -> int:
    return max(itertools.accumulate(_STEPS.get(each, 0) for each in brackets), default=0)


def _depth_outside_strings(source: str) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    try:
        return _depth([token.string for token in tokens if token.type == tokenize.OP])
    except (SyntaxError, tokenize.TokenError):
        return _depth(source)  # It is no Python anyway.
