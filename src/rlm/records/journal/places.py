"""Where journals and contexts are: `$XDG_STATE_HOME/rlm`, readable only by their owner."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from rlm._util.files import writers_problem
from rlm._util.state_folder import usual_state_folder
from rlm.errors import ConfigError

__all__ = ["Places", "RunFile"]

ENDING = ".sqlite"
_BESIDE = ("-wal", "-shm")


class RunFile(Struct, frozen=True):
    """The journal of one run, as the folder lists it."""

    run_id: str
    path: Path
    changed: float
    size_bytes: int

    def check_writer(self) -> None:
        """Refuse to continue what another user may have written: it can name a program to run."""
        for path in _files_of(self.path):
            try:
                problem = writers_problem(path.lstat())
            except FileNotFoundError:
                continue
            if problem is not None:
                raise ConfigError(f"run {self.run_id} is not continued: {path}: {problem}")

    def remove(self) -> None:
        """Delete it, and the lock and SQLite's files beside it."""
        _remove(self.path)


class Places:
    """The folders below one root, created when something is stored."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs = root / "runs"
        self.contexts = root / "contexts"

    @classmethod
    def usual(cls, variables: Mapping[str, str]) -> "Places":
        """Return the places below the usual state folder."""
        return cls(usual_state_folder(variables))

    def prepare(self) -> None:
        """Create the folders, readable only by their owner."""
        try:
            for folder in (self.root, self.runs, self.contexts):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"{self.root} can't be created: {error.strerror}; set RLM_STATE_DIR or journal= to "
                "a writable folder"
            ) from error

    def journal_of(self, run_id: str) -> Path:
        """Return where a run's journal is, or would be."""
        if not run_id or not run_id.replace("-", "").isalnum() or not run_id.isascii():
            raise ConfigError(
                f"{run_id!r} is not a run id: run ids consist of letters a to z, digits and "
                "hyphens; `rlm runs` lists those of recorded runs"
            )
        return self.runs / f"{run_id}{ENDING}"

    def remove(self, run_id: str) -> None:
        """Delete the journal of a finished run, if there is one."""
        _remove(self.journal_of(run_id))

    def clear(self) -> None:
        """Delete everything."""
        import shutil

        shutil.rmtree(self.root, ignore_errors=True)

    def find(self, start: str) -> RunFile:
        """Return the run with this id, or the only run whose id begins or ends like that.

        The short id that `rlm runs` prints may be shortened further, like commits in git.
        """
        runs = list(self.listed())
        found = (
            [each for each in runs if each.run_id == start]
            or [
                each
                for each in runs
                if each.run_id.endswith(start) or each.run_id.startswith(start)
            ]
            or [each for each in runs if each.run_id.rpartition("-")[2].startswith(start)]
        )
        if start and len(found) == 1:
            return found[0]
        what = "several runs are" if found and start else "no run is"
        raise ConfigError(f"{what} called {start!r}; `rlm runs` lists them")

    def listed(self) -> Iterator[RunFile]:
        """Yield every run, newest first."""
        files = []
        try:
            entries = list(os.scandir(self.runs))
        except FileNotFoundError:
            return
        for entry in entries:
            if entry.name.endswith(ENDING) and entry.is_file(follow_symlinks=False):
                try:
                    facts = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # It was just removed.
                name = entry.name.removesuffix(ENDING)
                files.append(RunFile(name, Path(entry.path), facts.st_mtime, facts.st_size))
        yield from sorted(files, key=lambda each: (each.run_id, each.changed), reverse=True)


def _files_of(journal: Path) -> list[Path]:
    """Return the journal and what is beside it; the lock is the last."""
    beside = [Path(f"{journal}{end}") for end in _BESIDE]
    return [*beside, journal, *(journal.with_suffix(end) for end in (".tail", ".stop", ".lock"))]


def _remove(journal: Path) -> None:
    for path in _files_of(journal):
        path.unlink(missing_ok=True)
