"""Control groups: which folder is ours, what a session gets, and that nothing is left of it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlm.worker.sandbox import cgroups, orders

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux's")

Written = dict[tuple[str, str], str]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    """Folders stand for groups; what is written to their files is kept here."""
    kept: Written = {}

    def where(fd: int) -> str:
        return Path(f"/proc/self/fd/{fd}").readlink().name

    def write(fd: int, name: str, text: str) -> None:
        kept[where(fd), name] = text

    offered = {"cgroup.controllers": ["cpu", "memory", "pids"], "cgroup.subtree_control": []}
    monkeypatch.setattr(cgroups, "_write", write)
    monkeypatch.setattr(cgroups, "_read", lambda fd, name: offered[name])
    return kept


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_session_gets_a_group_with_limits(tmp_path: Path, written: Written) -> None:
    found = cgroups.find(str(tmp_path))
    ours = f"rlm-{os.getpid()}"
    group = found.make(7, 1 << 30, 64 << 20, 128)
    assert names(tmp_path / ours) == ["7"]
    assert written[tmp_path.name, "cgroup.subtree_control"] == "+memory +pids +cpu"
    assert written[ours, "cgroup.subtree_control"] == "+memory +pids +cpu"
    assert written["7", "memory.max"] == str((128 << 20) + (64 << 20) + 2 * (1 << 30))
    assert (written["7", "memory.swap.max"], written["7", "pids.max"]) == ("0", "384")
    before = int(written["7", "memory.max"])
    group.grow()
    group.grow()
    assert int(written["7", "memory.max"]) == before + 2 * orders.GROWTH_BYTES
    group.remove()
    assert names(tmp_path / ours) == []
    found.close()
    assert names(tmp_path) == []


def test_without_a_memory_limit_the_cgroup_has_none(tmp_path: Path, written: Written) -> None:
    found = cgroups.find(str(tmp_path))
    group = found.make(1, 0, 64 << 20, 128)
    group.grow()
    assert ("1", "memory.max") not in written
    found.close()  # With what is left in it.
    assert names(tmp_path) == []


def test_cgroups_left_by_a_killed_zygote_are_removed(tmp_path: Path, written: Written) -> None:
    ended = 4_194_304  # No process has such an id.
    for name in (f"rlm-{ended}/3", "rlm-1/3", "rlm-x", "others"):
        (tmp_path / name).mkdir(parents=True)
    cgroups.find(str(tmp_path)).close()
    assert names(tmp_path) == ["others", "rlm-1", "rlm-x"]


@pytest.mark.parametrize("missing", ["memory", "pids"])
def test_a_missing_cgroup_controller_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    offered = [name for name in ("cpu", "memory", "pids") if name != missing]
    monkeypatch.setattr(cgroups, "_read", lambda fd, name: offered)
    fds = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match=f"no controller for {missing} is available"):
        cgroups.find(str(tmp_path))
    assert names(tmp_path) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == fds


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Finds the folder of a process in `own`, where `delegated` was marked by systemd."""

    def find(own: str, delegated: str = "", root: str = "/") -> str:
        (tmp_path / own.strip("/")).mkdir(parents=True, exist_ok=True)
        for folder in [*tmp_path.rglob("*"), *([tmp_path] if root != "/" else [])]:
            if folder.is_dir():
                (folder / "cgroup.type").touch()
        monkeypatch.setattr(cgroups, "_mount", lambda: (str(tmp_path), root))
        monkeypatch.setattr(cgroups, "_own_group", lambda: own if root == "/" else root + own)
        marked = str(tmp_path / delegated.strip("/")) if delegated else ""
        monkeypatch.setattr(
            cgroups, "_attribute", lambda path, name: b"1" if path == marked else b""
        )
        return os.path.relpath(cgroups.delegated_folder(), tmp_path)

    return find


def test_a_process_in_the_root_cgroup_may_divide_it(tree: Callable[..., str]) -> None:
    assert tree("/") == "."


def test_the_nearest_delegated_cgroup_above_is_used(tree: Callable[..., str]) -> None:
    assert tree("/a/service/main", "/a/service") == "a/service"
    assert tree("/a/service/main/deep", "/a/service") == "a/service"
    assert tree("/service/main", "/service", root="/outside") == "service"


@pytest.mark.parametrize("delegated", ["", "/a/service"])
def test_a_cgroup_with_processes_cannot_be_divided(
    tree: Callable[..., str], delegated: str
) -> None:
    with pytest.raises(OSError, match="Delegate=yes and DelegateSubgroup="):
        tree("/a/service", delegated)


FORK_INTO = """
import os, sys
from pathlib import Path
from rlm.worker.sandbox import namespaces

folder = Path(sys.argv[1])
fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
reader, writer = os.pipe()
child = namespaces.fork_into(fd)
if child == 0:
    try:
        os.close(writer)
        os.read(reader, 1)
    finally:
        os._exit(0)
print(child, (folder / "cgroup.procs").read_text().strip())
os.close(writer)
os.waitpid(child, 0)
"""
"""Like a zygote, it has one thread: this system call leaves the locks of others taken."""


def test_a_process_is_in_its_cgroup_from_the_start() -> None:
    """On the real thing, where we may; controllers are not needed for that."""
    try:
        folder = Path(cgroups.delegated_folder()) / f"rlm-test-{os.getpid()}"
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no group can be made here: {error}")
    try:
        command = [sys.executable, "-c", FORK_INTO, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        child, in_group = done.stdout.split()
        assert child == in_group
    finally:
        folder.rmdir()
