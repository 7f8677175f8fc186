"""The table of system calls, and making one."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from rlm.worker.sandbox import kernel

MACHINES = ("x86_64", "aarch64")


def policy() -> dict[str, tuple[int | None, int | None, str]]:
    """The table beside this file: every call of both machines, and what is meant for it."""
    rows = {}
    for line in (Path(__file__).parent / "syscalls.txt").read_text("ascii").splitlines():
        if not line.startswith("#"):
            name, first, second, meant = line.split()
            rows[name] = (_number(first), _number(second), meant)
    return rows


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


def test_the_table_agrees_with_the_golden_headers() -> None:
    golden = policy()
    assert len(golden) > 380
    assert {name: golden[name][:2] for name in kernel.SYSCALLS} == kernel.SYSCALLS


@pytest.mark.parametrize("column", [0, 1])
def test_no_number_is_used_twice(column: int) -> None:
    numbers = [row[column] for row in policy().values() if row[column] is not None]
    assert len(numbers) == len(set(numbers))


def test_the_table_agrees_with_the_headers_of_this_machine() -> None:
    """Where there is a compiler and its headers; elsewhere the golden table has to do."""
    if kernel.MACHINE not in MACHINES:
        pytest.skip(f"there is no table for {kernel.MACHINE!r}")
    source = "#include <asm/unistd.h>\n" + "".join(
        f"#ifdef __NR_{name}\n{name} __NR_{name}\n#endif\n" for name in kernel.SYSCALLS
    )
    try:
        done = subprocess.run(
            ["cc", "-E", "-P", "-"], input=source, capture_output=True, text=True, check=True
        )
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("no C compiler with Linux headers here")
    # The name itself was replaced nowhere, its number was.
    found = dict(line.split() for line in done.stdout.splitlines() if len(line.split()) == 2)
    assert len(found) > 100
    assert {name: kernel.number(name) for name in found} == {
        name: int(text) for name, text in found.items()
    }


def test_system_call_numbers_depend_on_the_machine() -> None:
    assert kernel.number("read", "x86_64") == 0
    assert kernel.number("read", "aarch64") == 63
    assert kernel.number("open", "x86_64") == 2
    assert kernel.number("open", "aarch64") is None
    assert kernel.number("read", "riscv64") is None


@pytest.mark.skipif(kernel.MACHINE not in MACHINES, reason="no table for this machine")
class TestCalls:
    def test_a_call_returns_its_result(self) -> None:
        assert kernel.call("getpid") == os.getpid()

    def test_bytes_are_passed_by_address(self, tmp_path: Path) -> None:
        kernel.call("mkdirat", -100, bytes(tmp_path / "new"), 0o700)
        assert (tmp_path / "new").is_dir()

    def test_integers_are_passed_whole(self, tmp_path: Path) -> None:
        with (tmp_path / "big").open("wb") as file:
            kernel.call("ftruncate", file.fileno(), 5 << 32)
        assert (tmp_path / "big").stat().st_size == 5 << 32

    def test_a_failed_call_raises_the_error_python_would(self) -> None:
        with pytest.raises(FileNotFoundError, match="mkdirat: No such file"):
            kernel.call("mkdirat", -100, b"/nowhere/at/all", 0o700)

    def test_a_failed_call_can_return_its_error_number(self) -> None:
        assert kernel.answer("mkdirat", -100, b"/nowhere/at/all", 0o700) == -errno.ENOENT


def test_a_call_unknown_on_this_machine_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kernel.SYSCALLS, "getpid", (None, None))
    with pytest.raises(OSError, match="getpid") as raised:
        kernel.call("getpid")
    assert raised.value.errno == errno.ENOSYS
