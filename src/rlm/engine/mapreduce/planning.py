"""How large the pieces are: by the model's window and class, by the kind, and by the calls left."""

import math

from rlm import prompts
from rlm.engine.mapreduce.asking import Asker

__all__ = ["largest_piece", "piece_chars"]

SMALLEST_PIECE_CHARS = 1_000
IDEAL_CHARS = {"frontier": 200_000, "standard": 60_000, "small": 16_000}
"""Models lose sight of details long before their window is full, weak ones the sooner."""

LINE_BY_LINE = ("count", "label", "pairs")
LESS = 4
"""Where every line has to be looked at, a piece is so many times smaller."""

KEPT_CALLS = 4
"""For finding out the kind, and for merging."""


def largest_piece(asker: Asker) -> int:
    """What one prompt may hold besides the question."""
    room = prompts.call_chars(asker.info) - len(asker.task.query)
    return max(room, SMALLEST_PIECE_CHARS)


def piece_chars(asker: Asker, kind: str, text_chars: int) -> int:
    """The size that suits the kind; larger, if there are not calls enough for that."""
    largest = largest_piece(asker)
    ideal = IDEAL_CHARS.get(asker.profile, IDEAL_CHARS["standard"])
    if kind in LINE_BY_LINE:
        ideal //= LESS
    calls = max(1, asker.scope.budget.room().calls - KEPT_CALLS)
    size = max(ideal, math.ceil(text_chars / calls * 1.1))
    return max(SMALLEST_PIECE_CHARS, min(largest, size))
