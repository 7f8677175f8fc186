"""The record of what was shown: an append-only file in which each line seals the one before.

The seal of a line is the hash of its content and of the previous seal. Changing, dropping or
inserting a line breaks every later seal; cutting off the end is noticed if the last seal was kept
elsewhere.
"""

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from rlm._util import files
from rlm.errors import ConfigError

__all__ = ["FIRST_SEAL", "Provenance", "Verdict", "digest", "verify"]

FIRST_SEAL = "0" * 64
MAX_LINE_BYTES = 1 << 20

Look = Callable[[dict[str, Any], str], None]


def digest(value: Any) -> str:
    """Return the hash of a JSON value, independent of the order of its keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


class Verdict(Struct, frozen=True):
    """The result of `verify`: valid lines, the last seal, and the problem, if there is one."""

    lines: int
    seal: str
    problem: str | None = None


class Provenance:
    """One file, written by one process at a time; a second one is refused."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = open(self.path, "ab", 0, opener=_private)  # noqa: SIM115 - kept open
        except OSError as error:
            raise ConfigError(f"the provenance file can't be written: {error}") from error
        verdict = verify(self.path)
        if verdict.problem is not None:
            self._file.close()
            raise ConfigError(
                f"{self.path} is not an intact provenance file ({verdict.problem}); leave it "
                "unchanged, and name another with --provenance"
            )
        self.lines, self.seal = verdict.lines, verdict.seal

    def record(self, **facts: Any) -> str:
        """Append a line and return its seal. It is written before this returns."""
        with self._lock:
            entry = {"number": self.lines + 1, "time": round(time.time(), 6), **facts}
            entry["before"] = self.seal
            seal = digest(entry)
            line = json.dumps({**entry, "seal": seal}, sort_keys=True, default=str).encode()
            self._append(line + b"\n")
            self.lines, self.seal = self.lines + 1, seal
            return seal

    def _append(self, line: bytes) -> None:
        """Write the whole line or nothing: half a line, on a full disk, would break the file."""
        before = os.fstat(self._file.fileno()).st_size
        try:
            while line:
                line = line[self._file.write(line) :]
        except OSError:
            os.ftruncate(self._file.fileno(), before)
            raise

    def entries(self, session: str) -> Iterator[dict[str, Any]]:
        """Yield the entries of one session, oldest first; reads the whole file."""
        mark = json.dumps(session).encode()
        with self.path.open("rb") as file:
            for line in file:
                if mark in line and (entry := json.loads(line)).get("session") == session:
                    yield entry

    def close(self) -> None:
        self._file.close()


def verify(path: str | Path, look: Look | None = None) -> Verdict:
    """Check every seal of a file from its first line on, in constant memory.

    `look` is called with every valid line and its seal.
    """
    seal, number = FIRST_SEAL, 0
    with Path(path).open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES + 1):
            entry, following = _check_line(line, number + 1, seal)
            if isinstance(entry, str):
                return Verdict(number, seal, f"line {number + 1}: {entry}")
            number, seal = number + 1, following
            if look is not None:
                look(entry, seal)
    return Verdict(number, seal)


def _check_line(line: bytes, number: int, before: str) -> tuple[dict[str, Any] | str, str]:
    """Return a line and its seal, or what is wrong with it."""
    if not line.endswith(b"\n"):
        return "it is cut off, or too long", ""
    try:
        entry = json.loads(line)
        seal = entry.pop("seal")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return "it is not a line of a provenance file", ""
    if entry.get("number") != number:
        return f"it has number {entry.get('number')!r}", ""
    if entry.get("before") != before:
        return "it does not follow the line before it", ""
    if seal != digest(entry):
        return "it was changed", ""
    return entry, seal


def _private(path: str, flags: int) -> int:
    fd = os.open(path, flags | files.NOFOLLOW | files.BINARY, 0o600)
    try:
        files.lock(fd)
    except OSError:
        os.close(fd)
        raise OSError("another gateway is writing to it; name another with --provenance") from None
    return fd
