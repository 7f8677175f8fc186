"""What a suite found out: one row for each check or attack, and what they amount to."""

from collections import Counter
from typing import Literal

from msgspec import Struct

__all__ = ["BAD_VERDICTS", "Report", "Row", "Verdict"]

Verdict = Literal[
    "passed", "failed", "not offered", "stopped", "SUCCEEDED", "visible", "not applicable"
]
"""`passed`, `failed`, `not offered` are of checks, the others of attacks; a row that could not be
judged at all is `failed` in both suites."""

BAD_VERDICTS: frozenset[Verdict] = frozenset({"failed", "SUCCEEDED"})


class Row(Struct, frozen=True):
    """One check or attack: what came of it, in a word and in a line."""

    name: str
    group: str
    verdict: Verdict
    detail: str
    seconds: float


class Report(Struct, frozen=True):
    """All rows, in the order of the suite."""

    rows: tuple[Row, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How often each verdict was given."""
        return dict(Counter(row.verdict for row in self.rows))

    @property
    def ok(self) -> bool:
        """Whether something was looked at and nothing of it is bad."""
        return bool(self.rows) and not self.bad

    @property
    def bad(self) -> tuple[Row, ...]:
        """The rows somebody has to do something about."""
        return tuple(row for row in self.rows if row.verdict in BAD_VERDICTS)
