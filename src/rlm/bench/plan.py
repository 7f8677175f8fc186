"""What a benchmark run covers: tasks, sizes, models and strategies."""

import hashlib
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from rlm.bench.task import Task
from rlm.errors import ConfigError

__all__ = [
    "CHARS_A_TOKEN",
    "METHODS",
    "Settings",
    "Strategy",
    "Trial",
    "Work",
    "check_methods",
    "check_sizes",
    "parse_size",
    "parse_sizes",
    "show_size",
    "size_chars",
    "works",
]

CHARS_A_TOKEN = 4
SMALLEST, LARGEST = 500, 100_000_000
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([kKmM]?)")
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000}


def size_chars(tokens: int) -> int:
    """Return the characters of a context of N tokens."""
    return tokens * CHARS_A_TOKEN


def parse_size(text: str) -> int:
    """Parse a size: `8k` is 8,000 tokens and `1M` a million."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"{text!r} is not a size in tokens, such as 8000, 8k, 1.5M")
    whole, _, part = found[1].partition(".")
    unit = _UNITS[found[2].lower()]
    tokens = int(whole) * unit + (int(part) * unit // 10 ** len(part) if part else 0)
    if not SMALLEST <= tokens <= LARGEST:
        least, most = show_size(SMALLEST), show_size(LARGEST)
        raise ConfigError(f"a context must have {least} to {most} tokens, not {text}")
    return tokens


def parse_sizes(text: str) -> tuple[int, ...]:
    """Parse sizes separated by commas, in order, without duplicates."""
    return tuple(dict.fromkeys(parse_size(part) for part in text.split(",") if part.strip()))


def show_size(tokens: int) -> str:
    """Return a size as people write it: 8k, 1.5M."""
    for unit, letter in ((1_000_000, "M"), (1_000, "k")):
        if tokens >= unit and tokens * 1_000 % unit == 0:
            return f"{tokens / unit:.3f}".rstrip("0").rstrip(".") + letter
    return str(tokens)


Strategy = Literal["rlm", "direct", "mapreduce"]
METHODS: dict[str, Strategy | None] = {
    "rlm": "rlm",
    "plain": "direct",
    "mapreduce": "mapreduce",
    "operators": None,
}
"""The name of a method in reports → the strategy of a run; operators are asked for by the task."""


class Settings(Struct, frozen=True, kw_only=True):
    """What must be the same for results to be comparable.

    `limits` are those of one run, `tasks` the identities of the tasks that have results.
    """

    engine: str
    model: str
    sub_model: str
    environment: str
    environment_options: dict[str, Any]
    limits: dict[str, Any]
    tasks: dict[str, str]

    @property
    def digest(self) -> str:
        """Return a hash of everything but the tasks, which each result records."""
        fields = {name: value for name, value in self.plain().items() if name != "tasks"}
        return hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()[:12]

    def plain(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        builtins: dict[str, Any] = msgspec.to_builtins(self)
        return builtins

    def merged(self, kept: "Settings", where: str) -> "Settings":
        """Return both, or raise with the difference: results of two settings are not mixed."""
        now, before = self.plain(), kept.plain()
        for name in now:
            if name != "tasks" and now[name] != before[name]:
                raise ConfigError(
                    f"{where} contains results with {name} {_json_text(before[name])}, but "
                    f"this run has {_json_text(now[name])}: "
                    "choose another --out, or the same settings"
                )
        for spec, identity in self.tasks.items():
            if kept.tasks.get(spec, identity) != identity:
                raise ConfigError(
                    f"{where} contains results of an earlier version of {spec}, with other "
                    "samples or scores; choose another --out"
                )
        return msgspec.structs.replace(self, tasks={**kept.tasks, **self.tasks})


class Trial(Struct, frozen=True):
    """One sample by one method."""

    task: str
    size: int
    seed: int
    method: str

    @property
    def key(self) -> str:
        return f"{self.task}|{self.size}|{self.seed}|{self.method}"


class Work(Struct, frozen=True):
    """One sample, and the methods that have no result for it yet."""

    task: str
    size: int
    seed: int
    methods: tuple[str, ...]


def works(
    tasks: Sequence[str],
    sizes: Sequence[int],
    seeds: Sequence[int],
    methods: Sequence[str],
    done: Container[str],
) -> Iterator[Work]:
    """Return what is left to do, one sample of every task and size at a time, to grow evenly."""
    for seed in seeds:
        for size in sizes:
            for task in tasks:
                missing = tuple(
                    each for each in methods if Trial(task, size, seed, each).key not in done
                )
                if missing:
                    yield Work(task, size, seed, missing)


def check_sizes(tasks: Mapping[str, Task], sizes: Sequence[int]) -> None:
    """Refuse sizes too small for a task, before anything is paid."""
    for spec, task in tasks.items():
        if too_small := [size for size in sizes if size < task.smallest]:
            least, given = show_size(task.smallest), show_size(too_small[0])
            raise ConfigError(f"{spec} needs a size of at least {least} tokens, not {given}")


def check_methods(tasks: Mapping[str, Task], methods: Sequence[str]) -> None:
    """Refuse operators for a task whose answers don't follow from labels of its items."""
    if "operators" not in methods:
        return
    for spec, task in tasks.items():
        if task.labelling(task.generate(0, task.smallest)) is None:
            raise ConfigError(
                f"operators can't answer {spec}: labels of items don't determine it; "
                "leave out --method operators, or this task"
            )


def _json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
