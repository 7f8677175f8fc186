"""Types and functions that the tests of tools share."""

import dataclasses
import datetime
import enum
from typing import TypedDict

import msgspec
import pydantic


class City(pydantic.BaseModel):
    name: str
    people: int = 0


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclasses.dataclass
class Row:
    id: int
    day: datetime.date


class Color(enum.Enum):
    RED = "red"


class Filter(TypedDict, total=False):
    word: str


def search(q: str, limit: int = 5) -> list[str]:
    """Search the archive
    for a word.

    What follows is not shown.
    """
    return [q] * limit


class Archive:
    """An archive."""

    def __init__(self, size: int) -> None:
        self.size = size

    def look(self, key: str) -> str:
        return key * self.size

    def __call__(self, key: str) -> str:
        return self.look(key)
