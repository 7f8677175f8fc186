"""What a worker tells after a cell; hostile code may have had a hand in it, so it is checked."""

from typing import Any, NamedTuple

import msgspec

from rlm.environments.monty.tracebacks import Raised
from rlm.errors import ProtocolViolation

__all__ = ["Answer", "Ending", "Row", "read_report"]


class Row(NamedTuple):
    """One variable of the user's: its type, its length if it has one, and its identity."""

    name: str
    type: str
    size: int
    identity: int


class Answer(NamedTuple):
    text: str
    is_ready: bool
    json: str | None
    chars: int


Report = tuple[list[Row], Answer | None]


class Ending(NamedTuple):
    """How a cell ended. `crashed`: it was undone, because its worker was killed or gave up.

    `before` is the worker's state before the cell, if it could be kept.
    """

    rows: list[Row]
    answer: Answer | None
    before: bytes | None
    raised: Raised | None = None
    crashed: str | None = None


def read_report(value: Any) -> Report:
    """Check what a worker tells after a cell."""
    try:
        report: Report = msgspec.convert(value, Report)
    except msgspec.ValidationError as error:
        raise ProtocolViolation(f"the report of a cell is malformed: {error}") from None
    return report
