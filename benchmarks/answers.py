"""Measure wrong labels against tokens with an imperfect model: `make bench-answers`.

`NoisyOracle` plays the model, so no key is needed and the same command gives the same figures.
Every case is saved as soon as it is measured; an interrupted run continues.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: its folder is on the path, but not the one above
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.labelling.grid import (
    ITEMS,
    MORE_SEEDS,
    QUICK_ITEMS,
    QUICK_SEEDS,
    SEEDS,
    Case,
    all_cases,
    measured,
    quick_cases,
)
from benchmarks.labelling.methods import BASELINES, METHODS
from benchmarks.labelling.page import DEFAULT, Found, is_above, page, targets
from benchmarks.labelling.plots import plot

_ROOT = Path(__file__).resolve().parents[1]
PARTS = ("cases", "again")


def main(arguments: list[str] | None = None) -> None:
    options = _parsed(arguments)
    facts = {
        "quick": options.quick,
        "items": QUICK_ITEMS if options.quick else ITEMS,
        "seeds": QUICK_SEEDS if options.quick else SEEDS,
    }
    record = Record(options.record, facts)
    if not options.fresh:
        record.resume()
    cases = quick_cases() if options.quick else all_cases()
    more = QUICK_SEEDS if options.quick else MORE_SEEDS
    with ProcessPoolExecutor(options.processes) as pool:
        found = record.measured(pool, "cases", cases, list(METHODS), range(facts["seeds"]))
        above = [case for case in cases if is_above(found[case])]
        seeds = range(SEEDS, SEEDS + more)
        again = record.measured(pool, "again", above, [*BASELINES, DEFAULT], seeds)
    for target in targets(found):
        print(f"- {target}", *(f"  - {missed}" for missed in target.missed), sep="\n")
    if options.publish:
        options.publish.mkdir(parents=True, exist_ok=True)
        record.save(options.publish / "answers.json")
        (options.publish / "answers.md").write_text(page(found, again, facts), "utf-8")
        (options.publish / "answers.svg").write_text(plot(found), "utf-8")
        print(options.publish / "answers.md")


class Record:
    """The results so far, saved to a file after every case."""

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self._path, self._facts = path, facts
        self._parts: dict[str, dict[str, Any]] = {name: {} for name in PARTS}

    def resume(self) -> None:
        """Continue an interrupted run of the same kind."""
        if self._path.exists():
            kept: dict[str, Any] = json.loads(self._path.read_text("utf-8"))
            parts = {name: kept.pop(name, {}) for name in PARTS}
            self._parts = parts if kept == self._facts else self._parts

    def measured(
        self,
        pool: ProcessPoolExecutor,
        part: str,
        cases: Sequence[Case],
        methods: list[str],
        seeds: range,
    ) -> Found:
        """Measure what a part does not have yet, and return all of it."""
        held = self._parts[part]
        for case in cases:
            if case.key not in held:
                print(f"{time.strftime('%H:%M:%S')}  {case.key}", file=sys.stderr, flush=True)
                held[case.key] = _measured(pool, case, methods, seeds, self._facts["items"])
                self.save(self._path)
        return {case: held[case.key] for case in cases}

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".fresh")
        value = {**self._facts, **self._parts}
        fresh.write_text(json.dumps(value, separators=(",", ":")) + "\n", "utf-8")
        fresh.replace(path)


def _measured(
    pool: ProcessPoolExecutor, case: Case, methods: list[str], seeds: range, items: int
) -> dict[str, list[dict[str, Any]]]:
    names, numbers = zip(*((name, seed) for name in methods for seed in seeds), strict=True)
    rows: Iterable[dict[str, Any]] = pool.map(
        measured, repeat(case), names, numbers, repeat(items), chunksize=2
    )
    found: dict[str, list[dict[str, Any]]] = {method: [] for method in methods}
    for name, row in zip(names, rows, strict=True):
        found[name].append(row)
    return found


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few items, only to see that it runs")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    parser.add_argument("--record", type=Path, default=_ROOT / "build" / "bench" / "answers.json")
    parser.add_argument("--publish", type=Path, help="write page, plot and samples here")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
