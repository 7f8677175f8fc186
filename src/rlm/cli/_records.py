"""Find the run or log that an argument names, and the folder of recorded runs."""

import calendar
import codecs
import os
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rlm.errors import ConfigError
from rlm.records.journal import Archive, Places, RunFacts, RunFile

__all__ = [
    "Recorded",
    "archive",
    "facts_of",
    "find_recorded",
    "find_run",
    "newest_first",
    "short_id",
    "where_to_journal",
]

LAST = "last"
OFF = frozenset({"0", "no", "off", "false"})
LONGEST_NAME = 4_096
LOG_SUFFIXES = (".jsonl", ".ndjson")
HEAD_BYTES = 4_096
"""How much of a file is looked at: a log begins with `{`, a journal with `SQLite`."""

MADE_HERE = re.compile(r"(?P<second>\d{8}-\d{6})-(?P<millisecond>\d{3})-[0-9a-f]{8}")
CHILD = re.compile(r"(?P<root>.+)-[0-9a-f]{10}")


class Recorded(NamedTuple):
    """A journal or a log, and which run of it; None means all root runs.

    `run` is the file of the journal if it is in the folder of recorded runs.
    """

    path: Path
    run_id: str | None = None
    run: RunFile | None = None


def archive() -> Archive:
    """Return the user's recorded runs. A `.env` cannot move them: it may be a stranger's."""
    try:
        return Archive(Places.usual(os.environ))
    except RuntimeError as error:  # raised by `pathlib` when there is no home
        raise ConfigError(
            f"there is no folder to keep runs in ({error}); set RLM_STATE_DIR to one"
        ) from error


def where_to_journal(variables: Mapping[str, str], *, wanted: bool) -> tuple[Path | None, str]:
    """Return a writable folder for a new run, or None and the reason if one was wanted."""
    if not wanted or variables.get("RLM_JOURNAL", "").strip().lower() in OFF:
        return None, ""
    try:
        places = archive().places
        places.prepare()
        for folder in (places.runs, places.contexts):
            tempfile.TemporaryFile(dir=folder).close()
    except ConfigError as error:
        return None, str(error)
    except OSError as error:
        return None, (
            f"{places.root} can't be written to: {error.strerror or error}; set RLM_STATE_DIR to a "
            "folder that can"
        )
    return places.root, ""


# -- finding --------------------------------------------------------------------------------------


def newest_first(places: Places) -> list[RunFile]:
    """Return every run. Ids made here tell when a run began; for others, the file's time counts."""
    return sorted(places.listed(), key=lambda run: (_began(run), run.run_id), reverse=True)


def _began(run: RunFile) -> float:
    made = MADE_HERE.fullmatch(run.run_id)
    try:
        second = time.strptime(made["second"], "%Y%m%d-%H%M%S") if made else None
    except ValueError:
        second = None
    if made is None or second is None:
        return run.changed
    return calendar.timegm(second) + int(made["millisecond"]) / 1000


def find_run(kept: Archive, name: str) -> RunFile:
    """Return the run with an id, with the first or last part of one, or the `last` run."""
    if name != LAST:
        return kept.places.find(name)
    if runs := newest_first(kept.places):
        return runs[0]
    raise ConfigError(f"there is no run yet in {kept.places.root}; `rlm ask` makes one")


def find_recorded(name: str) -> Recorded:
    """Return a recorded run, one of its child runs, or a log at a path."""
    kept = archive()
    path = Path(name)
    if len(name) > LONGEST_NAME or not _may_be_id(name):
        _refuse_other_files(path)
        return Recorded(path)
    try:
        run = find_run(kept, name)
    except ConfigError:
        if path.exists():
            _refuse_other_files(path)
            return Recorded(path)
        if (child := CHILD.fullmatch(name)) and kept.places.journal_of(child["root"]).is_file():
            run = kept.places.find(child["root"])
            return Recorded(run.path, name, run)
        raise
    return Recorded(run.path, run.run_id, run)


def _refuse_other_files(path: Path) -> None:
    """Refuse a file that neither is named as a log nor begins as a log or a journal does."""
    try:
        if path.suffix in LOG_SUFFIXES or not path.is_file():
            return
        with path.open("rb") as file:
            start = file.read(HEAD_BYTES)
    except (OSError, ValueError):
        return
    start = start.removeprefix(codecs.BOM_UTF8).lstrip()
    if start and not start.startswith((b"{", b"SQLite format 3")):
        raise ConfigError(
            f"{path} is not a log: those have a JSON object in each line. To ask about a file: "
            f'rlm ask "…" -f {path}'
        )


def facts_of(kept: Archive, run: RunFile) -> RunFacts:
    """Return the facts of a run; ConfigError if its journal belongs to another run."""
    facts = kept.facts(run)
    if facts.run_id != run.run_id:
        raise ConfigError(f"the journal of run {run.run_id} is that of another run, {facts.run_id}")
    return facts


def _may_be_id(name: str) -> bool:
    return name.isascii() and name.replace("-", "").isalnum()


def short_id(run_id: str, runs: Sequence[RunFile]) -> str:
    """Return the last part of an id, if no other run shares it."""
    end = run_id[-8:]
    if not MADE_HERE.fullmatch(run_id):
        return run_id
    others = [
        each
        for each in runs
        if each.run_id != run_id and (each.run_id.startswith(end) or each.run_id.endswith(end))
    ]
    return run_id if others else end
