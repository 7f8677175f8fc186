"""What was fetched, on disk: contents by their hashes, and folders that show them by name.

    contents/ab/abcd…    what an object held, by its SHA-256
    versions/ab/abcd…    which content a version of an object has
    folders/abcd…/       the files of one fetch: hard links to contents

Only its user can access the folder. What has not been used for two weeks is removed.
"""

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from pathlib import Path

from rlm._util.files import BINARY, writers_problem
from rlm._util.finding import base_folder
from rlm.data.filesystem.opening import display_path
from rlm.errors import ConfigError

__all__ = ["FetchedFiles", "Unfinished"]

UNUSED_SECONDS = 14 * 24 * 3600.0
FREE_BYTES = 256 << 20
"""How much space must stay free on the disk."""
_HEX_CHARS = 64
_PRIVATE = 0o700
_UNFINISHED = "unfinished-"


class Unfinished:
    """A content that is being written; `size` is how much was written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._file = os.fdopen(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, 0o400), "wb"
        )
        self._hash = hashlib.sha256()

    def write(self, block: bytes) -> None:
        self._file.write(block)
        self._hash.update(block)
        self.size += len(block)

    def restart(self) -> None:
        """Forget what was written."""
        self._file.seek(0)
        self._file.truncate()
        self._hash, self.size = hashlib.sha256(), 0

    def close(self) -> str:
        """Return the hash of what was written."""
        self._file.close()
        return self._hash.hexdigest()


class FetchedFiles:
    """The folder of everything that was fetched."""

    def __init__(self) -> None:
        self.root = base_folder(os.environ, "XDG_CACHE_HOME", ".cache") / "rlm" / "places"
        self._contents = self.root / "contents"
        self._versions = self.root / "versions"
        self._folders = self.root / "folders"
        try:
            for each in (self.root, self._contents, self._versions, self._folders):
                each.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            facts = self.root.lstat()
            if problem := writers_problem(facts):
                raise ConfigError(f"{display_path(self.root)} is not safe to use: {problem}")
            if sys.platform != "win32" and stat.S_IMODE(facts.st_mode) != _PRIVATE:
                self.root.chmod(_PRIVATE)
        except OSError as error:
            raise ConfigError(
                f"{display_path(self.root)} can't be used: {error.strerror}; set XDG_CACHE_HOME to "
                "a folder of your own"
            ) from error

    def free_bytes(self) -> int:
        """Return how much may still be written to the disk."""
        return max(0, shutil.disk_usage(self.root).free - FREE_BYTES)

    # -- contents ------------------------------------------------------------------------------

    def known(self, version: str, size: int | None) -> str | None:
        """Return the content of a version of an object; None if it has to be fetched."""
        try:
            found = self._version(version).read_text("ascii")
            if len(found) != _HEX_CHARS or not found.isalnum():
                return None
            held = self._content(found).stat().st_size
        except (OSError, ValueError):
            return None
        return found if size is None or held == size else None

    def note(self, version: str, content: str) -> None:
        """Remember which content a version of an object has."""
        path = self._version(version)
        path.parent.mkdir(mode=_PRIVATE, exist_ok=True)
        with contextlib.suppress(OSError):  # Then it is fetched again.
            path.write_text(content, "ascii")

    @contextlib.contextmanager
    def adding(self) -> Generator[Unfinished, None, None]:
        """Open a file for a content; unless `add` keeps it, it is removed."""
        unfinished = Unfinished(self._contents / f"{_UNFINISHED}{secrets.token_hex(8)}")
        try:
            yield unfinished
        finally:
            unfinished.close()
            unfinished.path.unlink(missing_ok=True)

    def add(self, unfinished: Unfinished) -> str:
        """Keep a content, and return its hash."""
        content = unfinished.close()
        path = self._content(content)
        path.parent.mkdir(mode=_PRIVATE, exist_ok=True)
        if not path.exists():
            unfinished.path.replace(path)
        return content

    # -- folders -------------------------------------------------------------------------------

    def folder(self, files: Mapping[str, str]) -> Path:
        """Return a folder with these contents by name; the same contents give the same folder."""
        listed = json.dumps(sorted(files.items())).encode()
        path = self._folders / hashlib.sha256(listed).hexdigest()[:32]
        if not path.is_dir():
            made = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self._folders))
            try:
                self.lay_out(made, files)
                with contextlib.suppress(FileExistsError, OSError):  # Another process was faster.
                    made.rename(path)
            finally:
                shutil.rmtree(made, ignore_errors=True)
        os.utime(path)
        return path

    def lay_out(
        self, folder: Path, files: Mapping[str, str], before: Mapping[str, str] | None = None
    ) -> None:
        """Make a folder hold exactly these contents by name; `before` is what it holds now.

        Files with unchanged content are left alone.
        """
        before = before or {}
        for name in before.keys() - files.keys():
            (folder / name).unlink(missing_ok=True)
            for parent in (folder / name).parents:
                if parent == folder or not parent.is_relative_to(folder):
                    break
                with contextlib.suppress(OSError):  # It is not empty.
                    parent.rmdir()
        for name, content in files.items():
            path = folder / name
            if before.get(name) == content and path.is_file():
                continue
            path.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            self._place(content, path)

    def _place(self, content: str, path: Path) -> None:
        beside = path.with_name(f".{secrets.token_hex(8)}")
        try:
            os.link(self._content(content), beside)
        except OSError:  # Another disk, too many links, or no links at all.
            shutil.copyfile(self._content(content), beside)
        beside.replace(path)

    def forget_unused(self) -> None:
        """Remove what was not used for long: folders, then contents that are in no folder."""
        before = time.time() - UNUSED_SECONDS
        for folder in self._old(self._folders.iterdir(), before):
            gone = folder.with_name(f"{_UNFINISHED}{secrets.token_hex(8)}")
            with contextlib.suppress(OSError):
                folder.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)
        for kind in (self._contents, self._versions):
            for path in self._old(kind.glob("*/*"), before):
                with contextlib.suppress(OSError):
                    if path.stat().st_nlink == 1:
                        path.unlink()
        for path in self._old(self._contents.glob(f"{_UNFINISHED}*"), before):
            path.unlink(missing_ok=True)

    @staticmethod
    def _old(paths: "Generator[Path, None, None]", before: float) -> Generator[Path, None, None]:
        for path in paths:
            with contextlib.suppress(OSError):
                if path.lstat().st_mtime < before:
                    yield path

    def _content(self, digest: str) -> Path:
        return self._contents / digest[:2] / digest

    def _version(self, version: str) -> Path:
        digest = hashlib.sha256(version.encode("utf-8", "surrogatepass")).hexdigest()
        return self._versions / digest[:2] / digest
