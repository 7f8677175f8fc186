"""Run tests and examples of the reference engine, where someone has them, with our package.

They are copied to a folder without its package, so that `import rlm` finds ours. Failures are told
by their cause; those of tests that reach into private parts of the reference are to be expected.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from rlm.testing.fake_server import FakeServer

__all__ = ["Result", "cause_of", "run_examples", "run_tests", "table"]

TESTS_SECONDS = 1_800
EXAMPLE_SECONDS = 60
ANSWER = '```repl\nprint(len(context))\nanswer["content"] = "done"\nanswer["ready"] = True\n```'
CAUSES = (
    ("incomplete checkout", r"No module named 'tests\b"),
    ("import error", r"\b(ImportError|ModuleNotFoundError)\b"),
    ("config error", r"\b(ConfigError|UnknownPriceError)\b"),
    ("private member", r"AttributeError: .*has no attribute '_\w+'"),
    ("assertion", r"\bAssertionError\b|^assert |DID NOT RAISE"),
)
"""Causes of failures, the first that fits, by what was raised."""


class Result(NamedTuple):
    """One test or example: its location, and its outcome: passed, skipped or a cause."""

    file: str
    name: str
    outcome: str


def cause_of(report: str) -> str:
    """Return the cause of a failure."""
    for cause, pattern in CAUSES:
        if re.search(pattern, report, re.MULTILINE):
            return cause
    return "other"


def run_tests(folder: Path) -> list[Result]:
    """Run the test files below a folder, and return a result for each test.

    Each file runs in a process of its own: the reference's `test_imports.py` removes its package
    from `sys.modules`, and what files after it replace there is then replaced in another copy.
    """
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as copy:
        target, report = Path(copy) / "tests", Path(copy) / "report.xml"
        shutil.copytree(folder, target)
        (target / "__init__.py").touch()
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-o", "addopts=", f"--junitxml={report}"]
        for path in sorted(target.rglob("test_*.py")):
            one = [*command, str(path.relative_to(copy))]
            subprocess.run(one, cwd=copy, capture_output=True, timeout=TESTS_SECONDS)
            results += [_result(case) for case in ElementTree.parse(report).iter("testcase")]
    return results


def _result(case: ElementTree.Element) -> Result:
    file = case.get("classname", "").partition(".Test")[0].replace(".", "/")
    name = case.get("name", "")
    for kind in ("failure", "error"):
        if (found := case.find(kind)) is not None:
            raised = [line for line in (found.text or "").splitlines() if line.startswith("E ")]
            told = "\n".join([found.get("message", ""), *raised])
            return Result(file, name, cause_of(told))
    return Result(file, name, "skipped" if case.find("skipped") is not None else "passed")


def run_examples(folder: Path) -> list[Result]:
    """Run each program of a folder against a model that answers at once."""
    results = []
    with FakeServer([ANSWER], loop=True) as server:
        for path in sorted(folder.glob("*.py")):
            variables = {**os.environ, **server.variables, "PORTKEY_API_KEY": "none"}
            with tempfile.TemporaryDirectory() as copy:
                shutil.copy(path, copy)
                command = [sys.executable, path.name]
                results.append(Result("examples", path.name, _ended(command, copy, variables)))
    return results


def _ended(command: list[str], folder: str, variables: dict[str, str]) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
            timeout=EXAMPLE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return "too slow"
    last = (done.stderr.strip().splitlines() or [""])[-1]
    return "passed" if done.returncode == 0 else cause_of(last)


def table(results: list[Result]) -> str:
    """Return counts by file and outcome, and their sums."""
    outcomes = sorted({each.outcome for each in results}, key=lambda each: (each != "passed", each))
    files = list(dict.fromkeys(each.file for each in results))
    counts = {
        file: Counter(each.outcome for each in results if each.file == file) for file in files
    }
    counts["all"] = Counter(each.outcome for each in results)
    width = max(map(len, counts))
    heading = " ".join([" " * width, *outcomes])
    lines = [
        " ".join([file.ljust(width), *(str(count[each]).rjust(len(each)) for each in outcomes)])
        for file, count in counts.items()
    ]
    return "\n".join([heading, *lines])
