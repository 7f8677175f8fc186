"""A text, or several documents joined to one, with the reading helpers of cells."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rlm.worker.ctx import ContextView

__all__ = ["Context"]


@dataclass(frozen=True)
class Context(ContextView):
    """What a run is about. Offsets are indices into `text`, exact on any Unicode.

    It reads as `ctx` does in cells: `slice`, `chunk`, `get_document`, `metadata` and so on.
    """

    text: str
    documents: Any = ()

    def __post_init__(self) -> None:
        several = len(self.documents) > 1
        object.__setattr__(self, "_payload", self.documents if several else self.text)

    @classmethod
    def from_text(cls, text: str) -> "Context":
        return cls(text, (text,))

    @classmethod
    def from_documents(cls, documents: Iterable[str], separator: str = "\n\n---\n\n") -> "Context":
        documents = tuple(documents)
        return cls(separator.join(documents), documents)

    def find(
        self, pattern: str, regex: bool = False, max_matches: int = 20, case_sensitive: bool = True
    ) -> list[tuple[int, int, str]]:
        """Return the first matches as (start, end, text); none for an empty pattern."""
        return super().find(pattern, regex, max_matches, case_sensitive) if pattern else []

    def __bool__(self) -> bool:
        return True

    @property
    def _text(self) -> str:
        return self.text
