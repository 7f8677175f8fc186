"""Where tasks come from: built in, entry points, Python files and datasets."""

import hashlib
import importlib
import importlib.util
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rlm._util.atomic import replacing
from rlm._util.text import meant_or_all, no_such
from rlm.bench.task import Task
from rlm.bench.tasks.codeqa import CodeQA
from rlm.bench.tasks.graphwalks import Graphwalks
from rlm.bench.tasks.multihop import Multihop
from rlm.bench.tasks.needles import Needles
from rlm.bench.tasks.oolong import Oolong
from rlm.bench.tasks.oolong_pairs import OolongPairs
from rlm.errors import ConfigError
from rlm.wiring.plugins import offers

__all__ = ["find_tasks", "known_tasks", "register", "spec_of", "write_dataset"]

SAMPLES, CONTEXTS = "samples.jsonl", "contexts"


def write_dataset(
    tasks: Mapping[str, Task],
    sizes: Sequence[int],
    seeds: Sequence[int],
    out: Path,
    on_sample: Callable[[str], None] = lambda name: None,
) -> int:
    """Write all samples, and return their number. The same arguments give the same bytes.

    `answer` is a right answer in words; `gold` is what the task's scorer takes.
    """
    if (out / SAMPLES).exists():
        raise ConfigError(f"{out / SAMPLES} already exists; choose another --out")
    (out / CONTEXTS).mkdir(parents=True, exist_ok=True)
    count = 0
    with replacing(out / SAMPLES) as lines:
        for spec, task in tasks.items():
            for size in sizes:
                for seed in seeds:
                    line = _sample(task, spec, size, seed, out)
                    lines.write(msgspec.json.encode(line) + b"\n")
                    count += 1
                    on_sample(str(line["context_file"]))
    (out / SAMPLES).chmod(0o644)
    return count


def _sample(task: Task, spec: str, size: int, seed: int, out: Path) -> dict[str, object]:
    sample = task.generate(seed, size)
    name = f"{re.sub(r'[^a-z0-9]+', '-', spec.lower())}-{size}-{seed}.txt"
    digest, chars = hashlib.sha256(), 0
    with (out / CONTEXTS / name).open("w", encoding="utf-8", newline="") as file:
        for piece in sample.pieces():
            file.write(piece)
            digest.update(piece.encode())
            chars += len(piece)
    return {
        "id": f"{spec}|{size}|{seed}",
        "task": spec,
        "size": size,
        "seed": seed,
        "query": sample.query,
        "context_file": f"{CONTEXTS}/{name}",
        "context_chars": chars,
        "context_sha256": digest.hexdigest(),
        "answer": task.reference(sample.gold),
        "gold": sample.gold,
        "facts": sample.facts,
    }


_TASKS: dict[str, type[Task]] = {
    task.name: task for task in (Needles, Oolong, OolongPairs, Multihop, CodeQA, Graphwalks)
}
_SPEC = re.compile(
    r"(?P<name>[\w.-]+|[^:]+:\w+)(?:/(?P<variant>[\w-]+))?(?P<options>(?:,\w+=[^,]*)*)"
)


def register(task: type[Task]) -> type[Task]:
    """Register a task of your own under its name; also a decorator for classes."""
    if not re.fullmatch(r"[\w.-]+", getattr(task, "name", "")):
        raise ConfigError(f"{task.__name__} needs a `name` of letters, digits and dashes")
    if _TASKS.get(task.name, task) is not task:
        raise ConfigError(f"a task {task.name!r} already exists: {_TASKS[task.name].__name__}")
    _TASKS[task.name] = task
    return task


def known_tasks() -> dict[str, type[Task]]:
    """Return every task by its name; plugins that can't be loaded are left out."""
    offered = {
        name: _offered(name)
        for name, offer in offers("rlm.bench_tasks").items()
        if name not in _TASKS and offer.problem() is None
    }
    return {**_TASKS, **{name: task for name, task in offered.items() if task is not None}}


def _offered(name: str) -> type[Task] | None:
    """Return the task that a plugin offers under this name, if there is one."""
    offer = offers("rlm.bench_tasks").get(name)
    return None if offer is None else _check_task(offer.load(), offer.value)


def _check_task(task: Any, name: str) -> type[Task]:
    if not (isinstance(task, type) and issubclass(task, Task)):
        raise ConfigError(f"{name} is not a class derived from rlm.bench.Task")
    return task


def find_tasks(spec: str) -> dict[str, Task]:
    """Return the tasks that a spec names, each under its own exact spec."""
    found = _SPEC.fullmatch(spec)
    if found is None:
        raise ConfigError(f"{spec!r} is not a task; see rlm bench list")
    name, variant = found["name"], found["variant"]
    task = _own(name) if ":" in name else _TASKS.get(name) or _offered(name)
    if task is None:
        raise ConfigError(no_such("task", name, known_tasks()))
    options = dict(_option(each) for each in found["options"].split(",") if each)
    variants = task.variants if variant is None else (variant,)
    return {spec_of(task.name, each, options): _make_task(task, each, options) for each in variants}


def spec_of(name: str, variant: str, options: dict[str, Any]) -> str:
    """Return the spec of one task with its options."""
    settings = "".join(f",{key}={value}" for key, value in sorted(options.items()))
    return name + (f"/{variant}" if variant else "") + settings


def _make_task(task: type[Task], variant: str, options: dict[str, Any]) -> Task:
    known = [key for key in inspect.signature(task).parameters if key != "variant"]
    if unknown := sorted(options.keys() - set(known)):
        hint = meant_or_all(unknown[0], known, "options:")
        raise ConfigError(f"{task.name} has no option {unknown[0]!r}; {hint}")
    return task(variant, **options)


def _option(text: str) -> tuple[str, Any]:
    """Parse an option; the value is parsed as JSON if it is JSON."""
    key, _, value = text.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _own(name: str) -> type[Task]:
    """Import a class from a user's module or file, which runs as their code."""
    home, _, attribute = name.rpartition(":")
    if home in _TASKS:
        raise ConfigError(f"there is no task {name!r}; write a variant as {home}/{attribute}")
    if home.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(home).stem, home)
        if spec is None or spec.loader is None or not Path(home).is_file():
            raise ConfigError(f"there is no file {home}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        try:
            module = importlib.import_module(home)
        except ModuleNotFoundError as error:
            raise ConfigError(f"{name}: {error}; write a file as ./tasks.py:Class") from error
    return _check_task(getattr(module, attribute, None), name)
