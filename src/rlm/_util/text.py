"""Replace lone surrogates, which HTTP, JSON files and SQLite can't hold."""

__all__ = ["sendable"]


def sendable(text: str) -> str:
    """Return the text with lone surrogates replaced."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
