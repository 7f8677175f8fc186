"""The paid test is never run by accident, says why it did not run, and works once it does."""

import os
import subprocess
import sys

import pytest

from tests.environments.clouds.clouds import on_double
from tests.live import live_environments
from tests.shape.tree import ROOT


@pytest.mark.heavy
def test_live_tests_are_skipped_unless_requested() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--confcutdir=tests/live", "tests/live/live_environments.py"],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key != "RLM_LIVE_ENV"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(live_environments.GROUPS) + 1} skipped" in done.stdout
    assert "RLM_LIVE_ENV is not set" in done.stdout


@pytest.mark.heavy
def test_ordinary_runs_do_not_collect_the_live_tests() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "tests/live"], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert "live_environments" not in done.stdout


async def test_the_live_timing_test_works_on_a_double(capsys: pytest.CaptureFixture[str]) -> None:
    with on_double("e2b") as (environment, machine):
        await live_environments.test_how_long_things_take(environment)
        assert not machine.sandboxes
    told = capsys.readouterr().out
    assert "a call from a cell: " in told
    assert "isolation" in told


@pytest.mark.heavy
@pytest.mark.parametrize("group", live_environments.GROUPS)
async def test_the_live_conformance_test_works_on_a_double(group: str) -> None:
    with on_double("e2b") as (environment, machine):
        await live_environments.test_a_part_of_the_conformance_suite(environment, group)
        assert not machine.sandboxes
