"""What trials without a result have paid for so far: they go on from there, and pay for the rest.

The run of a trial has the same id each time. When a trial is done its journal goes, and with the
last of them the folder.
"""

import hashlib
from contextlib import suppress
from pathlib import Path

from rlm.bench.plan import Trial
from rlm.bench.results import Outcome, Results
from rlm.errors import ConfigError
from rlm.records.journal import ContextFolder, Places
from rlm.records.journal.archive import paid_in

__all__ = ["TrialJournals", "journals_in"]


def journals_in(folder: Path) -> Places:
    """Where the journals of a folder of results are: the engine that runs trials needs it."""
    return Places(folder / "journal")


class TrialJournals:
    """The journals of an open folder of results."""

    def __init__(self, results: Results, *, keeps_runs: bool = False) -> None:
        self.places = journals_in(results.folder)
        self._results, self._keeps_runs = results, keeps_runs

    def run_id(self, trial: Trial) -> str:
        """Another one if the trial or its settings are: what was paid for is of no use then."""
        settings = self._results.settings
        told = f"{settings.digest}|{settings.tasks.get(trial.task)}|{trial.key}"
        return f"trial-{hashlib.sha256(told.encode()).hexdigest()[:16]}"

    def paid_usd(self) -> float:
        """What trials have paid for that go on; what a kill left of the others is removed."""
        over = {each.run_id for each in self._results.outcomes.values() if not each.goes_on}
        paid = 0.0
        for run in self.places.listed():
            if run.run_id not in over:
                with suppress(ConfigError):  # it says so itself when its trial goes on
                    paid += paid_in(run.path).cost_usd or 0.0
            elif not self._keeps_runs:
                run.remove()
        return paid

    def end(self, outcome: Outcome) -> None:
        """Of a trial whose costs are in its result: one that failed has to begin anew."""
        is_kept = outcome.is_done and self._keeps_runs
        if not outcome.goes_on and not is_kept:
            self.places.remove(outcome.run_id)

    def drop_context(self, sha256: str) -> None:
        """A sample is made again from its seed, and its context may be large."""
        if not self._keeps_runs:
            ContextFolder(self.places.contexts).remove(sha256)

    def close(self) -> None:
        if not any(self.places.listed()):
            self.places.clear()
