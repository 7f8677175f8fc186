"""Notes that models made of pieces: those that say something, in prompts that fit."""

from collections.abc import Sequence

__all__ = ["NOT_FOUND", "groups_of", "notes_of"]

NOT_FOUND = "NOT FOUND"
NUMBERING_CHARS = 16


def notes_of(replies: Sequence[str]) -> list[str]:
    """Replies that had something to say, in order."""
    return [text for text in replies if text and not text.upper().startswith(NOT_FOUND)]


def groups_of(notes: Sequence[str], size: int) -> list[str]:
    """Notes joined into prompts that fit.

    They are cut only where no two would share a prompt otherwise: so merging ends.
    """
    groups = _joined(notes, size, size - NUMBERING_CHARS)
    if 1 < len(groups) == len(notes):
        groups = _joined(notes, size, size // 2 - NUMBERING_CHARS)
    return groups


def _joined(notes: Sequence[str], size: int, most: int) -> list[str]:
    """Each note in order, at most so many characters of it."""
    groups: list[str] = []
    for number, note in enumerate(notes, 1):
        entry = f"[{number}] {note[:most]}"
        if groups and len(groups[-1]) + len(entry) + 2 <= size:
            groups[-1] += f"\n\n{entry}"
        else:
            groups.append(entry)
    return groups
