"""What the tests of contexts share: a tree of files from a dict, and what a worker would see."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlm.context import StoredContext
from rlm.worker.functions import value_of


def make_tree(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def seen_by_worker(stored: StoredContext, chunk_bytes: int = 1 << 20) -> Any:
    """The value that `context` has in the REPL; checks size, hash and chunks on the way."""
    chunks = list(stored.chunks(chunk_bytes))
    data = b"".join(chunks)
    assert all(len(chunk) == chunk_bytes for chunk in chunks[:-1])
    assert len(data) == stored.size_bytes
    assert hashlib.sha256(data).hexdigest() == stored.sha256
    return value_of(stored.kind, bytearray(data))
