"""Runs every test that waits for time or for another process many times, on a busy machine.

    python -m tests.under_load [--rounds 50] [--load 8] [--table FILE] [paths and options of pytest]

`make test-load` does. Each test runs alone; a table of those that failed comes last. As a plugin of
pytest this module chooses the tests, by what is written in them and in the fixtures they use.
"""

import argparse
import contextlib
import functools
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
ROUNDS = "TEST_LOAD_ROUNDS"
TABLE = "TEST_LOAD_TABLE"

WAITS = re.compile(
    r"sleep|_seconds|timeout|monotonic|perf_counter|subprocess|Popen|wait\(|wait_for|\.join\(|Thread\b"
    r"|descendants|running_below|is_running|os\.kill|settle|LocalEnvironment|PlainEnvironment"
)
"""What a test does that waits: for a clock, a thread, a process or a sandbox, which is one."""


class Chosen:
    """The plugin: chooses, repeats and counts."""

    def __init__(self, rounds: int, table: Path | None) -> None:
        self.rounds = rounds
        self.table = table
        self.runs: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.words: dict[str, str] = {}

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Have every test that is chosen run so often."""
        if self.rounds > 1 and waits(metafunc.function, _fixtures(metafunc)):
            metafunc.fixturenames.append("load_round")
            metafunc.parametrize("load_round", range(self.rounds), ids="round{}".format)

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave out every test that waits for nothing."""
        chosen = {item: None for item in items if _waits(item)}
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = list(chosen)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count; a test fails once a round, however many of its parts do."""
        name = re.sub(r"-?\bround\d+\b-?", "", report.nodeid).removesuffix("[]")
        if report.when == "call" or report.failed:
            self.runs[name] += report.when == "call"
            self.failures[name] += report.failed
        if report.failed:
            self.words[name] = _last_words(report)

    def pytest_sessionfinish(self) -> None:
        """Add the table of this process to that of all."""
        if self.table is not None:
            with self.table.open("a", encoding="utf-8") as file:
                for name, runs in self.runs.items():
                    words = self.words.get(name, "")
                    file.write(f"{self.failures[name]}\t{runs}\t{name}\t{words}\n")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin, if the program below has requested it."""
    if ROUNDS in os.environ:
        is_worker = hasattr(config, "workerinput")  # Of pytest-xdist, which reports to another.
        table = None if is_worker else os.environ.get(TABLE)
        chosen = Chosen(int(os.environ[ROUNDS]), Path(table) if table else None)
        config.pluginmanager.register(chosen, "rlm-load")


def waits(function: Callable[..., Any], fixtures: list[Callable[..., Any]]) -> bool:
    """Whether a test, or a fixture that it uses, waits for something."""
    return any(WAITS.search(_source(each)) for each in (function, *fixtures))


@functools.cache
def _source(function: Callable[..., Any]) -> str:
    """The text of a function of ours; fixtures of plugins wait in ways of their own."""
    plain = inspect.unwrap(function)
    try:
        is_ours = Path(inspect.getfile(plain)).is_relative_to(ROOT / "tests")
        return inspect.getsource(plain) if is_ours else ""
    except (OSError, TypeError):
        return ""


def _waits(item: pytest.Item) -> bool:
    function = getattr(item, "function", None)
    if function is None:
        return False
    definitions = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009
    return waits(function, [found[-1].func for found in definitions.values()])


def _fixtures(metafunc: pytest.Metafunc) -> list[Callable[..., Any]]:
    definitions = getattr(metafunc, "_arg2fixturedefs")  # noqa: B009
    return [found[-1].func for found in definitions.values() if found]


def _last_words(report: pytest.TestReport) -> str:
    lines = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
    return " ".join((lines[0] if lines else report.longreprtext[-200:]).split())[:160]


# -- the program -----------------------------------------------------------------------------------


@contextlib.contextmanager
def busy(processes: int) -> Generator[None, None, None]:
    """Keep the machine busy with this number of processes."""
    if not processes:
        yield
        return
    spin = [sys.executable, "-S", "-c", "while True: pass"]
    if shutil.which("stress-ng"):
        started = [subprocess.Popen(["stress-ng", "--quiet", "--cpu", str(processes)])]
    else:
        started = [subprocess.Popen(spin) for _ in range(processes)]
    try:
        yield
    finally:
        for each in started:
            each.terminate()
            each.wait()


def main() -> int:
    """Run, and print the table; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--load", type=int, metavar="N", default=8, help="N busy processes")
    parser.add_argument("--table", type=Path, default=ROOT / "build" / "load.tsv")
    given, more = parser.parse_known_args()
    given.table.parent.mkdir(exist_ok=True)
    given.table.unlink(missing_ok=True)
    variables = {**os.environ, ROUNDS: str(given.rounds), TABLE: str(given.table)}
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "tests.under_load"]
    command += ["-m", "not heavy", *more]
    with busy(given.load):
        ended = subprocess.run(command, cwd=ROOT, env=variables, check=False)
    rows = [line.split("\t") for line in given.table.read_text("utf-8").splitlines()]
    bad = [row for row in rows if int(row[0])]
    print(f"{len(rows)} tests that wait, {sum(int(row[1]) for row in rows)} runs")
    for failures, runs, name, words in sorted(bad, key=lambda row: -int(row[0])):
        print(f"{failures:>4} of {runs:>3}  {name}\n             {words}")
    return ended.returncode if bad else int(ended.returncode not in (0, 5))


if __name__ == "__main__":
    sys.exit(main())
