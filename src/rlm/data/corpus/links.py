"""Read an index in a read-only folder, although tantivy locks a file there to read.

A temporary folder has links to the files of the index, and its own lock file. The real lock would
keep the writer from deleting files that are about to be opened; without it, opening is retried.
"""

import os
import shutil
import tempfile
import weakref
from pathlib import Path

from rlm.errors import ConfigError

__all__ = ["IndexLinks", "can_lock"]

LOCK = ".tantivy-meta.lock"
_NOT_LINKED = (".managed.json", ".lock")
"""The list of files that the writer may delete, and the locks."""


def can_lock(index: Path) -> bool:
    """Return whether this user can lock an index, as a reader does briefly."""
    file = index / LOCK
    effective = os.access in os.supports_effective_ids
    return os.access(file if file.exists() else index, os.W_OK, effective_ids=effective)


class IndexLinks:
    """A temporary folder with links to the files of an index."""

    def __init__(self, index: Path) -> None:
        self._index = index.absolute()
        self.path = Path(tempfile.mkdtemp(prefix="rlm-corpus-"))
        # A corpus need not be closed: the folder is removed with it, or at exit.
        self._remove = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def update(self) -> None:
        """Link the files that exist now, and drop links to those that are gone."""
        try:
            there = {each.name for each in self._index.iterdir()}
            names = {name for name in there if not name.endswith(_NOT_LINKED)}
            linked = {each.name for each in self.path.iterdir() if each.is_symlink()}
            for name in names - linked:
                (self.path / name).symlink_to(self._index / name)
            for name in linked - names:
                (self.path / name).unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"the index can't be opened read-only: {error.strerror}") from error

    def close(self) -> None:
        self._remove()
