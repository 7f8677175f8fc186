"""Turn what users pass in into one stored blob, described only by its structure.

Values are encoded once per run; files are read again for every session of the tree. Their text
never enters a message or a log, which hold only hash, size and description.
"""

from rlm.context.citable import citable_texts
from rlm.context.describe import describe
from rlm.context.fileset import FileSet, files
from rlm.context.store import (
    ContextValue,
    EncodedJson,
    restore_source,
    store_context,
    store_encoded,
    store_source,
    warn_of_path,
)
from rlm.context.stored import StoredContext
from rlm.data.filesystem.skipping import Skipped

__all__ = [
    "ContextValue",
    "EncodedJson",
    "FileSet",
    "Skipped",
    "StoredContext",
    "citable_texts",
    "describe",
    "files",
    "restore_source",
    "store_context",
    "store_encoded",
    "store_source",
    "warn_of_path",
]
