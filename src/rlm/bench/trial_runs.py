"""The runs of a benchmark on disk: a log of each trial, and its score as a note beside it."""

import stat
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import Struct

from rlm.bench.plan import show_size
from rlm.bench.report.tables import results_of
from rlm.bench.results import RESULTS, SETTINGS, Outcome, read_outcomes
from rlm.logger import RLMLogger

__all__ = ["TrialRuns", "logger_in"]

RUNS = "runs"


def logger_in(folder: Path) -> RLMLogger:
    """Return a recorder that writes a log of each trial into a folder of results."""
    return RLMLogger(log_dir=folder / RUNS, file_name="run", format="events")


class TrialRuns(Struct, frozen=True):
    """The logs of all trials in a folder of results, for the viewer; perhaps of two folders."""

    folder: Path
    other: Path | None = None

    @classmethod
    def are_in(cls, folder: Path) -> bool:
        """Return whether `rlm bench run` wrote this folder."""
        return (folder / RESULTS).is_file() and (folder / SETTINGS).is_file()

    @property
    def folders(self) -> tuple[Path, ...]:
        return (self.folder,) if self.other is None else (self.folder, self.other)

    @property
    def title(self) -> str:
        return " and ".join(folder.resolve().name for folder in self.folders)

    @property
    def archive(self) -> None:
        """Logs can't be continued; an interrupted trial continues with its benchmark."""
        return

    @property
    def notes_path(self) -> Path:
        return self.folder / RESULTS

    def paths(self) -> list[Path]:
        found = [path for folder in self.folders for path in (folder / RUNS).glob("*.jsonl")]
        changed = [(time, path) for path in found if (time := _changed(path)) is not None]
        return [path for _, path in sorted(changed, reverse=True)]

    def notes(self) -> Mapping[str, str]:
        """Return the trial and the score of each run, by its id; the last result counts."""
        return {each.run_id: _note(each) for each in self._outcomes()}

    def watched(self) -> list[Path]:
        """Return the files that change with the results."""
        return [folder / RESULTS for folder in self.folders]

    def results(self) -> dict[str, Any]:
        """Return samples and figures as plain values."""
        return results_of(self.folders)

    def scores(self) -> dict[str, float]:
        """Return the score of each run that has one, by its id."""
        outcomes = self._outcomes()
        return {each.run_id: each.score for each in outcomes if each.score is not None}

    def groups(self) -> dict[str, tuple[str, str]]:
        """Return the task, size and method of each run as its group, by its id."""
        return {
            each.run_id: ("bench", f"{each.task} {show_size(each.size)} {each.method}")
            for each in self._outcomes()
        }

    def _outcomes(self) -> Iterator[Outcome]:
        return chain.from_iterable(map(read_outcomes, self.folders))


def _changed(path: Path) -> float | None:
    """Return when a file was changed; None for what is no file, or is gone."""
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_mtime if stat.S_ISREG(seen.st_mode) else None


def _note(outcome: Outcome) -> str:
    trial = f"{outcome.task} {show_size(outcome.size)} {outcome.method} #{outcome.seed}"
    if outcome.score is None:
        return f"{outcome.status}: {trial}"
    return f"score {100 * outcome.score:.0f}: {trial}"
