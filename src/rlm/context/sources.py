"""A context whose data stays on the host: only its manifest is stored."""

import json
from typing import Any

from rlm.context.stored import StoredContext
from rlm.data import DataSource, reopen_data
from rlm.errors import ConfigError

__all__ = ["restore_source", "store_source"]


def store_source(source: DataSource) -> StoredContext:
    """Return the context of a source; the same data gives the same bytes."""
    manifest = json.dumps(source.manifest, sort_keys=True).encode()
    return StoredContext("source", manifest, source.description, source=source)


def restore_source(spec: dict[str, Any] | None, sha256: str, description: str) -> StoredContext:
    """Open the data of a recorded run again; ConfigError if it is gone or has changed."""
    found = store_source(reopen_data(spec))
    if found.sha256 != sha256:
        raise ConfigError("the data of this run has changed since; give the same again")
    found.description = description
    return found
