"""Walk a folder the way git sees it."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rlm._util.limited import check_wanted, in_thread
from rlm.data.filesystem import skipping
from rlm.data.filesystem.denial import SURE_SECRETS, Denials
from rlm.data.filesystem.ignoring import IgnoreRules, rules_above
from rlm.data.filesystem.opening import display_path, unreadable
from rlm.data.filesystem.skipping import Skipped
from rlm.errors import ConfigError

__all__ = ["Found", "reaches", "walk", "walk_in_thread"]

TOOL_FOLDERS = frozenset(
    (
        ".cache",
        ".eggs",
        ".git",
        ".gradle",
        ".hg",
        ".hypothesis",
        ".ipynb_checkpoints",
        ".mypy_cache",
        ".nox",
        ".pytest_cache",
        ".ruff_cache",
        ".svn",
        ".terraform",
        ".tox",
        ".venv",
        "__pycache__",
        "node_modules",
        "venv",
    )
)

SECRETS = Denials(SURE_SECRETS)

MAX_SECONDS = 300.0
"""A folder that takes longer to walk is refused."""


class Found(NamedTuple):
    """A regular file: its name relative to the walked folder, with slashes."""

    name: str
    path: Path


class _Folder(NamedTuple):
    path: Path
    prefix: str
    rules: IgnoreRules


def walk(
    folder: Path,
    root: Path | None = None,
    max_seconds: float | None = None,
    *,
    secrets: bool = False,
) -> Iterator[Found | Skipped]:
    """Yield every file below a folder, in order of name.

    Links to files inside are followed; links to folders are not, so there are no loops. If the
    folder is below `root`, the .gitignore files on the way also count. Files that usually hold
    secrets are skipped, unless `secrets` is true.
    """
    most = MAX_SECONDS if max_seconds is None else max_seconds
    top, deadline = folder.resolve(), time.monotonic() + most
    ahead = [_Folder(folder, "", rules_above(top, root and root.resolve()))]
    while ahead:
        here = ahead.pop()
        try:
            with os.scandir(here.path) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            if not here.prefix:
                raise unreadable(folder, error) from error
            yield Skipped(here.prefix.removesuffix("/"), skipping.UNREADABLE)
            continue
        rules = here.rules.entering(here.path, here.prefix)
        for entry in entries:
            _check_time(folder, deadline)
            name = here.prefix + entry.name
            if (reason := _reason(entry, name, rules, top)) is not None:
                yield Skipped(name, reason)
            elif not secrets and _is_secret(entry, top):
                yield Skipped(name, skipping.SENSITIVE)
            elif entry.is_dir(follow_symlinks=False):
                ahead.append(_Folder(Path(entry.path), f"{name}/", rules))
            else:
                yield Found(name, Path(entry.path))


async def walk_in_thread(folder: Path) -> list[Found | Skipped]:
    """Walk in a separate thread; cancelling ends the walk."""
    return await in_thread(lambda: list(walk(folder)))


def reaches(folder: Path, path: Path) -> bool:
    """Return whether a walk reaches a path below a folder: no rule leaves it out."""
    rules, here, prefix = rules_above(folder.resolve()), folder, ""
    for part in path.relative_to(folder).parts:
        rules = rules.entering(here, prefix)
        here, name = here / part, prefix + part
        is_folder = here != path or here.is_dir()
        if part in TOOL_FOLDERS and (is_folder or part == ".git"):
            return False
        if rules.ignore(name, is_folder=is_folder) or SECRETS.forbid((part,)):
            return False
        prefix = f"{name}/"
    return True


def _check_time(folder: Path, deadline: float) -> None:
    check_wanted()
    if time.monotonic() > deadline:
        raise ConfigError(
            f"walking through {display_path(folder)} takes more than {MAX_SECONDS:.0f} s; pass a "
            "smaller folder, or a pattern: files('**/*.txt') in Python, '**/*.txt' in the shell"
        )


def _reason(entry: os.DirEntry[str], name: str, rules: IgnoreRules, top: Path) -> str | None:
    """Return why an entry is left out; None if it is not."""
    is_folder = entry.is_dir(follow_symlinks=False)
    if entry.name in TOOL_FOLDERS and (is_folder or entry.name == ".git"):
        return skipping.TOOL_FOLDER
    if rules.ignore(name, is_folder=is_folder):
        return skipping.IGNORED
    if entry.is_symlink():
        return _reason_for_link(Path(entry.path), top)
    return None if is_folder or entry.is_file(follow_symlinks=False) else skipping.SPECIAL


def _is_secret(entry: os.DirEntry[str], top: Path) -> bool:
    """Return whether an entry, or the file inside that it links to, is named like a secret.

    The folders above an entry were checked when they were entered.
    """
    if SECRETS.forbid((entry.name,)):
        return True
    return entry.is_symlink() and SECRETS.forbid(Path(entry.path).resolve().relative_to(top).parts)


def _reason_for_link(link: Path, top: Path) -> str | None:
    try:
        target = link.resolve(strict=True)
    except (OSError, RuntimeError):  # Python 3.11 and 3.12 raise RuntimeError for a loop
        return skipping.BROKEN_LINK
    if not target.is_relative_to(top) or TOOL_FOLDERS.intersection(target.relative_to(top).parts):
        return skipping.OUTER_LINK
    if target.is_dir():
        return skipping.FOLDER_LINK
    return None if target.is_file() else skipping.SPECIAL
