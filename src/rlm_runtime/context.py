"""A text, or several documents joined to one, with the reading helpers of cells."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rlm.worker.ctx import ContextView

__all__ = ["Context"]


@dataclass(frozen=True)
class Context:
    """What a run is about. Offsets are indices into `text`, exact on any Unicode."""

    text: str
    documents: tuple[str, ...] = ()

    @classmethod
    def from_text(cls, text: str) -> "Context":
        return cls(text, (text,))

    @classmethod
    def from_documents(cls, documents: Iterable[str], separator: str = "\n\n---\n\n") -> "Context":
        documents = tuple(documents)
        return cls(separator.join(documents), documents)

    def slice(self, start: int, end: int) -> str:
        """Return the text from `start` up to `end`, both clamped."""
        return ContextView(self.text).slice(start, end)

    def find(
        self, pattern: str, regex: bool = False, max_matches: int = 20, case_sensitive: bool = True
    ) -> list[tuple[int, int, str]]:
        """Return the first matches as (start, end, text); none for an empty pattern."""
        view = ContextView(self.text)
        return view.find(pattern, regex, max_matches, case_sensitive) if pattern else []

    def chunk(self, size: int, overlap: int = 0) -> list[tuple[int, int, str]]:
        """Return the whole text in pieces of `size` characters, as (start, end, text)."""
        return ContextView(self.text).chunk(size, overlap)

    def chunk_documents(self, docs_per_chunk: int = 10) -> list[tuple[int, int, list[str]]]:
        """Return groups of whole documents, as (first, end, documents)."""
        if docs_per_chunk < 1:
            raise ValueError("chunk_documents needs docs_per_chunk >= 1")
        count = len(self.documents)
        starts = range(0, count, docs_per_chunk)
        spans = [(start, min(start + docs_per_chunk, count)) for start in starts]
        return [(start, end, list(self.documents[start:end])) for start, end in spans]

    def num_documents(self) -> int:
        return len(self.documents)

    def get_document(self, index: int) -> str | None:
        """Return the document of that number, counted from 0, or None."""
        return self.documents[index] if 0 <= index < len(self.documents) else None

    def len_chars(self) -> int:
        return len(self.text)

    def metadata(self) -> dict[str, Any]:
        """Return sizes, never content."""
        lengths = [len(document) for document in self.documents]
        return {
            "total_length": len(self.text),
            "num_documents": len(lengths),
            "document_lengths": lengths,
        }
