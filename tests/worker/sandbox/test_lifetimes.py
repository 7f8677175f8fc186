"""What the host sees of a session's processes, and that none outlives what it belongs to."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.worker.sandbox.processes import children_of, is_gone, status, wait_until_gone
from tests.worker.sandbox.runs import need_namespaces, start

WAIT = 'os.write(1, b\'[0, "ready", ""]\\n\'); os.read(0, 1)'


class Family(NamedTuple):
    """`starter` is the zygote itself, or where there is a pid namespace, what waits for it."""

    report: dict[str, Any]
    starter: int
    zygote: int
    workers: tuple[int, int]


@pytest.fixture(params=["root", "stranger"])
def user(request: pytest.FixtureRequest) -> str:
    return str(request.param)


MIDDLE = pytest.param(["namespaces"], marks=pytest.mark.heavy, id="1")


@pytest.fixture(params=[[], MIDDLE, ["namespaces", "landlock"]], ids=len)
def family(request: pytest.FixtureRequest, user: str) -> Iterator[Family]:
    """Two sessions whose workers wait."""
    order = {"settings": {"forbid": request.param}, "sessions": [[WAIT]] * 2, "together": True}
    with start(user, **order) as process:
        try:
            assert process.stdout is not None
            report = json.loads(process.stdout.readline())
            for _ in range(2):
                assert json.loads(process.stdout.readline())[1] == "ready"
            zygote = process.pid
            if report["pid_namespace"]:
                (zygote,) = children_of(process.pid)
            first, second = children_of(zygote)
            yield Family(report, process.pid, zygote, (first, second))
        finally:
            process.kill()
            for stream in (process.stdin, process.stdout, process.stderr):
                assert stream is not None
                stream.close()


def test_a_worker_has_no_capabilities_left(family: Family) -> None:
    for worker in family.workers:
        facts = status(worker)
        for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            assert int(facts[kind], 16) == 0
        if os.geteuid() == 0 and family.report["namespaces"]:
            assert int(facts["CapBnd"], 16) == 0
        assert facts["NoNewPrivs"] == "1"
        assert facts["Seccomp"] == "2"
        filters = "2" if family.report["forks"] else "1"
        assert facts.get("Seccomp_filters", filters) == filters  # told from Linux 5.9 on
        assert facts["Threads"] == "1"


def test_each_worker_is_a_process_group_in_the_zygotes_session(family: Family) -> None:
    """So that the zygote can signal one as a whole, and nobody gets a terminal."""
    first, second = family.workers
    assert [os.getpgid(first), os.getpgid(second)] == [first, second]
    assert os.getsid(first) == os.getsid(second) == os.getsid(family.zygote)


def test_other_processes_cannot_inspect_a_session(family: Family) -> None:
    """The kernel gives the files of undumpable processes to root."""
    for process in family.workers:
        assert Path(f"/proc/{process}/environ").stat().st_uid == 0


@pytest.mark.parametrize("family", [[]], indirect=True, ids=["all"])
def test_namespaces_differ_from_those_of_the_host(family: Family) -> None:
    need_namespaces(family.report)
    if os.geteuid() != 0:
        pytest.skip("only root may look at namespaces of an undumpable process")
    kinds = ["mnt", "net", "ipc", "uts", "pid"]
    for kind in kinds:
        ours = Path(f"/proc/self/ns/{kind}").readlink()
        for worker in family.workers:
            assert Path(f"/proc/{worker}/ns/{kind}").readlink() != ours
    mounts = Path(f"/proc/{family.workers[0]}/mounts").read_text().splitlines()
    options = {line.split()[1]: set(line.split()[3].split(",")) for line in mounts}
    assert options["/sandbox"] >= {"rw", "nosuid", "nodev", "noexec"}
    for place, found in options.items():
        if place != "/sandbox":
            assert found >= {"ro", "nosuid"}, place
            assert "nodev" in found or place.startswith("/dev/"), place


def test_each_session_has_its_own_mount_namespace(family: Family) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may look at namespaces of an undumpable process")
    mounts = {Path(f"/proc/{each}/ns/mnt").readlink() for each in (family.zygote, *family.workers)}
    assert len(mounts) == (3 if family.report["namespaces"] else 1)


def test_all_die_with_the_zygote(family: Family) -> None:
    os.kill(family.zygote, signal.SIGKILL)
    wait_until_gone(family.starter, family.zygote, *family.workers)


def test_all_die_with_the_process_that_started_the_zygote(family: Family) -> None:
    os.kill(family.starter, signal.SIGKILL)
    wait_until_gone(family.starter, family.zygote, *family.workers)


def test_a_session_ends_without_ending_others(family: Family) -> None:
    first, second = family.workers
    os.killpg(first, signal.SIGKILL)
    wait_until_gone(first)
    assert not is_gone(second)
    assert not is_gone(family.zygote)
