"""A context whose data stays on the host: only its manifest is stored."""

import json
from typing import TYPE_CHECKING, Any

from rlm.context.stored import StoredContext
from rlm.errors import ConfigError

if TYPE_CHECKING:  # Imported where they are used: few programs use them.
    from rlm.data import DataSource

__all__ = ["restore_source", "store_source"]


def store_source(source: "DataSource") -> StoredContext:
    """Return the context of a source; the same data gives the same bytes."""
    manifest = json.dumps(source.manifest, sort_keys=True).encode()
    return StoredContext("source", manifest, source.description, source=source)


def restore_source(spec: dict[str, Any] | None, sha256: str, description: str) -> StoredContext:
    """Open the data of a recorded run again; ConfigError if it is gone or has changed."""
    from rlm.data import reopen_data

    found = store_source(reopen_data(spec))
    if found.sha256 != sha256:
        raise ConfigError("the data of this run has changed since then; pass the same data again")
    found.description = description
    return found
