"""Find the files that a folder, several paths or patterns name."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlm.context.fileset import FileSet
from rlm.data.corpus.covering import without_corpora
from rlm.data.corpus.folder import refuse_corpus
from rlm.data.filesystem.opening import display_path, is_folder
from rlm.data.filesystem.skipping import Skipped
from rlm.data.filesystem.walking import Found, walk
from rlm.errors import ConfigError

__all__ = ["Gathered", "gather_folder", "gather_paths", "gather_set"]

MAX_FILES = 100_000


@dataclass
class Gathered:
    """Files by their full paths, and what was left out; names are relative to `base`."""

    what: str
    base: Path
    labels: Mapping[Path, str] = field(default_factory=dict)
    """Folders elsewhere, and the labels that begin the names of their files."""
    asked: dict[Path, bool] = field(default_factory=dict)
    """Whether the caller named the file itself, so that a problem with it is an error."""
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

    def named_files(self) -> list[tuple[str, Path]]:
        """Return the files sorted by name; names are relative and have slashes."""
        return sorted((self._name(path), path) for path in self.asked)

    def skipped(self) -> list[Skipped]:
        pairs = self.left_out.items()
        return [Skipped(self._name(path), why) for path, why in pairs if path not in self.asked]

    def _name(self, path: Path) -> str:
        for folder, label in self.labels.items():
            if path.is_relative_to(folder):
                return f"{label}/{path.relative_to(folder).as_posix()}"
        return path.relative_to(self.base).as_posix()

    def _check(self) -> None:
        if len(self.asked) + len(self.left_out) > MAX_FILES:
            raise ConfigError(
                f"{self.what} contains more than {MAX_FILES:,} files; pass a smaller folder, or "
                "a pattern: files('**/*.txt') in Python, '**/*.txt' in the shell"
            )


def gather_folder(folder: Path, fetched_from: str | None = None) -> Gathered:
    """Return everything in a folder, by names relative to it.

    If it was fetched, errors say from where, and nothing in it is treated as a corpus.
    """
    folder = _whole(folder)
    gathered = Gathered(fetched_from or display_path(folder), folder)
    gathered.add_folder(folder, walk(folder) if fetched_from else _local(folder))
    return gathered


def gather_paths(paths: Sequence[Path], labels: Mapping[Path, str]) -> Gathered:
    """Return files and folders, by names relative to the deepest folder that holds them all.

    The names of files in a folder with a label begin with the label.
    """
    whole = [_whole(path) for path in paths]
    local = [path.parent for path in whole if path not in labels]
    gathered = Gathered("the given context", _common(local or whole), labels)
    for path in whole:
        if path not in labels:
            refuse_corpus(path)
        if is_folder(path):
            gathered.add_folder(path, walk(path) if path in labels else _local(path))
        else:
            gathered.add(path, asked=True)
    return gathered


def gather_set(chosen: FileSet) -> Gathered:
    """Return what patterns find, by names relative to their root or their common folder."""
    root = _whole(chosen.root)
    gathered = Gathered(" ".join(map(display_path, chosen.patterns)), root)
    missed = [pattern for pattern in chosen.patterns if not _add_pattern(gathered, chosen, pattern)]
    if len(missed) == len(chosen.patterns):
        raise ConfigError(
            f"no file matches {gathered.what} in {display_path(root)}; check the pattern"
        )
    gathered.remarks += [f"no file matches {display_path(pattern)}" for pattern in missed]
    everything = (*gathered.asked, *gathered.left_out)
    if not all(path.is_relative_to(root) for path in everything):
        gathered.base = _common([path.parent for path in everything])
    return gathered


def _add_pattern(gathered: Gathered, chosen: FileSet, pattern: str) -> int:
    """Add what one pattern finds, and return the number of files."""
    place, wildcards = chosen.split(pattern)
    place = _whole(place)
    if not wildcards:
        refuse_corpus(place)
    if is_folder(place):
        if not wildcards:
            return gathered.add_folder(place, _local(place))
        found = chosen.matches(place, wildcards)
        return gathered.add_folder(place, without_corpora(place, found))
    if wildcards:
        return 0
    gathered.add(place, asked=True)
    return 1


def _local(folder: Path) -> Iterator[Found | Skipped]:
    return without_corpora(folder, walk(folder))


def _whole(path: Path) -> Path:
    return Path(os.path.normpath(path.absolute()))


def _common(paths: Sequence[Path]) -> Path:
    return Path(os.path.commonpath(paths))
