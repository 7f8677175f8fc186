"""What is measured: each group announces its rows, then fills them."""

from dataclasses import dataclass
from math import ceil

from benchmarks.board import Board
from benchmarks.contenders import Contender

__all__ = ["Bench"]


@dataclass(frozen=True)
class Bench:
    """What every group gets. All counts are in proportion to `rounds`, 50 unless told."""

    board: Board
    contenders: list[Contender]
    rounds: int
    small: bool = False

    def count(self, of_fifty: int) -> int:
        """How often to do what is done so often in fifty rounds."""
        return max(1, ceil(of_fifty * self.rounds / 50))
