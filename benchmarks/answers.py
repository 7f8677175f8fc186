"""Measure wrong labels against tokens with an imperfect model: `make bench-answers`.

`NoisyOracle` plays the model, so no key is needed and the same command gives the same figures.
Every case is saved as soon as it is measured; an interrupted run continues.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: its folder is on the path, but not the one above
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.labelling.grid import (
    ITEMS,
    QUICK_ITEMS,
    QUICK_SEEDS,
    SEEDS,
    Case,
    all_cases,
    measured,
    quick_cases,
)
from benchmarks.labelling.methods import METHODS
from benchmarks.labelling.page import Found, page, targets
from benchmarks.labelling.plots import plot

_ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str] | None = None) -> None:
    options = _parsed(arguments)
    facts = {
        "quick": options.quick,
        "items": QUICK_ITEMS if options.quick else ITEMS,
        "seeds": QUICK_SEEDS if options.quick else SEEDS,
    }
    held = {} if options.fresh else _held(options.record, facts)
    cases = quick_cases() if options.quick else all_cases()
    with ProcessPoolExecutor(options.processes) as pool:
        for case in cases:
            if case.key in held:
                continue
            print(f"{time.strftime('%H:%M:%S')}  {case.key}", file=sys.stderr, flush=True)
            held[case.key] = _measured(pool, case, facts["seeds"], facts["items"])
            _save(options.record, {**facts, "cases": held})
    found: Found = {case: held[case.key] for case in cases}
    for target in targets(found):
        print(f"- {target}", *(f"  - {missed}" for missed in target.missed), sep="\n")
    if options.publish:
        options.publish.mkdir(parents=True, exist_ok=True)
        _save(options.publish / "answers.json", {**facts, "cases": held})
        (options.publish / "answers.md").write_text(page(found, facts), "utf-8")
        (options.publish / "answers.svg").write_text(plot(found), "utf-8")
        print(options.publish / "answers.md")


def _measured(
    pool: ProcessPoolExecutor, case: Case, seeds: int, items: int
) -> dict[str, list[dict[str, Any]]]:
    work = [(method, seed) for method in METHODS for seed in range(seeds)]
    methods, numbers = zip(*work, strict=True)
    rows: Iterable[dict[str, Any]] = pool.map(
        measured, repeat(case), methods, numbers, repeat(items), chunksize=2
    )
    found: dict[str, list[dict[str, Any]]] = {method: [] for method in METHODS}
    for method, row in zip(methods, rows, strict=False):
        found[method].append(row)
    return found


def _held(record: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the cases of an interrupted run of the same kind."""
    if not record.exists():
        return {}
    kept: dict[str, Any] = json.loads(record.read_text("utf-8"))
    cases: dict[str, Any] = kept.pop("cases")
    return cases if kept == facts else {}


def _save(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".fresh")
    fresh.write_text(json.dumps(value, indent=None, separators=(",", ":")) + "\n", "utf-8")
    fresh.replace(path)


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
