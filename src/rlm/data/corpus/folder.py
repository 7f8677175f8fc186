"""The folder of a corpus: its files, its version, and the lock of the writing process."""

import contextlib
import json
import os
import stat
from collections.abc import Generator
from pathlib import Path
from typing import Any

from rlm._util.atomic import replacing
from rlm._util.files import BINARY, CLOEXEC, lock
from rlm._util.text import counted
from rlm.data.filesystem.opening import display_path
from rlm.errors import ConfigError

__all__ = ["CorpusFolder", "damaged", "forbidden", "is_corpus", "refuse_corpus"]

FORMAT = "rlm-corpus"
VERSION = 1
_MAX_BYTES = 1 << 16
_SHARED = 0o666
"""The mode of files, which the umask restricts."""


class CorpusFolder:
    """Where everything is: `corpus.json`, the catalog of documents, and the full-text index."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.about = path / "corpus.json"
        self.catalog = path / "catalog.sqlite"
        self.index = path / "index"
        self.places = path / "places"
        self._lock = path / "lock"

    def create(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Make a new corpus, or return the settings of the existing one."""
        self.check()
        if self.about.exists():
            return self.read()
        about = {"format": FORMAT, "version": VERSION, "id": os.urandom(8).hex(), **settings}
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with replacing(self.about, _SHARED) as file:
                file.write(json.dumps(about, indent=1).encode())
        except OSError as error:
            raise ConfigError(f"{self} can't be written: {_reason(error)}") from error
        return about

    def check(self) -> None:
        """Raise if the folder exists and holds anything other than a corpus."""
        try:
            if self.about.exists():
                self.read()
                return
            entries = [each.name for each in self.path.iterdir()] if self.path.exists() else []
        except ConfigError:
            raise
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self} can't be written: {_reason(error)}") from error
        others = set(entries) - {"lock", "catalog.sqlite", "catalog.sqlite-journal", "index"}
        if others:
            raise ConfigError(
                f"{self} contains {counted(len(others), 'other file')} and is not a corpus; choose "
                "a new folder with -o"
            )

    def make_private(self) -> None:
        """Let only the owner read the corpus, because it will hold fetched files."""
        if not self.places.exists():
            with contextlib.suppress(PermissionError):  # Another user's folder is left alone.
                self.path.chmod(0o700)

    def align_modes(self) -> None:
        """Give all index files the mode of corpus.json: tantivy makes some private."""
        try:
            wanted = stat.S_IMODE(self.about.stat().st_mode)
            files = [*self.path.iterdir(), *self.index.iterdir()]
        except OSError:
            return
        for each in files:
            with contextlib.suppress(OSError):  # It is gone, or belongs to another user.
                mode = each.lstat().st_mode
                if stat.S_ISREG(mode) and stat.S_IMODE(mode) != wanted:
                    each.chmod(wanted)

    def read(self) -> dict[str, Any]:
        """Return the contents of corpus.json; ConfigError if it is missing, damaged or too new."""
        try:
            with self.about.open("rb") as file:
                found = json.loads(file.read(_MAX_BYTES))
        except FileNotFoundError:
            raise ConfigError(
                f"{self} is not a corpus: it has no corpus.json; create one with rlm index FOLDER "
                f"-o {self}"
            ) from None
        except PermissionError:
            raise forbidden(self.about) from None
        except OSError as error:
            raise ConfigError(f"{self} can't be read: {_reason(error)}") from error
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            if self.catalog.exists() and self.index.exists():
                raise damaged(self.path, "corpus.json")
            raise ConfigError(
                f"{self} is not a corpus: rlm index did not write its corpus.json; choose another "
                "folder"
            )
        if found.get("version") != VERSION:
            raise ConfigError(
                f"{self} has version {str(found.get('version'))[:20]} of the format, and this rlm "
                f"reads version {VERSION}; index its sources again into a new folder"
            )
        return found

    @contextlib.contextmanager
    def locked(self) -> Generator[None, None, None]:
        """Keep other writers out; the lock ends with the process, however it ends."""
        self.check()  # Never write into a folder that is something else.
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | BINARY | CLOEXEC, _SHARED)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self} can't be written: {_reason(error)}") from error
        try:
            lock(fd)
        except BlockingIOError:
            os.close(fd)
            raise ConfigError(
                f"another process is writing to {self}; wait until it ends, or stop it"
            ) from None
        try:
            yield
        finally:
            os.close(fd)

    def __str__(self) -> str:
        return display_path(self.path)


def is_corpus(path: Path) -> bool:
    """Return whether a path is the folder of a corpus, whatever its version."""
    try:
        with (path / "corpus.json").open("rb") as file:
            return FORMAT.encode() in file.read(_MAX_BYTES)
    except PermissionError:  # If it is a corpus, opening it reports the error.
        with contextlib.suppress(OSError):
            return (path / "catalog.sqlite").exists()
        return False
    except (OSError, ValueError):
        return False


def refuse_corpus(path: Path) -> None:
    """Raise if a path that is passed with others, or by name, is a corpus."""
    if is_corpus(path):
        raise ConfigError(
            f"{display_path(path)} is a corpus, which can't be combined with other contexts: ask "
            "about it alone"
        )


def forbidden(path: Path, what: str = "read") -> ConfigError:
    """Return the error for a file of a corpus that this user may not read, or write."""
    return ConfigError(
        f"no permission to {what} {display_path(path)}; change its mode, or ask the owner of the "
        "corpus to do so"
    )


def full(path: Path) -> ConfigError:
    """Return the error for a disk that is full."""
    return ConfigError(
        f"there is no space left on the disk for {display_path(path)}; free some, and run "
        "rlm index again: what is done is kept"
    )


def damaged(path: Path, what: str) -> ConfigError:
    """Return the error for a file of a corpus that can't be used."""
    return ConfigError(
        f"{display_path(path)} is damaged ({what}): remove the folder and run rlm index again; "
        "the source files are untouched"
    )


def _reason(error: OSError | ValueError) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
