"""What of a file could not be used. Nothing is passed over in silence, and nothing fails."""

from rlm.records.recorders.console import one_line

__all__ = ["Skipped"]

MOST_EXAMPLES = 5
EXAMPLE_CHARS = 200


class Skipped:
    """How many lines were passed over, by reason, with the first few; and notices besides."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.first: list[str] = []
        self.notices: list[str] = []

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, reason: str, where: str, detail: str = "") -> None:
        """Count one line; `where` and `detail` are only kept of the first few."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        if len(self.first) < MOST_EXAMPLES:
            told = f"{where}: {reason}" + (f" ({detail})" if detail else "")
            self.first.append(one_line(told, EXAMPLE_CHARS))

    def notice(self, text: str) -> None:
        """Say something that holds for the whole file, once."""
        text = one_line(text)
        if text not in self.notices and len(self.notices) < MOST_EXAMPLES:
            self.notices.append(text)

    def include(self, other: "Skipped") -> None:
        """Add another's counts and examples."""
        for reason, count in other.counts.items():
            self.counts[reason] = self.counts.get(reason, 0) + count
        self.first += other.first[: MOST_EXAMPLES - len(self.first)]
        for text in other.notices:
            self.notice(text)

    def __str__(self) -> str:
        """One line for people; empty if there is nothing to say."""
        parts = [f"{count:,} {reason}" for reason, count in sorted(self.counts.items())]
        lines = "line was" if self.total == 1 else "lines were"
        told = [f"{self.total:,} {lines} skipped: {', '.join(parts)}"] if parts else []
        return "; ".join([*told, *self.notices])
