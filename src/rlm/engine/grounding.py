"""Whether an answer that a model wrote itself can come from what it has seen.

A small model that can't find a value tends to invent one. An answer that code computed is never
questioned, nor is prose: only a short literal, such as a code, a name or a number.
"""

import ast
from collections.abc import Iterable, Sequence

from rlm._util.lazy import pattern
from rlm._util.python_source import PythonParser
from rlm.engine.cells import Actions
from rlm.engine.finals import final_is_supported
from rlm.results import CellResult

__all__ = ["is_exact", "is_grounded", "is_literal"]

SUBMITTING = ("FINAL", "SUBMIT", "submit_answer")
MAX_CHARS = 200
MAX_WORDS = 6
MIN_WORD_CHARS = 3
JUDGEMENTS = frozenset(
    {"yes", "no", "true", "false", "none", "unknown", "not found", "n/a", "same", "unclear"}
)
"""Answers that are conclusions and need not occur anywhere in the text."""

_WORD = pattern(r"\w+")
_DIGIT = pattern(r"\d")
_EXACT = pattern(r"(?=[\w-]*\d)[\w-]{4,40}")


def is_literal(text: str, actions: Actions, results: Sequence[CellResult]) -> bool:
    """Whether the model wrote the answer itself: in prose, or as a constant in its code."""
    if not any(result.submission is not None for result in results):
        return True
    return any(text in _constants(cell.code) for cell in actions.cells)


def _constants(code: str) -> set[str]:
    """Return the constants that code submits or binds to a name unchanged."""
    tree = PythonParser().parse_values(code)
    values: list[ast.expr] = []
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in SUBMITTING:
                values += [*node.args, *(keyword.value for keyword in node.keywords)]
        elif isinstance(node, ast.Assign):
            values.append(node.value)
    return {str(value.value) for value in values if isinstance(value, ast.Constant)}


def is_exact(text: str) -> bool:
    """Whether an answer is a number or code of four characters or more: copied, not inferred."""
    return _EXACT.fullmatch(text.strip(" .")) is not None


def is_grounded(text: str, seen: Iterable[str]) -> bool:
    """Whether a short answer is in what was seen, or is of a kind that need not be."""
    words = [word.casefold() for word in _WORD.findall(text)]
    short = len(text) <= MAX_CHARS and 0 < len(words) <= MAX_WORDS
    if not short or text.strip(" .!").casefold() in JUDGEMENTS:
        return True
    haystack = "\n".join(seen)
    if _DIGIT.search(text):
        return final_is_supported(text, haystack)
    folded = haystack.casefold()
    return all(word in folded for word in words if len(word) >= MIN_WORD_CHARS)
