"""Results on disk: a folder with the settings and one line of JSON per trial.

A line is one write, on disk before it is counted. A partial last line of a killed process is cut
off when the folder is opened again. A repeated trial adds a line: the last counts.
"""

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import msgspec
from msgspec import Meta, Struct

from rlm._util.atomic import replacing
from rlm.bench.plan import METHODS, Settings, Trial
from rlm.errors import ConfigError
from rlm.messages import LARGEST_COST_USD
from rlm.records.journal.database import Lock

__all__ = ["Outcome", "Results", "read_outcomes", "read_settings"]

RESULTS, SETTINGS, LOCK = "results.jsonl", "settings.json", ".lock"
MAX_LINE_BYTES = 10_000_000
Count = Annotated[int, Meta(ge=0, le=1 << 50)]
Money = Annotated[float, Meta(ge=0, le=LARGEST_COST_USD)]
Status = Literal["scored", "impossible", "failed"]


class Outcome(Struct, frozen=True, kw_only=True):
    """The outcome of a trial.

    `impossible`: the method cannot do it, as a plain call cannot take a context beyond the window;
    the score is 0. `failed`: the score is unknown because of an error; it is tried again. `gold` is
    a right answer in words. `kept_usd` is what failed requests may have cost, beside `cost_usd`;
    the limit counts both. `run_id` names its run, and the journal from which it continues.
    """

    task: str
    size: Annotated[int, Meta(ge=1, le=10**9)]
    seed: int
    method: Annotated[str, Meta(pattern=f"^({'|'.join(METHODS)})$")]
    status: Status
    score: Annotated[float, Meta(ge=0, le=1)] | None
    answer: str | None = None
    gold: str | None = None
    error: str | None = None
    stop_reason: str | None = None
    limit: str | None = None
    cost_usd: Money | None = None
    kept_usd: Money = 0.0
    input_tokens: Count = 0
    output_tokens: Count = 0
    requests: Count = 0
    calls: Count = 0
    steps: Count = 0
    seconds: float = 0.0
    context_chars: Count = 0
    model: str = ""
    sub_model: str = ""
    engine: str = ""
    settings: str = ""
    run_id: str = ""
    ended: float = 0.0

    @property
    def key(self) -> str:
        return Trial(self.task, self.size, self.seed, self.method).key

    @property
    def is_done(self) -> bool:
        return self.status != "failed"

    @property
    def goes_on(self) -> bool:
        """Return whether it was cut off; then its costs are in its journal."""
        return not self.is_done and self.stop_reason is None


class Results:
    """The open folder of a benchmark, locked for one writer."""

    def __init__(self, folder: Path, file: BinaryIO, settings: Settings) -> None:
        self.folder = folder
        self.settings = settings
        self._file = file
        self.outcomes: dict[str, Outcome] = {}
        self.spent_usd = 0.0
        for outcome in read_outcomes(folder):
            self._note(outcome)

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, settings: Settings) -> Generator["Results", None, None]:
        """Create the folder or continue it; one with other settings is refused."""
        folder.mkdir(parents=True, exist_ok=True)
        lock = Lock(folder / LOCK)
        if not lock.take():
            raise ConfigError(f"another process is using {folder}; wait for it")
        try:
            settings = _agreed(folder, settings)
            with (folder / RESULTS).open("ab") as file:
                _cut_torn_line(folder / RESULTS, file)
                yield cls(folder, file, settings)
        finally:
            lock.release()

    def done(self) -> set[str]:
        """Return the keys of trials that need not be tried again."""
        return {key for key, outcome in self.outcomes.items() if outcome.is_done}

    def add(self, outcome: Outcome) -> None:
        self._file.write(msgspec.json.encode(outcome) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._note(outcome)

    def _note(self, outcome: Outcome) -> None:
        """Count costs, including those of failed attempts."""
        self.outcomes[outcome.key] = outcome
        self.spent_usd += (outcome.cost_usd or 0.0) + outcome.kept_usd


def read_outcomes(folder: Path) -> Iterator[Outcome]:
    """Yield every whole line, in order."""
    path = folder / RESULTS
    if not path.is_file():
        raise ConfigError(f"{folder} has no {RESULTS}: `rlm bench run` did not write it")
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES):
            number += 1
            if not line.endswith(b"\n"):
                return  # a process was killed here, or is writing now
            try:
                yield msgspec.json.decode(line, type=Outcome)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise ConfigError(f"line {number} of {path} is not a result: {error}") from error


def read_settings(folder: Path) -> Settings:
    path = folder / SETTINGS
    try:
        return msgspec.json.decode(path.read_bytes(), type=Settings)
    except FileNotFoundError as error:
        raise ConfigError(f"{folder} has no {SETTINGS}: rlm bench run writes it") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} does not contain the settings of a benchmark: {error}"
        ) from error


def _agreed(folder: Path, settings: Settings) -> Settings:
    """Return the settings of the folder, with these tasks added."""
    if (folder / SETTINGS).exists():
        settings = settings.merged(read_settings(folder), str(folder))
    elif (folder / RESULTS).exists():
        raise ConfigError(f"{folder} has results without settings; choose another --out")
    encoded = msgspec.json.format(msgspec.json.encode(settings), indent=2)
    with replacing(folder / SETTINGS) as file:
        file.write(encoded + b"\n")
    (folder / SETTINGS).chmod(0o644)
    return settings


def _cut_torn_line(path: Path, file: BinaryIO) -> None:
    """Cut off a torn last line, searched from the end because lines are short."""
    end = size = file.seek(0, os.SEEK_END)
    with path.open("rb") as reader:
        while end:
            start = max(0, end - 65_536)
            reader.seek(start)
            block = reader.read(end - start)
            if (found := block.rfind(b"\n")) != -1:
                end = start + found + 1
                break
            end = start
    if end != size:
        file.truncate(end)
        file.seek(end)
