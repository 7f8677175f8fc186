"""Answers of the fake model servers in these tests."""

from collections.abc import Callable
from typing import Any

__all__ = ["ECHO", "cell", "said"]


def cell(code: str) -> str:
    """Return a reply that runs code."""
    return f"```repl\n{code}\n```"


ECHO = cell("FINAL(context if isinstance(context, str) else repr(context))")
"""Answers with the context itself: what came in, to the letter."""


def said(choose: Callable[[str], str]) -> Callable[[Any], str]:
    """Return an answer that depends on the text of the whole request."""
    return lambda asked: choose(asked.text)
