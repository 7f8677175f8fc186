"""Names of a server's tools in the REPL: Python names that take nothing away from anybody."""

import builtins
import keyword
import re
from collections.abc import Collection

from rlm.tools._function import is_taken

__all__ = ["free_name", "python_name"]

MOST_CHARS = 64
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_]+")
_BUILTINS = frozenset(dir(builtins))


def python_name(name: str, prefix: str = "") -> str:
    """The name a cell uses for a tool, before others are looked at; the same every time."""
    plain = _NOT_A_NAME.sub("_", name[: 4 * MOST_CHARS]).strip("_")
    if prefix:
        plain = f"{prefix}_{plain}"
    plain = plain[:MOST_CHARS].rstrip("_") or "tool"
    if plain[0].isdigit():
        plain = f"tool_{plain}"
    if keyword.iskeyword(plain) or plain in _BUILTINS or is_taken(plain):
        plain = f"{plain}_tool"
    return plain


def free_name(name: str, used: Collection[str]) -> str:
    """The name, with a number behind it if others have it already."""
    found, number = name, 2
    while found in used:
        found, number = f"{name}_{number}", number + 1
    return found
