"""A host of the real zygote, written plainly: its control socket, sessions and their monitors.

What `rlm.environments.local` does with event loops is done here with blocking sockets, so that a
test can send anything at any moment.
"""

import array
import contextlib
import json
import os
import resource
import socket
import struct
import subprocess
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from rlm.worker import wire
from tests.worker.sandbox.processes import PATIENCE_SECONDS, children_of, wait_until_gone
from tests.worker.sandbox.runs import public_folder, python_for

NOW, WARM = b"N", b"W"

BOOT = """
import importlib.util, sys
sys.path[:] = [entry for entry in sys.path if entry]
spec = importlib.util.spec_from_file_location(
    "rlm_worker", sys.argv[1] + "/__init__.py", submodule_search_locations=[sys.argv[1]]
)
sys.modules["rlm_worker"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["rlm_worker"])
from rlm_worker.sandbox.start import main
main(int(sys.argv[2]), int(sys.argv[3]))
"""
INIT = {
    "max_submission_chars": 1_000,
    "seed": 0,
    "tools": [],
    "cell_memory_bytes": None,
    "kept_output_chars": 10_000,
}


def with_fds(*fds: int) -> list[tuple[int, int, "array.array[int]"]]:
    """What `sendmsg` takes to send descriptors along."""
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []


class Stream:
    """The host's end of a stream to a worker, or to a checkpoint."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(PATIENCE_SECONDS)
        self._connection = connection
        self._decoder = wire.Decoder(wire.TO_HOST, wire.MAX_TO_HOST_BYTES)

    def close(self) -> None:
        self._connection.close()

    def send(self, kind: int, *parts: bytes, fds: tuple[int, ...] = ()) -> None:
        self._connection.sendmsg([wire.encode(kind, 1, list(parts))], with_fds(*fds))

    def receive(self) -> wire.Frame:
        """The next frame; EOFError at the end of the stream."""
        frame = self._decoder.pop()
        while frame is None:
            data = self._connection.recv(65536)
            if not data:
                raise EOFError
            self._decoder.feed(data)
            frame = self._decoder.pop()
        return frame

    def open(self) -> None:
        """Shake hands: from here on it is a REPL."""
        self.send(wire.INIT, wire.to_json(INIT))
        assert self.receive().type == wire.READY

    def begin(self, code: str) -> None:
        self.send(wire.EXEC, code.encode())

    def finish(self) -> tuple[str, str]:
        """What the cell wrote, and the type of its error or ""."""
        done = self.receive()
        assert done.type == wire.DONE
        error = done.json(1)["error"] if done.part(1) else None
        return done.text(2), error["type"] if error else ""

    def run(self, code: str) -> str:
        """Return the output of a cell that must not fail."""
        self.begin(code)
        output, error = self.finish()
        assert error == ""
        return output.strip()

    def take_checkpoint(self) -> "tuple[Stream, str]":
        """Return the stream of the copy, and why there is none, or ""."""
        ours, theirs = socket.socketpair()
        with theirs:
            self.send(wire.CHECKPOINT, fds=(theirs.fileno(),))
        return Stream(ours), self.receive().json(0).get("error", "")

    def resume(self, cpu_seconds: float = 0.0) -> None:
        self.send(wire.RESUME, wire.to_json({"cpu_seconds": cpu_seconds}))
        assert self.receive().type == wire.VALUE


class Session(Stream):
    """What the host holds of a session: its stream and its monitor."""

    def __init__(self, stream: socket.socket, monitor: socket.socket) -> None:
        super().__init__(stream)
        self.cpu_seconds = 0.0
        monitor.settimeout(PATIENCE_SECONDS)
        self.monitor = monitor
        self._reports = monitor.makefile("rb")

    def order(self, orders: bytes) -> None:
        self.monitor.sendall(orders)

    def let_go(self) -> None:
        """Want nothing more of it, but still hear of its end."""
        self.monitor.shutdown(socket.SHUT_WR)

    def report(self) -> dict[str, Any] | None:
        """The next fact told on the monitor; None once nobody is left."""
        line = self._reports.readline()
        if not line:
            return None
        fact: dict[str, Any] = json.loads(line)
        return fact

    def confirmation(self) -> bool:
        """Whether the next fact is not an end, but that an order was carried out."""
        fact = self.report()
        return fact is not None and not fact.keys() & {"status", "error"}

    def end(self) -> dict[str, Any] | None:
        """How the next of its processes ended; None once nobody is left.

        What all of them have used so far is put into `cpu_seconds`.
        """
        fact = self.report()
        while fact is not None and not fact.keys() & {"status", "error"}:
            fact = self.report()
        if fact is not None:
            self.cpu_seconds = fact.pop("cpu_seconds", self.cpu_seconds)
        return fact

    def ends(self) -> list[dict[str, Any]]:
        """How its processes ended, in order, until nobody is left."""
        return list(iter(self.end, None))

    def answers(self) -> bool:
        """Whether there is a worker that shakes hands."""
        try:
            self.open()
        except (EOFError, ConnectionError):
            return False
        return True

    def close(self) -> None:
        super().close()
        self._reports.close()
        self.monitor.close()


class Host:
    """A zygote of the given user; a context manager that leaves nobody behind."""

    def __init__(
        self,
        user: str,
        forbid: tuple[str, ...] = (),
        first: bytes = b"",
        few_processes: int = 0,
        packages: dict[str, Path] | None = None,
        **layers: Any,
    ) -> None:
        """`first`: requests that are there before the zygote can look for any.

        `few_processes`: how many its user may have, if not as many as wanted. `packages`: modules
        to import beforehand, and the folders they are in.
        """
        python, identity = python_for(user)
        self.control, theirs = socket.socketpair()
        self.control.settimeout(PATIENCE_SECONDS)
        self.sessions: list[Session] = []
        worker = str(public_folder() / "worker")
        if few_processes:
            limits = (few_processes, few_processes)
            identity["preexec_fn"] = partial(resource.setrlimit, resource.RLIMIT_NPROC, limits)
        with theirs:
            self.process = subprocess.Popen(
                [python, "-S", "-s", "-c", BOOT, worker, str(theirs.fileno()), str(os.getpid())],
                env={"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                **identity,
            )
        folders = sorted({str(folder) for folder in (packages or {}).values()})
        settings = {"forbid": forbid, "readable": folders, **layers}
        order = {
            "packages": list(packages or ()),
            "search_path": folders,
            "roots": [[name, f"{folder}/{name}.py"] for name, folder in (packages or {}).items()],
            "layers": settings,
        }
        data = json.dumps(order).encode()
        self.control.sendall(struct.pack("<I", len(data)) + data)
        for kind in first:
            self.request(bytes([kind]))
        (size,) = struct.unpack("<I", self._receive(4))
        self.report: dict[str, Any] = json.loads(self._receive(size))
        self.zygote = self.process.pid
        if self.report.get("pid_namespace"):
            (self.zygote,) = children_of(self.process.pid)

    def _receive(self, size: int) -> bytes:
        data = self.control.recv(size, socket.MSG_WAITALL)
        assert len(data) == size, "the zygote ended before it was ready"
        return data

    def request(self, kind: bytes = NOW) -> Session:
        """Ask for a session as the real host does."""
        stream, workers_end = socket.socketpair()
        monitor, zygotes_end = socket.socketpair()
        session = Session(stream, monitor)
        self.sessions.append(session)
        with workers_end, zygotes_end:
            self.send(kind, workers_end.fileno(), zygotes_end.fileno())
        return session

    def send(self, data: bytes, *fds: int) -> None:
        self.control.sendmsg([data], with_fds(*fds))

    def open(self, kind: bytes = NOW) -> Session:
        """A session that has taken its first request."""
        session = self.request(kind)
        session.open()
        return session

    def workers(self) -> list[int]:
        """All processes of all sessions, also those that have ended but were not waited for."""
        return children_of(self.zygote)

    def open_files(self) -> int:
        """How many files the zygote has open; only root may look."""
        if os.geteuid() != 0:
            pytest.skip("only root may look at the files of the zygote")
        return len(os.listdir(f"/proc/{self.zygote}/fd"))  # noqa: PTH208

    def is_fine(self) -> bool:
        """Whether it still makes sessions that work."""
        session = self.open()
        found = session.run("print(6 * 7)") == "42"
        session.let_go()
        return found and session.ends() == [{"status": -9}]

    def settle(self) -> None:
        """Wait until it has loaded everything and nobody else is there."""
        session = self.open(WARM)
        session.let_go()
        assert session.ends() == [{"status": -9}]

    def need_forks(self) -> None:
        if not self.report["forks"]:
            pytest.skip("; ".join(self.report["missing"]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        workers = self.workers()
        self.control.close()
        for session in self.sessions:
            session.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE_SECONDS)
        self.process.kill()
        self.process.wait()
        wait_until_gone(self.zygote, *workers)
