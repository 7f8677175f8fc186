"""A paid test, which needs an account: `make test-live ENV=e2b`.

It opens about sixty sandboxes, most of them one after another, for a few seconds each. The name of
this file keeps it out of every other run. It needs a key, so `tests/conftest.py`, which hides keys,
must not be loaded (`--confcutdir=tests/live`). RLM_LIVE_ENV is the environment's name, and
RLM_LIVE_OPTIONS, if set, its options as JSON.
"""

import json
import os
import time
from typing import Any

import pytest

from rlm.testing.conformance import Report, Row, check
from rlm.testing.conformance.bench import SuiteHost
from rlm.wiring.registry import make_environment

GROUPS = ("names", "calls", "concurrency", "contexts", "texts", "recovery")
CALLS = 20


@pytest.fixture
def environment() -> Any:
    name = os.environ.get("RLM_LIVE_ENV")
    if not name:
        pytest.skip(
            "RLM_LIVE_ENV is not set: `make test-live ENV=e2b` costs money, so it is asked for"
        )
    made: Any = make_environment(name, json.loads(os.environ.get("RLM_LIVE_OPTIONS") or "{}"))
    if (problem := made.problem()) is not None:
        pytest.skip(problem)
    return made


def show(row: Row) -> None:
    print(f"{row.verdict:12} {row.seconds:6.1f} s  {row.group}: {row.name}  {row.detail[:200]}")


@pytest.mark.parametrize("group", GROUPS)
async def test_a_part_of_the_conformance_suite(environment: Any, group: str) -> None:
    started = time.monotonic()
    try:
        report: Report = await check(environment, only=f"{group}: ", on_row=show)
    finally:
        await environment.close()
    print(f"{group}: {report.counts} in {time.monotonic() - started:.1f} s")
    assert report.ok, [f"{row.name}: {row.detail}" for row in report.bad]


async def test_how_long_things_take(environment: Any) -> None:
    """Print figures for the guide; the provider's page shows the cost."""
    began = time.monotonic()
    session = await environment.open(SuiteHost(), {})
    ready = time.monotonic()
    try:
        for _ in range(CALLS):
            assert (await session.execute("1 + 1", timeout_seconds=60)).stdout == "2\n"
        cells = time.monotonic()
        code = f"for _ in range({CALLS}): llm_query('x')"
        assert (await session.execute(code, timeout_seconds=120)).error is None
        calls = time.monotonic()
    finally:
        await environment.close()
    closed = time.monotonic()
    print(f"a sandbox and its session: {ready - began:.2f} s")
    print(f"a cell: {1_000 * (cells - ready) / CALLS:.0f} ms")
    print(f"a call from a cell: {1_000 * (calls - cells) / CALLS:.0f} ms")
    print(f"closing: {closed - calls:.2f} s; this sandbox lived for {closed - began:.1f} s in all")
    print("inside it:", await environment.describe())
