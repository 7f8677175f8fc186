"""Text that some carriers can't hold. The one place where lone surrogates are replaced."""

__all__ = ["sendable"]


def sendable(text: str) -> str:
    """The same text with lone surrogates replaced, for HTTP, JSON files and SQLite."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
