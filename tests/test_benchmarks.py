"""The benchmarks run to their end and show every row; what they measure is not judged here."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.engine import _named
from benchmarks.engines.growing import AXES, exponent
from benchmarks.engines.page import table_lines
from benchmarks.engines.rows import GROUPS

ROOT = Path(__file__).resolve().parents[1]
HANGS_SECONDS = 900
CONTEXT_ROWS = (
    "100 MB context: taken in and described",
    "100 MB context: written once",
    "100 MB context: visible in the first session",
    "100 MB context: visible in a further session",
    "100 MB context: private memory of a further session's worker",
    "100 MB context: memory of a further session, checkpoint included",
    "100 MB context: peak of the host above what it had",
)
ROWS = {
    "zygote": ("zygote start, once per process", "first session of a process, zygote included"),
    "sessions": ("session, nothing kept ready", "session, from the pool", "session, closing"),
    "cells": ("cell `x = 1`", "cell of five lines", "cell `x = 1` after a pause of 50 ms"),
    "callbacks": ("callback `llm_query('x')`, one after the other", "batch of 1,000 prompts"),
    "contexts": CONTEXT_ROWS,
    "crowd": (
        "4 sessions at once, 100 MB context: all have run a cell",
        "4 sessions at once: all closed",
        "4 sessions at once, 100 MB context: memory of each",
    ),
    "interrupts": (
        "time limit to result: `while True: pass`",
        "time limit to result: `time.sleep(60)`",
        "worker lost to session restored",
        "time limit to result: a loop in C, killed and restored",
    ),
    "checkpoints": (
        "checkpoint, empty heap: the worker is busy",
        "checkpoint, empty heap: the cell `x = 1` after it",
        "checkpoint, 100 MB of objects: the worker is busy",
        "checkpoint, 100 MB of objects: the cell `x = 1` after it",
    ),
}
MACHINE = ("date", "cpus", "model", "kernel", "python", "load at start", "load at end")
OF_CHECKPOINTS = ("checkpoint", "restored")
"""Words in rows that a system without checkpoints has no sample for."""

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox's layers are Linux's")


def run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=HANGS_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_sandbox(file: Path, *options: str) -> tuple[str, dict[str, Any]]:
    always = ("--rounds", "2", "--small", "--json", str(file))
    output = run("benchmarks/sandbox.py", *always, *options)
    assert "LEFT BEHIND" not in output
    return output, json.loads(file.read_text("utf-8"))


def heads(output: str) -> list[str]:
    """The first column of the first table."""
    table, _, _ = output.partition("\n\n")
    return [line.partition("  ")[0] for line in table.splitlines()[1:]]


@linux_only
@pytest.mark.heavy
def test_the_sandbox_benchmark_compares_contenders(tmp_path: Path) -> None:
    groups = ("sessions", "cells", "callbacks")
    output, kept = run_sandbox(tmp_path / "a.json", "--only", ",".join(groups))
    rows = [row for group in groups for row in ROWS[group]]
    assert heads(output) == rows
    assert all(f"\n{name} " in output for name in MACHINE)
    seen = {(each["row"], each["contender"]) for each in kept["rows"] if each["samples"]}
    everybody = ["local", "plain", "in-process"]
    if "bwrap is left out" not in output:
        everybody.append("bwrap")
    pool = "session, from the pool"
    wanted = {(row, name) for row in rows for name in everybody if row != pool}
    assert seen == wanted | {(pool, "local")}


@linux_only
@pytest.mark.heavy
def test_the_sandbox_benchmark_runs_alone(tmp_path: Path) -> None:
    groups = ("zygote", "contexts", "crowd", "interrupts", "checkpoints")
    options = ("--contenders", "local", "--only", ",".join(groups))
    output, kept = run_sandbox(tmp_path / "a.json", *options)
    rows = [row for group in groups for row in ROWS[group]]
    assert heads(output) == rows
    seen = {each["row"] for each in kept["rows"] if each["samples"]}
    if "this system has no checkpoints" in output:
        rows = [row for row in rows if not any(word in row for word in OF_CHECKPOINTS)]
        seen &= set(rows)
    assert seen == set(rows)


@pytest.mark.heavy
@linux_only
def test_the_round_trip_benchmark_prints_its_rows() -> None:
    output = run("benchmarks/round_trips.py", "--rounds", "2")
    head, *rows = (line[:22].strip() for line in output.splitlines())
    assert head == "microseconds each"
    assert rows == [
        "cell `x = 1`",
        "cell of five lines",
        "callback",
        "callback, awaited",
        "batch of 1,000",
        "call of 20 threads",
    ]


@linux_only
def test_an_unknown_group_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/sandbox.py", "--only", "cells,dreams"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
    )
    assert done.returncode == 2
    assert "dreams: choose from zygote, sessions" in done.stderr


@pytest.mark.heavy
def test_the_http_client_benchmark_prints_its_costs() -> None:
    script = str(ROOT / "benchmarks" / "clients.py")
    size = ["--calls", "20", "--at-once", "5", "--delay-ms", "1", "--rounds", "1"]
    done = subprocess.run(
        [sys.executable, script, *size],
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
        check=True,
    )
    assert "20 calls x 1 ms, 5 at once" in done.stdout
    assert done.stdout.count("rlm, from a cell") == 2
    assert done.stderr == ""


@pytest.mark.heavy
def test_the_limited_jobs_benchmark_prints_its_costs() -> None:
    output = run("benchmarks/limited.py", "--rounds", "2")
    for row in ("a call, process ready", "a call, process not ready", "new interpreter"):
        assert row in output


@pytest.mark.heavy
def test_the_journal_benchmark_prints_its_costs(tmp_path: Path) -> None:
    script = str(ROOT / "benchmarks" / "journal.py")
    size = ["--calls", "20", "--rounds", "1", "--disk", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, script, *size],
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
        check=True,
    )
    assert "items of one batch" in done.stdout
    assert "replies recalled a second" in done.stdout


@pytest.mark.heavy
def test_the_batch_benchmark_measures_and_checks() -> None:
    shown = run("benchmarks/batch.py", "--rows", "3", "5", "--concurrency", "2")
    rows = [line.split("|")[1].strip() for line in shown.splitlines() if line.startswith("| ")]
    assert rows == ["rows", "3", "5"]


# -- engines beside each other --------------------------------------------------------------------


def run_engine(folder: Path, *options: str) -> tuple[str, dict[str, Any]]:
    record = folder / "record.json"
    output = run("benchmarks/engine.py", "--quick", "--record", str(record), *options)
    return output, json.loads(record.read_text("utf-8"))


@pytest.mark.heavy
@linux_only
def test_parts_already_measured_are_not_repeated(tmp_path: Path) -> None:
    _, first = run_engine(tmp_path, "--only", "ready")
    assert first["groups"]["ready"]["engines"]["rlm"]["metrics"]["wall_seconds"]
    output, second = run_engine(tmp_path, "--only", "ready,log")
    assert second["groups"]["ready"] == first["groups"]["ready"]
    assert second["groups"]["log"]["engines"]["rlm"]["metrics"]["bytes"]
    assert "resumed" in second
    assert "| log of a context of 10 MB, 5 steps | KB | ≤ 100 |" in output


@linux_only
@pytest.mark.heavy
def test_every_row_of_ours_has_samples_and_every_curve_its_points(tmp_path: Path) -> None:
    folder = tmp_path / "published"
    output = run(
        "benchmarks/engine.py",
        *("--quick", "--record", str(tmp_path / "record.json"), "--publish", str(folder)),
    )
    (kept,) = folder.glob("engine-*.json")
    found = json.loads(kept.read_text("utf-8"))
    for name, group in GROUPS.items():
        metrics = found["groups"][name]["engines"]["rlm"]["metrics"]
        assert all(metrics[row.metric] for row in group.rows), name
    assert {name: curve["sizes"] for name, curve in found["growth"].items()} == {
        name: list(axis.quick) for name, axis in AXES.items()
    }
    assert found["groups"]["crowd"]["engines"]["rlm"]["metrics"]["right"] == [8]
    assert not found["groups"]["import"]["engines"]["rlm"]["metrics"]["class_loads"]
    page = (folder / "engine.md").read_text("utf-8")
    assert "these figures mean nothing" in page
    assert all(row.name in page and row.name in output for g in GROUPS.values() for row in g.rows)
    for plot in ("engine.svg", "engine-growth.svg"):
        assert ElementTree.parse(folder / plot).getroot().tag.endswith("svg")


def test_an_unknown_part_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/engine.py", "--only", "dreams"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
    )
    assert done.returncode == 2
    assert "dreams: choose from import, first" in done.stderr


def test_interpreters_may_be_named_relative_to_the_current_folder() -> None:
    """The scenarios have folders of their own."""
    assert _named(["rlm"])("rlm=.venv/bin/python") == ("rlm", str(Path.cwd() / ".venv/bin/python"))


@pytest.mark.parametrize(("power", "told"), [(1.0, 1.0), (2.0, 2.0), (0.5, 0.5)])
def test_the_exponent_of_growing_costs_is_found(power: float, told: float) -> None:
    sizes = [0, 100, 200, 400, 800]
    found = exponent(sizes, [3.0 + 0.01 * size**power for size in sizes])
    assert found == pytest.approx(told)


def test_constant_costs_have_no_exponent() -> None:
    assert exponent([1, 50, 100], [2.0, 1.9, 2.0]) is None


def results(**medians: float | None) -> dict[str, Any]:
    """What a run found for one row, ours and others'."""
    engines = {
        name: {"cannot": "too far"} if value is None else {"metrics": {"wall_seconds": [value]}}
        for name, value in medians.items()
    }
    return {
        "versions": dict.fromkeys(medians, "1.0"),
        "groups": {"ready": {"engines": engines}},
        "growth": {},
    }


@pytest.mark.parametrize(
    ("medians", "told"),
    [
        ({"rlm": 0.004, "rlms": 0.5}, "| 4 | 500 | yes |"),
        ({"rlm": 0.006, "rlms": 0.5}, "| 6 | 500 | **no**, nor is a peer better |"),
        ({"rlm": 0.006, "rlms": 0.005}, "| 6 | 5 | **no** |"),
        ({"rlm": 0.004, "rlms": None}, "| 4 | – | yes |"),
    ],
)
def test_the_table_says_whether_a_goal_is_met(medians: dict[str, float | None], told: str) -> None:
    lines = table_lines(results(**medians))
    assert lines[2].endswith(told)
    assert ("too far" in lines[-1]) == (None in medians.values())
