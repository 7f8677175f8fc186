"""Groups of measurements: each announces its rows, then fills them."""

from dataclasses import dataclass
from math import ceil

from benchmarks.board import Board
from benchmarks.contenders import Contender

__all__ = ["Bench"]


@dataclass(frozen=True)
class Bench:
    """The arguments of every group. All counts are in proportion to `rounds` (default 50)."""

    board: Board
    contenders: list[Contender]
    rounds: int
    small: bool = False

    def count(self, of_fifty: int) -> int:
        """Return how often to repeat something, given its count for fifty rounds."""
        return max(1, ceil(of_fifty * self.rounds / 50))
