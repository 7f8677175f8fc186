"""Measure the engine itself next to others: `make bench`.

Contenders take turns, each in its own environment and processes, all with the same model server or
with models in their process. Results are saved after every group, so an interrupted run continues.
`benchmarks/README.md` explains the rows.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: its folder is on the path, but not the one above
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.engines import ENGINES
from benchmarks.engines.growing import AXES, Axis
from benchmarks.engines.page import growth_lines, page, table_lines
from benchmarks.engines.plots import growth_plot, rows_plot
from benchmarks.engines.rows import GROUPS, Group
from benchmarks.engines.running import endpoint, grown, import_seconds, outcome, version_of
from benchmarks.machine import describe_machine, in_lines, load_average
from benchmarks.options import among

_ROOT = Path(__file__).resolve().parents[1]
_QUICK_ROUNDS = 1
_GROWTH_ROUNDS = 3
_LONG_AGO_SECONDS = 6 * 3_600


class Record:
    """The results so far, saved to a file after every part."""

    def __init__(self, file: Path, facts: dict[str, Any]) -> None:
        self._file = file
        self.all: dict[str, Any] = {**facts, "groups": {}, "growth": {}}

    def resume(self) -> int:
        """Continue from an earlier run of the same kind; return its number of finished parts."""
        try:
            earlier = json.loads(self._file.read_text("utf-8"))
        except (OSError, ValueError):
            return 0
        same = all(earlier.get(key) == self.all[key] for key in ("versions", "quick", "revision"))
        if not same or time.time() - self._file.stat().st_mtime > _LONG_AGO_SECONDS:
            return 0
        earlier["resumed"] = [*earlier.get("resumed", []), self.all["machine"]["date"]]
        self.all = earlier
        return len(earlier["groups"]) + len(earlier["growth"])

    def save(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(self.all, indent=1, ensure_ascii=False) + "\n", "utf-8")
        fresh.replace(self._file)


# -- measuring ------------------------------------------------------------------------------------


def measure_group(
    group: Group, pythons: dict[str, str], port: int, *, quick: bool
) -> dict[str, Any]:
    """Measure every contender in rotating order, and join the samples of all turns."""
    options = {**group.options, **(group.quick if quick else {})}
    found: dict[str, Any] = {name: {"metrics": {}} for name in pythons}
    for turn in range(1 if quick else group.turns):
        names = [name for name in pythons if not {"cannot", "error"} & found[name].keys()]
        start = turn % max(1, len(names))
        for name in names[start:] + names[:start]:
            if group.scenario == "import":
                reported = import_seconds(name, pythons[name], options["rounds"])
            else:
                given = {"port": port, **options}
                reported = outcome(
                    name, pythons[name], group.scenario, given, group.timeout_seconds
                )
                if "error" in reported:  # A busy machine may be the cause: try once more.
                    reported = outcome(
                        name, pythons[name], group.scenario, given, group.timeout_seconds
                    )
            _take(found[name], reported)
    return {"engines": found, "options": options, "load": load_average()}


def _take(held: dict[str, Any], reported: dict[str, Any]) -> None:
    if "metrics" not in reported:
        held.update(reported)
        return
    for metric, samples in reported["metrics"].items():
        held["metrics"].setdefault(metric, []).extend(samples)


def measure_axis(axis: Axis, python: str, *, quick: bool) -> dict[str, Any]:
    """Measure the costs of rlm at every size, from the smallest on."""
    sizes = axis.quick if quick else axis.sizes
    rounds = _QUICK_ROUNDS if quick else _GROWTH_ROUNDS
    walls, cpus = [], []
    for size in sizes:
        reported = grown(python, axis.name, size, rounds)
        if "metrics" not in reported:
            return {"sizes": list(sizes), "error": reported.get("error", "unknown")}
        walls.append(statistics.median(reported["metrics"]["wall_seconds"]))
        cpus.append(statistics.median(reported["metrics"]["cpu_seconds"]))
    return {"sizes": list(sizes), "wall_seconds": walls, "cpu_seconds": cpus}


def measure(record: Record, options: argparse.Namespace) -> None:
    """Measure what the record does not have yet."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    with endpoint() as port:
        for name in (each for each in options.only if each in GROUPS):
            group = GROUPS[name]
            if name in record.all["groups"]:
                continue
            if not options.quick and available < group.needs_bytes:
                print(f"{name} is left out: too little memory is free", file=sys.stderr)
                continue
            _announce(name)
            record.all["groups"][name] = measure_group(
                group, options.pythons, port, quick=options.quick
            )
            record.save()
    for name in (each for each in options.only if each in AXES):
        if "rlm" in options.pythons and name not in record.all["growth"]:
            _announce(f"growth: {name}")
            record.all["growth"][name] = measure_axis(
                AXES[name], options.pythons["rlm"], quick=options.quick
            )
            record.save()


def _announce(name: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {name} …", file=sys.stderr, flush=True)


# -- all of it ------------------------------------------------------------------------------------


def publish(record: Record, folder: Path) -> None:
    """Write the page, the plots, and a file with all samples."""
    folder.mkdir(parents=True, exist_ok=True)
    machine = record.all["machine"]
    kept = folder / f"engine-{machine['date'].split()[0]}-{machine['cpus']}-cpus.json"
    kept.write_text(json.dumps(record.all, indent=1, ensure_ascii=False) + "\n", "utf-8")
    (folder / "engine.md").write_text(page(record.all, kept.name), "utf-8")
    (folder / "engine.svg").write_text(rows_plot(record.all), "utf-8")
    (folder / "engine-growth.svg").write_text(growth_plot(record.all), "utf-8")
    print(f"wrote {kept.name}, engine.md, engine.svg and engine-growth.svg to {folder}")


def main() -> None:
    options = _options()
    if not options.quick and options.fresh:
        options.record.unlink(missing_ok=True)
    facts = {
        "machine": {**describe_machine(), "load at start": load_average()},
        "versions": {name: version_of(name, python) for name, python in options.pythons.items()},
        "revision": options.revision,
        "quick": options.quick,
    }
    record = Record(options.record, facts)
    if not options.fresh and (parts := record.resume()):
        print(f"going on with {options.record}: {parts} parts are there", file=sys.stderr)
    try:
        measure(record, options)
    except KeyboardInterrupt:
        print(f"interrupted; the same command continues from {options.record}", file=sys.stderr)
        sys.exit(130)
    record.all["machine"]["load at end"] = load_average()
    record.save()
    print("\n".join([*table_lines(record.all), "", *growth_lines(record.all)]))
    print(in_lines(record.all["machine"]))
    if options.publish is not None:
        publish(record, options.publish)
        shutil.move(options.record, options.record.with_suffix(".done.json"))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    known = [*GROUPS, *AXES]
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one round: does it run")
    parser.add_argument("--only", type=among(known), default=known, metavar="PART,…")
    parser.add_argument(
        "--python",
        type=_named(ENGINES),
        action="append",
        metavar="ENGINE=PYTHON",
        help="the interpreter of an engine's environment; by default ours alone, with this one",
    )
    parser.add_argument("--record", type=Path, default=_ROOT / "build" / "bench" / "engine.json")
    parser.add_argument("--fresh", action="store_true", help="start over; ignore saved results")
    parser.add_argument("--publish", type=Path, metavar="FOLDER", help="write page and plots to it")
    parser.add_argument("--revision", default="", help="of the code, kept with the results")
    options = parser.parse_args()
    options.pythons = dict(options.python or [("rlm", sys.executable)])
    return options


def _named(known: Collection[str]) -> Callable[[str], tuple[str, str]]:
    def parse(text: str) -> tuple[str, str]:
        name, _, value = text.partition("=")
        if name not in known or not value:
            raise argparse.ArgumentTypeError(f"{text}: ENGINE=PYTHON, of {', '.join(known)}")
        return name, os.path.abspath(value)  # noqa: PTH100 - a link to another Python stays one

    return parse


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # before there was anything to keep
        sys.exit(130)
