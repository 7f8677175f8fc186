"""Reads JSON as models write it: fenced, or with prose around it."""

from __future__ import annotations

import json
import re

__all__ = ["parse"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_THOUGHTS = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_FENCED = re.compile(r"```[\w-]*\n(.*?)```", re.DOTALL)
_MAX_STARTS_TRIED = 200


def parse(text: str) -> Any:
    """Return the JSON value in `text`; raise ValueError if there is none."""
    text = _THOUGHTS.sub("", text).strip()
    for candidate in (text, *_FENCED.findall(text)):
        try:
            return json.loads(candidate)
        except (ValueError, RecursionError):
            continue
    for value in _embedded(text):
        return value
    raise ValueError("the reply contains no JSON")


def _embedded(text: str) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    starts = re.finditer(r"[{\[]", text)
    for _, start in zip(range(_MAX_STARTS_TRIED), starts):  # noqa: B905 (Python 3.9)
        try:
            yield decoder.raw_decode(text, start.start())[0]
        except (ValueError, RecursionError):
            continue
