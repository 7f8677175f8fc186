"""What a corpus covers: folders and files, each once; which of them exist; their files."""

import os
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from rlm.data.corpus.folder import is_corpus
from rlm.data.filesystem import skipping
from rlm.data.filesystem.opening import Stamp
from rlm.data.filesystem.skipping import Skipped
from rlm.data.filesystem.walking import Found, reaches, walk

__all__ = ["Entry", "State", "files_of", "mount_above", "outermost", "state_of", "without_corpora"]

MAX_WALK_SECONDS = 24 * 3600.0
DOCUMENT_SUFFIXES = frozenset(
    (".doc", ".docx", ".epub", ".msg", ".odt", ".pdf", ".ppt", ".pptx", ".rtf", ".xls", ".xlsx")
)


class State(Enum):
    """The state of a folder or file that a corpus covers."""

    THERE = "there"
    GONE = "gone"
    UNREADABLE = "unreadable"
    """It may become readable again, so its documents stay."""
    NOT_MOUNTED = "not mounted"


class Entry(NamedTuple):
    """A file, by its name below its source (empty if it is the source); why it is left out."""

    name: str
    stamp: Stamp | None
    reason: str | None


def outermost(path: Path, others: Sequence[Path], corpus: Path) -> Path:
    """Return the outermost of the folders whose walk reaches a path, else the path itself."""
    around = [each for each in others if _covers(each, path, corpus)]
    return min(around, key=lambda each: len(each.parts), default=path)


def _covers(folder: Path, path: Path, corpus: Path) -> bool:
    if folder == path or not path.is_relative_to(folder):
        return False
    if path.is_relative_to(corpus) and not folder.is_relative_to(corpus):
        return False  # What a corpus fetched is a separate source.
    return reaches(folder, path)


def state_of(path: Path, mount: Path | None) -> State:
    """Return whether a source can be scanned; `mount` is its mount point when indexed."""
    if mount is not None and not os.path.ismount(mount):
        return State.NOT_MOUNTED
    try:
        if path.is_dir():
            with os.scandir(path):
                return State.THERE
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return State.GONE
    except OSError:
        return State.UNREADABLE
    return State.THERE


def mount_above(path: Path) -> Path | None:
    """Return the mount point that a path is on; None for the root file system."""
    for each in (path, *path.parents):
        if os.path.ismount(each):
            return each if each != each.parent else None
    return None


def files_of(path: Path, corpus: Path) -> Iterator[Entry]:
    """Yield the files of a folder, or the one file, without the files of the corpus itself."""
    if not path.is_dir():
        yield _entry(Found("", path))
        return
    for each in without_corpora(path, _others(path, corpus)):
        yield Entry(each.name, None, each.reason) if isinstance(each, Skipped) else _entry(each)


def _others(path: Path, corpus: Path) -> Iterator[Found | Skipped]:
    """Yield what is in a folder, without the corpus itself, unless the folder is inside it."""
    for each in walk(path, max_seconds=MAX_WALK_SECONDS):
        inside = isinstance(each, Found) and each.path.is_relative_to(corpus)
        if not inside or path.is_relative_to(corpus):
            yield each


def without_corpora(top: Path, found: Iterable[Found | Skipped]) -> Iterator[Found | Skipped]:
    """Yield what a walk through a folder finds; each corpus in it is yielded once, as skipped."""
    checked: str | None = None
    corpus: str | None = None
    for each in found:
        if corpus is not None and each.name.startswith(corpus):
            continue
        parent = each.name.rpartition("/")[0]
        if isinstance(each, Found) and parent != checked:
            checked = parent
            if is_corpus(top / parent):
                corpus = f"{parent}/" if parent else ""
                yield Skipped(parent, skipping.CORPUS)
                continue
        yield each


def _entry(found: Found) -> Entry:
    try:
        if found.path.is_symlink():
            return Entry(found.name, None, skipping.FILE_LINK)
        stamp = Stamp.of(found.path.stat())
    except OSError:
        return Entry(found.name, None, skipping.UNREADABLE)
    if stamp.size == 0:
        return Entry(found.name, stamp, skipping.EMPTY)
    is_plain = found.path.suffix.lower() not in DOCUMENT_SUFFIXES
    return Entry(found.name, stamp, None if is_plain else skipping.NOT_PLAIN)
