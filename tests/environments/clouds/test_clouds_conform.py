"""The conformance suite through a double of each cloud's SDK: the worker in it is the real one."""

import asyncio

import pytest

from rlm.testing.conformance import CHECKS, Report, check
from tests.environments.clouds.clouds import NAMES, on_double
from tests.environments.clouds.machine import Machine

GROUPS = list(dict.fromkeys(each.group for each in CHECKS))
NOT_OFFERED_HERE = {
    "a full disk is an OSError, and the session goes on",
    "too many processes are an OSError, and the session goes on",
}
"""These limits are the provider's, and a double has none."""


async def checked(name: str, only: str, *, cuts_anywhere: bool = False) -> Report:
    with on_double(name) as (environment, machine):
        machine.cuts_anywhere = cuts_anywhere
        try:
            report = await check(environment, only=only)
        finally:
            await environment.close()
        await nothing_is_left(machine)
    return report


async def nothing_is_left(machine: Machine) -> None:
    """Every sandbox was ended, once, and nothing of them runs on."""
    assert sorted(machine.ended) == sorted(set(machine.ended))
    assert len(machine.ended) == len(machine.made) > 0
    assert machine.open_clients == 0
    for _ in range(200):
        if not machine.processes_left():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"still there: {machine.processes_left()}")


def told(report: Report) -> str:
    return "\n".join(f"{row.verdict} {row.group}: {row.name} ({row.detail})" for row in report.bad)


@pytest.mark.parametrize("name", ["modal"])
async def test_calls_conform_wherever_output_is_split(name: str) -> None:
    report = await checked(name, "calls: ", cuts_anywhere=True)
    assert report.ok, told(report)
    assert report.counts == {"passed": sum(each.group == "calls" for each in CHECKS)}


@pytest.mark.heavy
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("name", NAMES)
async def test_all_groups_conform(name: str, group: str) -> None:
    report = await checked(name, f"{group}: ")
    assert report.ok, told(report)
    not_offered = {row.name for row in report.rows if row.verdict == "not offered"}
    assert not_offered == (NOT_OFFERED_HERE if group == "limits" else set())


@pytest.mark.parametrize("name", NAMES)
def test_no_check_is_excused_in_advance(name: str) -> None:
    with on_double(name) as (environment, _):
        assert not getattr(environment, "lacks", {})
        assert environment.is_paid
