"""Parse Python that a model wrote, without warnings and within a budget, and find its names."""

import ast
import re
import string
from collections.abc import Callable

from rlm._util.lazy import pattern

__all__ = ["PythonParser", "names_bound", "names_used"]

MAX_SOURCE_CHARS = 200_000
"""Longer code is not parsed here; the worker parses it."""
MAX_PARSED_CHARS = 1_000_000
"""How much is parsed per reply, in all attempts together."""
MAX_TRIES = 3
"""CPython may raise SystemError for any source while another thread parses too (gh-106905)."""
MAX_MARKS = 20_000
"""Code with more brackets, operators and line ends is not parsed here: each takes up to 10 µs.
Python of 100 KB has 15,000, and JSON of that size twice as many.
"""

_ESCAPE = pattern(r"\\(?:N\{[^{}\n]*+\}|.)", re.DOTALL)
_PLAIN_ESCAPE = pattern(r"\\(?P<known>[\\'\"abfnrtv\n]|x[\da-fA-F]{2}|u[\da-fA-F]{4}|0(?![0-7]))?")
_RAW_OR_BYTES = pattern(r"(?<!\w)[uUfFrRbB]*[rRbB][fF]?[\"']")
_NUMBER_BEFORE_KEYWORD = pattern(
    r"""(?<![\w.])
    (?: 0[xX][\da-fA-F_]++ | 0[bB][01_]++ | 0[oO][0-7_]++
      | \.?[0-9][0-9_.]*+(?:[eE][+-]?[0-9_]++)?[jJ]? )
    (?=and|else|for|if|in|is|not|or)""",
    re.VERBOSE,
)


_NO_MARKS = b"".join(map(str.encode, (*string.ascii_letters, *string.digits, "_", " ")))


class PythonParser:
    """Parses code within the budget of one reply, and nothing beyond it."""

    _chars_left = MAX_PARSED_CHARS

    def parse(self, source: str) -> ast.Module | None:
        """Return the syntax tree, or None. Later errors (a stray `return`) are left to the worker.

        Strings with backslashes may have other values in the tree: `parse_values` keeps them.
        """
        return self._parse(source, _quiet)

    def parse_values(self, source: str) -> ast.Module | None:
        """Return the tree with the real values of strings; None if an escape is ambiguous."""
        if "\\" in source:
            known = all(found["known"] for found in _PLAIN_ESCAPE.finditer(source))
            if not known or _RAW_OR_BYTES.search(source):
                return None
        return self._parse(source, _spaced)

    def _parse(self, source: str, quiet: Callable[[str], str]) -> ast.Module | None:
        if len(source) > min(self._chars_left, MAX_SOURCE_CHARS):
            return None
        if len(source.encode("ascii", "ignore").translate(None, _NO_MARKS)) > MAX_MARKS:
            return None
        self._chars_left -= len(source)
        flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        for _ in range(MAX_TRIES):
            try:
                tree: ast.Module = compile(
                    quiet(source), "<cell>", "exec", flags, dont_inherit=True
                )
                return tree
            except SystemError:
                continue
            except (SyntaxError, ValueError, MemoryError, RecursionError):
                return None
        return None


def _quiet(source: str) -> str:
    r"""Return source of the same shape that the parser does not warn about.

    It warns about `"\d"` and `1if x`, and `warnings.catch_warnings` would silence other threads
    too; so first double backslashes and put spaces after numbers.
    """
    return _spaced(_ESCAPE.sub(_doubled, source) if "\\" in source else source)


def _spaced(source: str) -> str:
    return _NUMBER_BEFORE_KEYWORD.sub(r"\g<0> ", source)


def _doubled(escape: re.Match[str]) -> str:
    """Return an escape as plain text; keep those that decide where a string or line ends."""
    character = escape[0][1]
    return escape[0] if character in "\\'\"\r\n" else f"\\\\{character}"


def names_used(code: str) -> frozenset[str]:
    """Return the names that code reads, including `x += 1`; empty if it does not parse."""
    nodes = _nodes(code)
    targets = [node.target for node in nodes if isinstance(node, ast.AugAssign)]
    loads = [n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    return frozenset(name.id for name in (*loads, *targets) if isinstance(name, ast.Name))


def names_bound(code: str) -> frozenset[str]:
    """Return the names that code binds, or changes part of, as in `x[0] = 1`."""
    found = set[str]()
    for node in _nodes(code):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            target: ast.AST = node
            while isinstance(target, ast.Subscript | ast.Attribute):
                target = target.value
            if isinstance(target, ast.Name):
                found.add(target.id)
    return frozenset(found)


def _nodes(code: str) -> tuple[ast.AST, ...]:
    tree = PythonParser().parse(code)
    return () if tree is None else tuple(ast.walk(tree))
