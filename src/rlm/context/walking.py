"""Find the files of folders, globs and repositories."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rlm._util.limited import check_wanted
from rlm.context import skipping
from rlm.context.fileset import FileSet
from rlm.context.ignoring import IgnoreRules, rules_above
from rlm.context.opening import is_folder, shown, unreadable
from rlm.context.skipping import Skipped
from rlm.errors import ConfigError

__all__ = ["Found", "Gathered", "gather_folder", "gather_paths", "gather_set", "walk"]

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


MOST_SECONDS = 300.0
"""A folder that takes longer to walk is refused."""


class Found(NamedTuple):
    """A regular file: its name relative to the walked folder, with slashes."""

    name: str
    path: Path


class _Folder(NamedTuple):
    path: Path
    prefix: str
    rules: IgnoreRules


def walk(folder: Path, root: Path | None = None) -> Iterator[Found | Skipped]:
    """Yield every file below a folder, in the order of names.

    Links to files inside are followed; links to folders are not, so there are no loops. If the
    folder is below `root`, the .gitignore files on the way count, too.
    """
    top, deadline = folder.resolve(), time.monotonic() + MOST_SECONDS
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
            elif entry.is_dir(follow_symlinks=False):
                ahead.append(_Folder(Path(entry.path), f"{name}/", rules))
            else:
                yield Found(name, Path(entry.path))


def _check_time(folder: Path, deadline: float) -> None:
    check_wanted()
    if time.monotonic() > deadline:
        raise ConfigError(
            f"it takes more than {MOST_SECONDS:.0f} s to walk through {shown(folder)}; hand in a "
            "smaller folder, or choose with files('**/*.txt')"
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


MOST_FILES = 100_000


@dataclass
class Gathered:
    """Files by their whole paths, and what was left out; `base` is where names begin."""

    what: str
    base: Path
    asked: dict[Path, bool] = field(default_factory=dict)
    """Whether the caller named the file itself: then a problem with it is an error."""
    left_out: dict[Path, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def add(self, path: Path, *, asked: bool) -> None:
        self.asked[path] = asked or self.asked.get(path, False)
        self._check()

    def add_folder(self, folder: Path, entries: Iterator[Found | Skipped]) -> int:
        """Add what a walk finds, and return the number of files."""
        number = 0
        for each in entries:
            if isinstance(each, Skipped):
                self.left_out[folder / each.name] = each.reason
                self._check()
            else:
                self.add(each.path, asked=False)
                number += 1
        return number

    def named(self) -> list[tuple[str, Path]]:
        """Return the files, in order of their names, which are relative and have slashes."""
        return sorted((self._name(path), path) for path in self.asked)

    def skipped(self) -> list[Skipped]:
        pairs = self.left_out.items()
        return [Skipped(self._name(path), why) for path, why in pairs if path not in self.asked]

    def _name(self, path: Path) -> str:
        return path.relative_to(self.base).as_posix()

    def _check(self) -> None:
        if len(self.asked) + len(self.left_out) > MOST_FILES:
            raise ConfigError(
                f"{self.what} holds more than {MOST_FILES:,} files; hand in a smaller folder, "
                "or choose with files('**/*.txt')"
            )


def gather_folder(folder: Path) -> Gathered:
    """Return everything in a folder, by names relative to it."""
    folder = _whole(folder)
    gathered = Gathered(shown(folder), folder)
    gathered.add_folder(folder, walk(folder))
    return gathered


def gather_paths(paths: Sequence[Path]) -> Gathered:
    """Return files and folders, by names relative to the deepest folder that holds them all."""
    whole = [_whole(path) for path in paths]
    gathered = Gathered("what was handed in", _common([path.parent for path in whole]))
    for path in whole:
        if is_folder(path):
            gathered.add_folder(path, walk(path))
        else:
            gathered.add(path, asked=True)
    return gathered


def gather_set(chosen: FileSet) -> Gathered:
    """Return what patterns find, by names relative to their root, or to what holds it all."""
    root = _whole(chosen.root)
    gathered = Gathered(" ".join(map(shown, chosen.patterns)), root)
    missed = [pattern for pattern in chosen.patterns if not _add_pattern(gathered, chosen, pattern)]
    if len(missed) == len(chosen.patterns):
        raise ConfigError(f"no file matches {gathered.what} in {shown(root)}; check the pattern")
    gathered.remarks += [f"no file matches {shown(pattern)}" for pattern in missed]
    everything = (*gathered.asked, *gathered.left_out)
    if not all(path.is_relative_to(root) for path in everything):
        gathered.base = _common([path.parent for path in everything])
    return gathered


def _add_pattern(gathered: Gathered, chosen: FileSet, pattern: str) -> int:
    """Add what one pattern finds, and return the number of files."""
    place, wildcards = chosen.split(pattern)
    place = _whole(place)
    if is_folder(place):
        entries = chosen.matches(place, wildcards) if wildcards else walk(place)
        return gathered.add_folder(place, entries)
    if wildcards:
        return 0
    gathered.add(place, asked=True)
    return 1


def _whole(path: Path) -> Path:
    return Path(os.path.normpath(path.absolute()))


def _common(paths: Sequence[Path]) -> Path:
    return Path(os.path.commonpath(paths))
