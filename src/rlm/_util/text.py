"""Texts for people and the wire: numbers with nouns, suggested names, no lone surrogates."""

from collections.abc import Iterable

__all__ = [
    "UNKNOWN",
    "all_used",
    "closest",
    "cost_words",
    "counted",
    "dollars",
    "meant_or_all",
    "no_such",
    "sendable",
]

UNKNOWN = "unknown"
"""How all texts for people show a cost, price or window that is not known."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun in the right form: `1 row`, `2 rows`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def all_used(number: int, noun: str) -> str:
    """Say that a limit is reached: `all 2 calls are used`, `the only call is used`."""
    return f"the only {noun} is used" if number == 1 else f"all {counted(number, noun)} are used"


def dollars(cost_usd: float | None) -> str:
    """Return a cost for a column whose title says what it is; an unknown cost is never $0."""
    return UNKNOWN if cost_usd is None else f"${cost_usd:,.4f}"


def cost_words(cost_usd: float | None) -> str:
    """Return a cost as words, for use among other figures."""
    return f"cost {UNKNOWN}" if cost_usd is None else dollars(cost_usd)


def sendable(text: str) -> str:
    """Return the text with lone surrogates replaced: HTTP, JSON and SQLite can't hold them."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def closest(name: str, known: Iterable[str], cutoff: float = 0.7) -> str | None:
    """Return the known name that a mistyped one probably means, if there is one."""
    from difflib import get_close_matches  # needed only after mistakes

    found = get_close_matches(name[:100], list(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def no_such(what: str, name: object, known: Iterable[str]) -> str:
    """Say that a name is not known, and name the one probably meant, or all that are known."""
    shown = repr(name) if len(repr(name)) <= 100 else f"{repr(name)[:100]}…"
    return f"unknown {what} {shown}; {meant_or_all(name, known, 'choose one of')}"


def meant_or_all(name: object, known: Iterable[str], listed: str) -> str:
    """Return the known name that a wrong one probably means, or all after the word `listed`."""
    choices = list(known)
    meant = closest(name, choices) if isinstance(name, str) else None
    return f"did you mean {meant!r}?" if meant else f"{listed} {', '.join(choices) or 'none'}"
