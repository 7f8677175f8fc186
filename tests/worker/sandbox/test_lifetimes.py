"""What the host sees of a session's processes, and that none outlives what it belongs to."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.worker.sandbox.runs import need_namespaces, start

WAIT = 'os.write(1, b\'[0, "ready", ""]\\n\'); os.read(0, 1)'
PATIENCE_SECONDS = 20


class Family(NamedTuple):
    report: dict[str, Any]
    zygote: int
    keeper: int
    worker: int


def children_of(process: int) -> list[int]:
    everyone = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    return [each for each in everyone if status(each).get("PPid") == str(process)]


def status(process: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def is_gone(process: int) -> bool:
    return status(process).get("State", "Z")[0] in "ZX"


def wait_until_gone(*processes: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not all(is_gone(each) for each in processes):
        assert time.monotonic() < deadline, [status(each) for each in processes]
        time.sleep(0.01)


@pytest.fixture(params=["root", "stranger"])
def user(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[[], ["namespaces"], ["namespaces", "landlock"]], ids=len)
def family(request: pytest.FixtureRequest, user: str) -> Iterator[Family]:
    """A session whose worker waits."""
    with start(user, settings={"forbid": request.param}, sessions=[[WAIT]]) as process:
        try:
            assert process.stdout is not None
            report = json.loads(process.stdout.readline())
            assert json.loads(process.stdout.readline())[1] == "ready"
            (keeper,) = children_of(process.pid)
            (worker,) = children_of(keeper)
            yield Family(report, process.pid, keeper, worker)
        finally:
            process.kill()
            for stream in (process.stdin, process.stdout, process.stderr):
                assert stream is not None
                stream.close()


def test_a_worker_has_no_rights_left(family: Family) -> None:
    facts = status(family.worker)
    for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(facts[kind], 16) == 0
    if os.geteuid() == 0 and family.report["namespaces"]:
        assert int(facts["CapBnd"], 16) == 0
    assert facts["NoNewPrivs"] == "1"
    assert facts["Seccomp"] == "2"
    assert facts["Threads"] == "1"


def test_a_keeper_has_no_rights_left(family: Family) -> None:
    facts = status(family.keeper)
    for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(facts[kind], 16) == 0
    assert facts["NoNewPrivs"] == "1"
    assert facts["Uid"] == status(family.worker)["Uid"]


def test_nobody_may_look_into_a_session(family: Family) -> None:
    """The kernel gives the files of undumpable processes to root."""
    for process in (family.keeper, family.worker):
        assert Path(f"/proc/{process}/environ").stat().st_uid == 0


@pytest.mark.parametrize("family", [[]], indirect=True, ids=["all"])
def test_namespaces_are_not_the_hosts(family: Family) -> None:
    need_namespaces(family.report)
    if os.geteuid() != 0:
        pytest.skip("only root may look at namespaces of an undumpable process")
    kinds = ["mnt", "net", "ipc", "uts", "pid"]
    for kind in kinds:
        ours = Path(f"/proc/self/ns/{kind}").readlink()
        assert Path(f"/proc/{family.worker}/ns/{kind}").readlink() != ours
    mounts = Path(f"/proc/{family.worker}/mounts").read_text().splitlines()
    options = {line.split()[1]: set(line.split()[3].split(",")) for line in mounts}
    assert options["/sandbox"] >= {"rw", "nosuid", "nodev", "noexec"}
    for place, found in options.items():
        if place != "/sandbox":
            assert found >= {"ro", "nosuid"}, place
            assert "nodev" in found or place.startswith("/dev/"), place


def test_a_worker_dies_with_its_keeper(family: Family) -> None:
    os.kill(family.keeper, signal.SIGKILL)
    wait_until_gone(family.keeper, family.worker)


def test_all_die_with_the_zygote(family: Family) -> None:
    os.kill(family.zygote, signal.SIGKILL)
    wait_until_gone(family.keeper, family.worker)


def test_a_keeper_ignores_interrupts(family: Family) -> None:
    os.kill(family.keeper, signal.SIGINT)
    os.kill(family.worker, signal.SIGINT)  # which the worker has a handler for
    assert not is_gone(family.keeper)
    assert not is_gone(family.worker)
