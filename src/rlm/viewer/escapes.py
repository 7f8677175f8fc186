"""Text as it was before `repr` or JSON wrote it: a line feed is two characters in those."""

import re

__all__ = ["unescaped"]

_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|U0010[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[abfnrtv0\\/'\"])"
)
_SHORT = dict(zip("abfnrtv0", "\a\b\f\n\r\t\v\0", strict=True))


def unescaped(text: str) -> str | None:
    """What the text says once its escapes are resolved; None if it has none."""
    if "\\" not in text:
        return None
    plain = _ESCAPE.sub(_resolved, text)
    return None if plain == text else plain


def _resolved(match: re.Match[str]) -> str:
    body = match[0][1:]
    if len(body) == 1:
        return _SHORT.get(body, body)
    if "\\" in body:  # two halves of one character
        high, low = int(body[1:5], 16), int(body[7:11], 16)
        return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
    return chr(int(body[1:], 16))
