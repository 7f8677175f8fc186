"""Texts that can be shown, sent and stored: not too long, and without half characters."""

__all__ = ["cut", "plain"]


def plain(text: str) -> str:
    """Replace lone surrogates, which neither terminals nor databases accept."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def cut(text: str, most_chars: int, *, written_chars: int = 0, hint: str = "") -> str:
    """The text, or its two ends and how much is missing; more may have been written than is here.

    `hint` is told with it: what to do about that.
    """
    written_chars = max(written_chars, len(text))
    if written_chars <= most_chars:
        return text
    half = most_chars // 2
    note = f"… {written_chars - 2 * half:,} of {written_chars:,} characters left out{hint} …"
    return f"{text[:half]}\n{note}\n{text[len(text) - half :]}"
