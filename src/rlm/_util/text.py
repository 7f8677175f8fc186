"""Texts for people and for the wire: numbers with their nouns; no lone surrogates."""

__all__ = ["all_used", "counted", "sendable"]


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun in the right form: `1 row`, `2 rows`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def all_used(number: int, noun: str) -> str:
    """Say that a limit is reached: `all 2 calls are used`, `the only call is used`."""
    return f"the only {noun} is used" if number == 1 else f"all {counted(number, noun)} are used"


def sendable(text: str) -> str:
    """Return the text with lone surrogates replaced: HTTP, JSON and SQLite can't hold them."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
