"""Limits on what a sandbox may send to the host, used by both sides.

The worker checks them, so that a cell that exceeds one gets an error it can act on. The host checks
them again, before it decodes anything: code in a sandbox can replace the worker's functions.
"""

from __future__ import annotations

__all__ = [
    "CALLS",
    "MAX_ANSWER_CHARS",
    "MAX_CHANGED_VARIABLES",
    "MAX_CONTEXT_VALUES",
    "MAX_DELETED_VARIABLES",
    "MAX_DEPTH",
    "MAX_DESCRIPTION_CHARS",
    "MAX_ERROR_TYPE_CHARS",
    "MAX_ESCAPES",
    "MAX_EXPONENTS",
    "MAX_FILES",
    "MAX_FILES_BYTES",
    "MAX_MESSAGE_CHARS",
    "MAX_META_BYTES",
    "MAX_MODEL_CHARS",
    "MAX_NAME_CHARS",
    "MAX_NUMBER_CHARS",
    "MAX_PIECE_BYTES",
    "MAX_REASON_CHARS",
    "MAX_REPORTED_CHARS",
    "MAX_SURROGATES",
    "MAX_TOOL_VALUES",
    "MAX_TRACEBACK_CHARS",
    "MAX_VARIABLES",
    "MAX_VARIABLES_BYTES",
    "CallBounds",
    "TooLarge",
    "call_problem",
    "checked",
]

# The end of a cell. Its output is limited by the option `kept_output_chars`.
MAX_ANSWER_CHARS = 10_000_000
"""The limit on a submitted answer, on `answer["content"]`, and on a fetched variable."""
MAX_META_BYTES = 256 << 10
MAX_ERROR_TYPE_CHARS = 200
MAX_MESSAGE_CHARS = 4_000
MAX_TRACEBACK_CHARS = 8_000
MAX_VARIABLES_BYTES = 1 << 20
"""The limit on the names and descriptions of all variables in one report."""
MAX_CHANGED_VARIABLES = 1_000
"""How many variables are reported as new, and how many as changed, after one cell."""
MAX_DELETED_VARIABLES = 10_000
MAX_VARIABLES = 10_000
"""How many names of variables the host remembers for one session."""
MAX_NAME_CHARS = 256
MAX_DESCRIPTION_CHARS = 200
MAX_REPORTED_CHARS = 10**15
"""The highest count of printed characters that the host accepts."""

# Files that a session wrote.
MAX_FILES = 10_000
MAX_FILES_BYTES = 2 << 20
MAX_PIECE_BYTES = 16 << 20

# Text and JSON of any kind.
MAX_SURROGATES = 100_000
"""Lone surrogates in the texts of one frame: decoding one takes 1,000 times as long as a letter."""
MAX_DEPTH = 100
MAX_NUMBER_CHARS = 1_000
MAX_EXPONENTS = 10_000
"""Numbers such as 1e300 in one JSON document that is small, or read on the host's event loop."""
MAX_TOOL_VALUES = 200_000
MAX_CONTEXT_VALUES = 500_000
MAX_ESCAPES = 2_000_000
"""Backslashes in one JSON document."""

# Calls and side channels.
MAX_MODEL_CHARS = 300
MAX_REASON_CHARS = 500
"""The limit on the reason that a sandbox gives for its ending."""


class TooLarge(ValueError):
    """A limit was exceeded; the message says which, and what is allowed."""


class CallBounds:
    """Limits of one call: its arguments (JSON), the number of texts, and their total size."""

    __slots__ = ("arguments_bytes", "name", "texts", "texts_bytes")

    def __init__(self, name: str, arguments_bytes: int, texts: int, texts_bytes: int) -> None:
        self.name = name
        self.arguments_bytes = arguments_bytes
        self.texts = texts
        self.texts_bytes = texts_bytes


_MAX_TEXTS = 99_998  # A frame has at most 100,000 parts, and two of them are not texts.

CALLS = {
    b"llm": CallBounds("llm_query", 4 << 20, _MAX_TEXTS, 62 << 20),
    b"rlm": CallBounds("rlm_query", 4 << 20, _MAX_TEXTS, 48 << 20),
    b"operator": CallBounds("an operator", 1 << 20, _MAX_TEXTS, 62 << 20),
    b"tool": CallBounds("a tool", 8 << 20, 0, 0),
    b"data": CallBounds("a query", 8 << 20, 0, 0),
    b"stream": CallBounds("stream", 64, 2, 4 << 20),
    b"note": CallBounds("note", 64, 2, 4 << 20),
    b"cite": CallBounds("cite", 4 << 10, 1, 64 << 10),
    b"budget": CallBounds("budget", 64, 0, 0),
}
"""Limits by kind of call. Pictures count as texts of `llm`, and also have their own limits."""


def call_problem(parts: list[bytes]) -> str | None:
    """Return which part of a call is too large, or None if all are within bounds."""
    bounds = CALLS.get(parts[0])
    if bounds is None or len(parts) < 2:
        return None  # This is not a call at all, which is reported elsewhere.
    size = len(parts[1])
    if size > bounds.arguments_bytes:
        allowed = bounds.arguments_bytes
        return (
            f"the arguments of {bounds.name} have {size:,} bytes; at most {allowed:,} are allowed"
        )
    if len(parts) > 2:
        size = sum(map(len, parts)) - len(parts[0]) - size
        if size > bounds.texts_bytes:
            return (
                f"the texts of one {bounds.name} have {size:,} bytes; at most "
                f"{bounds.texts_bytes:,} are allowed: send less at once"
            )
    return None


def checked(parts: list[bytes]) -> list[bytes]:
    """Return the parts; raise TooLarge, which the cell sees, if the host would refuse them."""
    problem = call_problem(parts)
    if problem is not None:
        raise TooLarge(problem)
    return parts
