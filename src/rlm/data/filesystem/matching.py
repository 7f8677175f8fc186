"""Match names against patterns: `*` and `?` within a name, `**` across folders."""

from fnmatch import fnmatchcase

__all__ = ["fits"]


def fits(name: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Return whether a pattern matches a name, visiting each part of the pattern once."""
    places = _with_skipped({0}, pattern)
    for part in name:
        here = [at for at in places if at < len(pattern)]
        places = {at for at in here if pattern[at] == "**"}
        places |= {at + 1 for at in here if pattern[at] != "**" and fnmatchcase(part, pattern[at])}
        places = _with_skipped(places, pattern)
    return len(pattern) in places


def _with_skipped(places: set[int], pattern: tuple[str, ...]) -> set[int]:
    """Return these places, and those after a `**`, which may match nothing."""
    for at in sorted(places):
        while at < len(pattern) and pattern[at] == "**":
            at += 1
            places.add(at)
    return places
