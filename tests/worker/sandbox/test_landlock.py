"""Landlock alone, in forked children: what is granted works, the rest does not."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlm.worker.sandbox import kernel, landlock, privileges

# Children only make system calls and exit, whatever threads the test runner has.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

needs_landlock = pytest.mark.skipif(landlock.abi() < 1, reason="this kernel has no Landlock")


def in_child(action: Callable[[], Any]) -> Any:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(action()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        value = json.loads(answer.read())
    os.waitpid(child, 0)
    return value


def outcome(action: Callable[[], Any]) -> str:
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "done"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("readable", "writable", "listable", "secret"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    (tmp_path / "single").write_text("single")
    return tmp_path


def restricted(folder: Path, *actions: Callable[[], Any], **more: list[str]) -> Any:
    def action() -> list[str]:
        privileges.forbid_new_privileges()
        landlock.restrict(
            readable=[str(folder / "readable"), str(folder / "single"), *more.get("readable", [])],
            writable=[str(folder / "writable"), "/dev/null"],
            listable=[str(folder / "listable")],
        )
        return [outcome(each) for each in actions]

    return in_child(action)


@needs_landlock
class TestGrants:
    def test_readable_paths_can_only_be_read(self, folder: Path) -> None:
        found = restricted(
            folder,
            (folder / "readable" / "file").read_text,
            lambda: list((folder / "readable").iterdir()),
            (folder / "single").read_text,
            lambda: (folder / "readable" / "file").write_text("x"),
            lambda: (folder / "single").write_text("x"),
            lambda: (folder / "readable" / "file").unlink(),
        )
        assert found == ["done", "done", "done"] + ["PermissionError"] * 3
        assert (folder / "readable" / "file").read_text() == "readable"

    def test_writable_paths_can_be_written_and_read(self, folder: Path) -> None:
        writable = folder / "writable"
        found = restricted(
            folder,
            lambda: (writable / "new").write_text("x"),
            lambda: (writable / "file").read_text(),
            (writable / "inner").mkdir,
            lambda: (writable / "link").symlink_to("file"),
            (writable / "new").unlink,
            lambda: Path("/dev/null").write_text("x"),
            lambda: os.mkfifo(writable / "fifo"),
        )
        assert found == ["done"] * 6 + ["PermissionError"]

    def test_files_can_be_moved_between_writable_folders_only(self, folder: Path) -> None:
        if landlock.abi() < 2:
            pytest.skip("from ABI 2")
        writable = folder / "writable"
        (writable / "inner").mkdir()
        found = restricted(
            folder,
            lambda: (writable / "file").rename(writable / "inner" / "file"),
            lambda: (writable / "inner" / "file").rename(folder / "file"),
        )
        assert found[0] == "done"
        assert found[1] in {"PermissionError", "OSError"}

    def test_listable_folders_can_only_be_listed(self, folder: Path) -> None:
        found = restricted(
            folder,
            lambda: list((folder / "listable").iterdir()),
            (folder / "listable" / "file").read_text,
        )
        assert found == ["done", "PermissionError"]

    def test_all_other_paths_are_refused(self, folder: Path) -> None:
        found = restricted(
            folder,
            (folder / "secret" / "file").read_text,
            lambda: list(folder.iterdir()),
            lambda: (folder / "new").write_text("x"),
            lambda: list(Path("/").iterdir()),
            Path("/etc/passwd").read_text,
        )
        assert found == ["PermissionError"] * 5

    def test_a_symbolic_link_does_not_lead_outside(self, folder: Path) -> None:
        (folder / "readable" / "link").symlink_to(folder / "secret" / "file")
        assert restricted(folder, (folder / "readable" / "link").read_text) == ["PermissionError"]

    def test_missing_paths_are_skipped(self, folder: Path) -> None:
        found = restricted(
            folder, (folder / "single").read_text, readable=["/nowhere", str(folder / "none")]
        )
        assert found == ["done"]


@needs_landlock
def test_ports_are_refused(folder: Path) -> None:
    if landlock.abi() < 4:
        pytest.skip("from ABI 4")

    def connect() -> None:
        with socket.socket() as outgoing:
            outgoing.connect(("127.0.0.1", 9))

    def bind() -> None:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))

    assert restricted(folder, connect, bind) == ["PermissionError"] * 2


@needs_landlock
def test_signals_and_abstract_sockets_cannot_leave_the_sandbox(folder: Path) -> None:
    if landlock.abi() < 6:
        pytest.skip("from ABI 6")
    parent = os.getpid()
    name = f"\0rlm-test-{parent}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()

        def connect() -> None:
            with socket.socket(socket.AF_UNIX) as outgoing:
                outgoing.connect(name)

        found = restricted(
            folder, lambda: os.kill(parent, 0), connect, lambda: os.kill(os.getpid(), 0)
        )
    assert found == ["PermissionError", "PermissionError", "done"]


@needs_landlock
def test_one_ruleset_serves_many_processes(folder: Path) -> None:
    rules = landlock.ruleset(readable=[str(folder / "readable")])

    def action() -> list[str]:
        privileges.forbid_new_privileges()
        landlock.restrict_with(rules)
        return [
            outcome((folder / "readable" / "file").read_text),
            outcome((folder / "secret" / "file").read_text),
        ]

    try:
        assert [in_child(action), in_child(action)] == [["done", "PermissionError"]] * 2
    finally:
        os.close(rules)


@pytest.mark.parametrize("version", range(1, 8))
def test_each_landlock_version_is_given_only_rights_it_knows(
    version: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An unknown bit or a longer struct would be an error on an older kernel."""
    made: list[tuple[str, tuple[Any, ...]]] = []
    known = (1 << 13) - 1 | (version >= 2) << 13 | (version >= 3) << 14 | (version >= 5) << 15

    def call(name: str, *arguments: Any) -> int:
        made.append((name, arguments))
        return version if arguments[-1] == 1 and name == "landlock_create_ruleset" else 0

    monkeypatch.setattr(kernel, "call", call)
    monkeypatch.setattr(os, "close", lambda fd: None)
    landlock.restrict([str(tmp_path)], [str(tmp_path), "/dev/null"], [str(tmp_path)])
    attributes = next(each[1][0] for each in made if each[1][0])
    assert len(attributes) == (24 if version >= 6 else 16 if version >= 4 else 8)
    assert int.from_bytes(attributes[:8], "little") == known
    rules = [each[1][2] for each in made if each[0] == "landlock_add_rule"]
    assert len(rules) == 4
    assert all(int.from_bytes(rule[:8], "little") & ~known == 0 for rule in rules)
    assert made[-1] == ("landlock_restrict_self", (0, 1 if version >= 7 else 0))


def test_without_landlock_the_version_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kernel.SYSCALLS, "landlock_create_ruleset", (None, None))
    assert landlock.abi() == 0
