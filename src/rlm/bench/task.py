"""What a task is: it makes samples from seeds, and says how right an answer is."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rlm.errors import ConfigError

__all__ = ["Sample", "Task"]


@dataclass(frozen=True)
class Sample:
    """A query, the context it is about, and what is right.

    The context comes in pieces, the same ones each time they are asked for, so that ten million
    tokens need not be in memory. `gold` is a JSON value; `facts` are for people who look at one.
    """

    query: str
    pieces: Callable[[], Iterable[str]]
    gold: Any
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def context(self) -> str:
        """All of it, in memory."""
        return "".join(self.pieces())


class Task(ABC):
    """Make samples with `generate`, judge answers with `score`; the rest is for lists.

    `version` is to grow whenever the same seed gives another sample or an answer another score:
    results of two versions are never mixed. `smallest` is the least size, in tokens. `in_threads`:
    samples may be made in threads, beside runs. Options are keywords of the constructor.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    scoring: ClassVar[str]
    variants: ClassVar[tuple[str, ...]] = ("",)
    smallest: ClassVar[int] = 500
    version: ClassVar[int] = 1
    in_threads: ClassVar[bool] = True

    def __init__(self, variant: str = "") -> None:
        if variant not in self.variants:
            known = ", ".join(self.variants) if self.variants != ("",) else "none"
            raise ConfigError(f"{self.name} has no variant {variant!r}; variants: {known}")
        self.variant = variant

    @abstractmethod
    def generate(self, seed: int, size: int) -> Sample:
        """The sample of a seed whose context has about `size` tokens, and never more.

        Neighbouring seeds go through the kinds of questions in turn, so that any so many seeds in
        a row cover them evenly.
        """

    @abstractmethod
    def score(self, answer: str, gold: Any) -> float:
        """From 0 to 1. Lenient about the form of an answer, never about what it says."""

    def reference(self, gold: Any) -> str:
        """A right answer, as a model would write it."""
        return str(gold)

    def identity(self) -> str:
        """Changes with everything that makes samples or scores other ones."""
        return str(self.version)
