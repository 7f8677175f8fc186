"""Samples as files, for other engines: one line of JSON a sample, and its context beside it."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from rlm._util.atomic import replacing
from rlm.bench.task import Task
from rlm.errors import ConfigError

__all__ = ["write_dataset"]

SAMPLES, CONTEXTS = "samples.jsonl", "contexts"


def write_dataset(
    tasks: Mapping[str, Task],
    sizes: Sequence[int],
    seeds: Sequence[int],
    out: Path,
    on_sample: Callable[[str], None] = lambda name: None,
) -> int:
    """Write all samples; returns how many. The same words always give the same bytes.

    `answer` is a right answer in words; `gold` is what the task's scorer takes.
    """
    if (out / SAMPLES).exists():
        raise ConfigError(f"{out / SAMPLES} is there already; choose another --out")
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
