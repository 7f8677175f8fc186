"""Full-text search over many runs: an index on disk that can be rebuilt at any time."""

from rlm.records.searching.index import (
    FileTexts,
    FoundRun,
    IndexedText,
    ReadFile,
    SearchIndex,
    SearchResult,
    index_path,
)

__all__ = [
    "FileTexts",
    "FoundRun",
    "IndexedText",
    "ReadFile",
    "SearchIndex",
    "SearchResult",
    "index_path",
]
