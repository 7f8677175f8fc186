"""Corpora larger than memory: documents that stay in their files, and an index to find them.

`update_corpus` makes or updates the folder of a corpus; `Corpus` reads it. The index is tantivy's
(the extra `corpus`); the text of documents is read from the source files, which are not copied.
"""

from typing import TYPE_CHECKING

from rlm._util.lazy import on_demand

if TYPE_CHECKING:
    from rlm.data.corpus.corpus import Corpus, GrepMatches, Hit, Match
    from rlm.data.corpus.folder import is_corpus
    from rlm.data.corpus.fulltext import SearchRefused
    from rlm.data.corpus.indexing import BatchSize, Indexed, update_corpus
    from rlm.data.corpus.reading import SourceChanged
    from rlm.data.corpus.records import Fields

__all__ = [
    "BatchSize",
    "Corpus",
    "Fields",
    "GrepMatches",
    "Hit",
    "Indexed",
    "Match",
    "SearchRefused",
    "SourceChanged",
    "is_corpus",
    "update_corpus",
]

__getattr__, __dir__ = on_demand(
    __name__,
    {
        "BatchSize": "indexing",
        "Corpus": "corpus",
        "Fields": "records",
        "GrepMatches": "corpus",
        "Hit": "corpus",
        "Indexed": "indexing",
        "Match": "corpus",
        "SearchRefused": "fulltext",
        "SourceChanged": "reading",
        "is_corpus": "folder",
        "update_corpus": "indexing",
    },
)
