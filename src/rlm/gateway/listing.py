"""The files below a folder of a root, page by page, in a stable order.

Nothing is stored between pages: a page begins after the name that ended the previous one.
"""

import contextlib
import os
import stat
import time
from collections.abc import Callable, Generator, Iterator, Sequence

from msgspec import Struct

from rlm._util.limited import check_wanted
from rlm.data.filesystem.ignoring import IgnoreRules, rules_above
from rlm.gateway.errors import Refused
from rlm.gateway.paths import Root

__all__ = ["Entry", "Page", "TookTooLong", "files_below", "list_page"]

MAX_ENTRIES = 200
MAX_DEPTH = 64
MAX_SECONDS = 30.0


class TookTooLong(Refused):
    """A folder has too many entries to read in time."""


class _TimeIsUp(Exception):
    """Ends a walk at any depth, while a refusal would only skip one folder."""


class Entry(Struct, frozen=True):
    """A file, by the parts of its path below the root."""

    parts: tuple[str, ...]
    size_bytes: int

    @property
    def path(self) -> str:
        return "/".join(self.parts)


class Page(Struct, frozen=True):
    """Some of the files; `after` is where the next page begins, None on the last page."""

    entries: tuple[Entry, ...]
    after: tuple[str, ...] | None


def list_page(
    root: Root, below: Sequence[str], after: tuple[str, ...] | None, most: int, *, ignored: bool
) -> Page:
    """Return the next files below a folder; with `ignored`, include those that git ignores."""
    most = max(1, min(most, MAX_ENTRIES))
    found: list[Entry] = []
    try:
        with contextlib.closing(files_below(root, below, after, ignored=ignored)) as entries:
            for entry in entries:
                if len(found) == most:
                    return Page(tuple(found), found[-1].parts)
                found.append(entry)
    except TookTooLong:
        if not found:
            raise
        return Page(tuple(found), found[-1].parts)
    return Page(tuple(found), None)


def files_below(
    root: Root, below: Sequence[str], after: tuple[str, ...] | None = None, *, ignored: bool = False
) -> Generator[Entry, None, None]:
    """Yield every regular file that clients may see, folder by folder, sorted by name.

    Raises TookTooLong after a while, because folders may be deep and full.
    """
    top, deadline = tuple(below), time.monotonic() + MAX_SECONDS

    def check_time() -> None:
        check_wanted()
        if time.monotonic() > deadline:
            raise _TimeIsUp

    rules = IgnoreRules() if ignored else rules_above(root.path.joinpath(*top), root.path)
    try:
        yield from _walk(root, top, rules, after, ignored, check_time)
    except _TimeIsUp:
        raise TookTooLong(
            f"listing this folder takes more than {MAX_SECONDS:.0f} s; choose a smaller one"
        ) from None


def _walk(
    root: Root,
    folder: tuple[str, ...],
    rules: IgnoreRules,
    after: tuple[str, ...] | None,
    ignored: bool,
    check_time: Callable[[], None],
) -> Iterator[Entry]:
    prefix = "".join(f"{part}/" for part in folder)
    if not ignored:
        rules = rules.entering(root.path.joinpath(*folder), prefix)
    fd = root.open_folder(folder)
    try:
        for name in _names(fd, None if after is None else after[len(folder) : len(folder) + 1]):
            check_time()
            parts = (*folder, name)
            facts = _facts(fd, name)
            if facts is None or root.denials.forbid(parts):
                continue
            is_folder = stat.S_ISDIR(facts.st_mode)
            if rules.ignore(prefix + name, is_folder=is_folder):
                continue
            if is_folder and len(parts) < MAX_DEPTH:
                within = after if after is not None and after[: len(parts)] == parts else None
                with contextlib.suppress(
                    Refused
                ):  # It is gone, or not accessible; continue with the others.
                    yield from _walk(root, parts, rules, within, ignored, check_time)
            elif stat.S_ISREG(facts.st_mode) and (after is None or parts > after):
                yield Entry(parts, facts.st_size)
    finally:
        os.close(fd)


def _names(fd: int, first: tuple[str, ...] | None) -> list[str]:
    """Return the names in a folder from the first wanted one on, sorted."""
    try:
        with os.scandir(fd) as entries:
            return sorted(each.name for each in entries if not first or each.name >= first[0])
    except OSError:
        raise Refused("this folder can't be listed") from None


def _facts(fd: int, name: str) -> os.stat_result | None:
    """Return the kind of an entry; a link is never followed."""
    try:
        return os.stat(name, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return None  # it is gone
