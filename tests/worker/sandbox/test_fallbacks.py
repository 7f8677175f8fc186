"""What is chosen where something is not possible: each missing piece is pretended, one by one."""

import os
import sys
from typing import Any

import pytest

from tests.worker.sandbox.runs import need_namespaces, run, run_cell

WHO = "result = [os.getresuid(), os.getresgid(), os.getgroups()]"
OWN_UIDS = range(0x70000000, 0x70010000)


def need_landlock(report: dict[str, Any]) -> None:
    if not report["landlock_abi"]:
        pytest.skip("; ".join(report["missing"]))


def need_all(user: str) -> dict[str, Any]:
    report = run(user).report
    need_namespaces(report, forks=True)
    return report


def test_as_root_every_session_gets_its_own_uid() -> None:
    done = run("root", sessions=[[WHO], [WHO]])
    need_namespaces(done.report, forks=True)
    assert done.report["own_uid"] is True
    uids = set()
    for outcome in done.outcomes:
        user, group, groups = outcome.result
        assert user == group
        assert len(set(user)) == 1
        assert user[0] in OWN_UIDS
        assert groups == []
        uids.add(user[0])
    assert len(uids) == 2


@pytest.mark.parametrize("user", ["root", "stranger"])
def test_the_first_process_is_the_zygote(user: str) -> None:
    who = "result = [os.getppid(), os.getpid() == os.getpgid(0) > 1]"
    report, outcome = run_cell(user, who)
    need_namespaces(report)
    assert outcome.result == [1, True]


@pytest.mark.parametrize("user", ["root", "stranger"])
def test_user_namespaces_without_mounts_are_not_used(user: str) -> None:
    """As on Ubuntu 24.04: the zygote must not be left in a half-made namespace."""
    report, outcome = run_cell(user, 'open("/etc/passwd")', broken=["mount"])
    assert (report["namespaces"], report["scratch"]) == ("", "")
    assert (report["pid_namespace"], report["unchanged"]) == (False, True)
    assert any(reason.startswith("namespaces as user: ") for reason in report["missing"])
    assert outcome.error == "PermissionError"


def test_a_default_container_uses_landlock_and_another_uid() -> None:
    """Root, but no new namespaces and no mounts: Landlock, seccomp and another uid."""
    report, outcome = run_cell("root", WHO, broken=["container"])
    need_landlock(report)
    assert report["file_system"] == ["landlock"]
    assert (report["namespaces"], report["pid_namespace"], report["scratch"]) == ("", False, "")
    if report["own_uid"]:
        assert outcome.result[0][0] in OWN_UIDS
    else:  # This Python is in a folder that only root can enter.
        assert outcome.result[0] == [0, 0, 0]
        assert any("could no longer be read" in reason for reason in report["missing"])


def test_a_container_with_a_public_python_gives_sessions_their_own_uid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same with a Python that every user can read, which is what containers have."""
    from tests.worker.sandbox import runs

    python = runs.python_of_strangers()
    if not python:
        pytest.skip("there is no Python that another user can run")
    monkeypatch.setattr(sys, "executable", python)
    report, outcome = run_cell("root", WHO, broken=["container"])
    need_landlock(report)
    assert report["own_uid"] is True
    assert outcome.result[0][0] in OWN_UIDS
    assert outcome.result[2] == []


def test_a_container_without_landlock_is_sealed() -> None:
    """Then a uid of its own is possible even with a private Python: no file is read any more."""
    report, outcome = run_cell("root", WHO, broken=["container", "landlock"])
    assert report["file_system"] == ["sealed"]
    assert report["own_uid"] is True
    assert outcome.result[0][0] in OWN_UIDS


def test_with_few_uids_sessions_share_that_of_nobody() -> None:
    """As in a container with remapped uids: nobody's, shared by all sessions."""
    need_all("root")
    report, outcome = run_cell("root", WHO, broken=["high uids"])
    assert report["own_uid"] is False
    assert outcome.result[0] == [65534] * 3
    assert report["max_tasks"] > 128  # a limit for all of nobody's tasks


def test_an_unreadable_interpreter_runs_as_root_without_capabilities() -> None:
    need_all("root")
    for forbid in [], ["namespaces"]:
        done = run(
            "root",
            broken=["reading"],
            settings={"forbid": forbid},
            sessions=[[WHO, "os.setuid(5)", "os.fork()", "os.chown('.', 5, 5)"]],
        )
        assert (done.report["own_uid"], done.report["max_tasks"]) == (False, None)
        assert done.report["asks_for_threads"] is bool(forbid)
        assert done.outcomes[0].result[0] == [0, 0, 0]
        assert [outcome.error for outcome in done.outcomes[1:]] == ["PermissionError"] * 3


@pytest.mark.parametrize("user", ["root", "stranger"])
@pytest.mark.parametrize("broken", ["counting", "pid namespace"])
def test_forking_needs_neither_task_counts_nor_a_pid_namespace(user: str, broken: str) -> None:
    need_all(user)
    report, outcome = run_cell(user, "os.fork()", broken=[broken])
    assert report["forks"] is True
    assert report["pid_namespace"] is (broken == "counting")
    assert report["scratch"] == "/sandbox"
    assert outcome.error == "PermissionError"  # but they need a permit


@pytest.mark.parametrize("user", ["root", "stranger"])
@pytest.mark.parametrize("forbid", [[], ["namespaces"], ["namespaces", "landlock"]], ids=len)
def test_forking_is_forbidden_if_the_kernel_cannot_ask_about_it(
    user: str, forbid: list[str]
) -> None:
    """As on Linux before 5.5, or where the C library's note of the thread can't be found."""
    fork = "from rlm_worker.sandbox import permits; permits.fork()"
    done = run(user, broken=["asking"], settings={"forbid": forbid}, sessions=[[fork, "os.fork()"]])
    assert (done.report["forks"], done.report["asks_for_threads"]) == (False, False)
    assert any(reason.startswith("permits: ") for reason in done.report["missing"])
    assert [outcome.error for outcome in done.outcomes] == ["PermissionError"] * 2


@pytest.mark.parametrize("user", ["root", "stranger"])
def test_threads_need_approval_where_no_kernel_limit_would_hold(user: str) -> None:
    broken = ["high uids"]
    report = run(user, broken=broken, settings={"forbid": ["namespaces"]}).report
    assert report["asks_for_threads"] is report["forks"] is True
    without = {"forbid": ["namespaces"], "checkpoints": False}
    report = run(user, broken=broken, settings=without).report
    assert (report["asks_for_threads"], report["forks"]) == (True, False)


@pytest.mark.parametrize("user", ["root", "stranger"])
def test_older_kernels_without_mount_setattr_are_supported(user: str) -> None:
    """Without the newer way to make mounts read-only."""
    need_all(user)
    cells = ["open(os.__file__, 'a')", "os.mkdir('/x')", "open('/dev/null', 'w').write('x')"]
    done = run(user, broken=["mount_setattr"], sessions=[cells])
    *refused, written = [outcome.error for outcome in done.outcomes]
    # Which layer is asked first depends on whose file it is: the mount, Landlock or its mode.
    assert set(refused) <= {"OSError", "PermissionError"}
    assert written == ""


# -- nothing left --------------------------------------------------------------------------------


def test_without_seccomp_the_sandbox_refuses_to_start() -> None:
    report = run("stranger", settings={"forbid": ["seccomp"]}).report
    assert report["unchanged"] is True
    assert "system calls can't be filtered (forbidden by the settings)" in report["missing"]
    assert "allow_unsafe=True" in report["missing"]


def test_a_machine_without_a_system_call_table_is_refused() -> None:
    report = run("stranger", broken=["machine"]).report
    assert f"no system call table for this machine ({os.uname().machine})" in report["missing"]


def test_without_any_file_system_layer_the_sandbox_refuses_to_start() -> None:
    forbid = ["namespaces", "landlock", "sealed"]
    report = run("stranger", settings={"forbid": forbid}).report
    assert report["unchanged"] is True
    assert "files can't be hidden" in report["missing"]
    assert "landlock: forbidden by the settings" in report["missing"]


def test_allow_unsafe_starts_without_isolation() -> None:
    forbid = ["namespaces", "landlock", "seccomp"]
    settings = {"forbid": forbid, "allow_unsafe": True}
    report, outcome = run_cell(
        "stranger", "result = open('/etc/passwd').read(0)", settings=settings
    )
    assert (report["seccomp"], report["sealed"], report["file_system"]) == (False, False, [])
    assert len(report["missing"]) >= 4
    assert outcome.error == ""
