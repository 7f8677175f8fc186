"""What the fake model servers of these tests answer."""

from collections.abc import Callable
from typing import Any

__all__ = ["ECHO", "cell", "said"]


def cell(code: str) -> str:
    """A reply that runs code."""
    return f"```repl\n{code}\n```"


ECHO = cell("FINAL(context if isinstance(context, str) else repr(context))")
"""Answers with the context itself: what came in, to the letter."""


def said(choose: Callable[[str], str]) -> Callable[[Any], str]:
    """An answer that depends on the text of the whole request."""
    return lambda asked: choose(asked.text)
