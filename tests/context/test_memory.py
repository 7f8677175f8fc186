"""Files are streamed: however large a context is, little of it is in memory here."""

import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from rlm.context import store_context

LINE = (
    "some words, é and \U0001f600, of a line that is about eighty bytes long, all told\n".encode()
)
MAX_BYTES = 12 << 20


def fill(path: Path, megabytes: int, extra: bytes = b"") -> None:
    block = LINE * ((1 << 20) // len(LINE) + 1)
    with path.open("wb") as handle:
        for _ in range(megabytes):
            handle.write(block)
        handle.write(extra)


def peak_of(path: Path) -> tuple[int, int]:
    """Return the bytes that were sent, and the peak of memory meanwhile."""
    tracemalloc.start()
    try:
        stored = store_context(path)
        travelled = sum(len(chunk) for chunk in stored.chunks(1 << 20))
        assert travelled == stored.size_bytes
        return travelled, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("extra", [b"", b"\xff not UTF-8"])
def test_a_text_file_is_streamed(tmp_path: Path, extra: bytes) -> None:
    fill(tmp_path / "a.txt", 24, extra)
    travelled, peak = peak_of(tmp_path / "a.txt")
    assert travelled >= 24 << 20
    assert peak < MAX_BYTES


def test_a_folder_is_streamed(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        fill(tmp_path / name, 8)
    travelled, peak = peak_of(tmp_path)
    assert travelled >= 24 << 20
    assert peak < MAX_BYTES


def test_a_binary_file_is_streamed(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\0\xff" * (12 << 20))
    travelled, peak = peak_of(tmp_path / "a.bin")
    assert travelled == 24 << 20
    assert peak < MAX_BYTES


MEASURE = r"""
import re, sys, time
from pathlib import Path
from rlm.context import store_context
def max_bytes():
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])

before = max_bytes()
started = time.monotonic()
stored = store_context(Path(sys.argv[1]))
stored.sha256
described = time.monotonic()
travelled = sum(len(chunk) for chunk in stored.chunks(4 << 20))
ended = time.monotonic()
assert travelled == stored.size_bytes
print(stored.description, file=sys.stderr)
print(f"{described - started:.1f} s to store, {ended - described:.1f} s to send", file=sys.stderr)
print(travelled, max_bytes() - before)
"""


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by way of /proc")
@pytest.mark.parametrize(("name", "extra"), [("a.txt", b""), ("b.txt", b"\xff"), ("c.jsonl", b"")])
def test_a_gigabyte_is_streamed(tmp_path: Path, name: str, extra: bytes) -> None:
    if name.endswith(".jsonl"):
        row = b'{"id": 1234567, "text": "' + LINE.strip() + b'"}\n'
        with (tmp_path / name).open("wb") as handle:
            for _ in range(1024):
                handle.write(row * ((1 << 20) // len(row) + 1))
    else:
        fill(tmp_path / name, 1024, extra)
    command = [sys.executable, "-c", MEASURE, str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    print(name, done.stderr, done.stdout)
    travelled, grown = map(int, done.stdout.split())
    assert travelled >= 1 << 30
    assert grown < 64 << 20
