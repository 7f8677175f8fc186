"""Fields of an OpenAI-style reply, read whatever type a server gave them. Nothing here raises."""

import math
from typing import Any

from rlm.clients._json import parse

__all__ = ["arguments_of", "count_of", "dicts_in", "money_of", "status_of", "text_of"]

LARGEST_COUNT = 1 << 40
"""No request has a trillion tokens: a server that says so says nothing."""

LARGEST_COST_USD = 1e6
STATUS_OF_CODE = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "server_error": 500,
    "internal_server_error": 500,
    "context_length_exceeded": 400,
    "data_residency_mismatch": 400,
    "bio_policy": 400,
    "misalignment_policy_violation": 400,
    "image_content_policy_violation": 400,
}


def text_of(content: Any) -> str:
    """Text of a field that may be null, a string, or a list of parts."""
    if isinstance(content, str):
        return content
    texts = (part.get("text") for part in dicts_in(content))
    return "".join(text for text in texts if isinstance(text, str))


def dicts_in(given: Any) -> list[dict[str, Any]]:
    """The objects of a list; none if it is no list."""
    return [item for item in given if isinstance(item, dict)] if isinstance(given, list) else []


def count_of(holder: Any, *path: str) -> int | None:
    """A number of tokens at that path; None if there is none, or it can't be one."""
    for name in path:
        holder = holder.get(name) if isinstance(holder, dict) else None
    if isinstance(holder, bool) or not isinstance(holder, int | float):
        return None
    return int(holder) if 0 <= holder <= LARGEST_COUNT else None


def money_of(holder: Any, *path: str) -> float | None:
    """US dollars at that path; None if there are none, or it can't be a price of one request."""
    for name in path:
        holder = holder.get(name) if isinstance(holder, dict) else None
    if isinstance(holder, bool) or not isinstance(holder, int | float):
        return None
    is_price = math.isfinite(holder) and 0 <= holder <= LARGEST_COST_USD
    return float(holder) if is_price else None


def arguments_of(given: Any) -> dict[str, Any]:
    """Arguments as a dict. What is not JSON of an object is kept, whole, under `_raw`."""
    if isinstance(given, dict):
        return given
    text = given if isinstance(given, str) else ""
    if not text.strip():
        return {}
    try:
        parsed = parse(text)
    except ValueError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {"_raw": text}


def status_of(error: Any) -> int | None:
    """The HTTP status that an error, reported with status 200, should have had."""
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, str):
        if code.isascii() and code.isdigit() and len(code) == 3:
            code = int(code)
        else:
            code = 400 if code.startswith("invalid_") else STATUS_OF_CODE.get(code)
    return code if isinstance(code, int) and 400 <= code < 600 else None
