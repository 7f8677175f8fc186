"""Run by the tests in a process of its own: a zygote with sessions, each running the given cells.

    python program.py FOLDER_OF_THE_WORKER JSON

The JSON holds `settings` for `settings.Settings`, `broken` (what to pretend is not possible here),
and `sessions`: for each a list of cells. A cell is Python code that may set `result`. Prints JSON
lines: first the report, then one per cell: session, what it set or "", the name of its exception.
Instead of sessions there may be a `script`, which the zygote itself runs to start and watch workers
(see `Watched`); what it leaves in `result` is the last line.

Standard library only and Python 3.9, because it runs with whatever Python another user can read.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import struct
import sys
from typing import Any, ClassVar, NoReturn

# What cells need must be there before: in sealed mode nothing can be imported later.
PRELOADED = """
array asyncio concurrent.futures.thread ctypes fcntl mmap resource select shutil socket sqlite3
subprocess tempfile threading time traceback
"""
PATIENCE_SECONDS = 120
LIFE_SECONDS = 100


def load(folder: str) -> Any:
    spec = importlib.util.spec_from_file_location(
        "rlm_worker", folder + "/__init__.py", submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["rlm_worker"] = module
    spec.loader.exec_module(module)
    importlib.import_module("rlm_worker.sandbox.forked_worker")
    return importlib.import_module("rlm_worker.sandbox.layers")


def parts(*names: str) -> list[Any]:
    return [importlib.import_module(f"rlm_worker.sandbox.{name}") for name in names]


def say(value: object) -> None:
    os.write(1, json.dumps(value).encode() + b"\n")


# -- what is pretended -----------------------------------------------------------------------------


def refuse(names: list[str]) -> None:
    """A filter like a container runtime's: these calls answer EPERM, here and in all children."""
    kernel, privileges, seccomp = parts("kernel", "privileges", "seccomp")

    numbers = [kernel.number(name) for name in names]
    code = [(0x20, 0, 0, 0)]
    for number in numbers:
        code += [(0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | errno.EPERM)]
    code.append((0x06, 0, 0, 0x7FFF0000))
    privileges.forbid_new_privileges()
    seccomp.install(b"".join(struct.pack("<HBBI", *each) for each in code))


def pretend(broken: list[str]) -> None:
    kernel, namespaces, privileges, probes = parts("kernel", "namespaces", "privileges", "probes")
    (permits,) = parts("permits")

    def fails(*_: object, **__: object) -> NoReturn:
        raise PermissionError(errno.EPERM, "pretended")

    real_become = privileges.become

    def become_low_only(uid: int, gid: int) -> None:
        if uid > 65535:
            raise OSError(errno.EINVAL, "pretended")
        real_become(uid, gid)

    def disappears(name: str) -> None:
        kernel.SYSCALLS[name] = (None, None)

    for name in broken:
        {
            "mount": lambda: setattr(namespaces, "_mount", fails),
            "pid namespace": lambda: setattr(namespaces, "fork_into_pid_namespace", fails),
            "high uids": lambda: setattr(privileges, "become", become_low_only),
            "reading": lambda: setattr(probes, "_can_read", lambda paths: False),
            "counting": lambda: setattr(probes, "_processes_are_counted", lambda: False),
            "asking": lambda: setattr(permits, "_listen", fails),
            "mount_setattr": lambda: disappears("mount_setattr"),
            "container": lambda: refuse(["unshare", "mount", "pivot_root"]),
            "landlock": lambda: refuse(["landlock_create_ruleset"]),
            "machine": kernel._COLUMNS.clear,
        }[name]()


# -- a worker --------------------------------------------------------------------------------------


def run_cells(session: int, cells: list[str]) -> None:
    for cell in cells:
        names: dict[str, Any] = {"os": os, "say": say, "__name__": "__main__"}
        error = ""
        try:
            exec(cell, names)
        except BaseException as raised:
            error = type(raised).__name__
        say([session, names.get("result", ""), error])


def be_a_worker(
    prepared: Any, session: int, cells: list[str], set_up: socket.socket, streams: list[int]
) -> NoReturn:
    """What boot.py does, in the same order; never returns."""
    layers, permits, privileges = parts("layers", "permits", "privileges")
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for place, fd in enumerate(streams):
            os.dup2(fd, place)
        layers.enter_session(prepared, session)
        close_all_but(set_up.fileno(), prepared.ruleset)
        # As the worker does: a handler of its own, so that asyncio does not set one.
        signal.signal(signal.SIGINT, lambda *_: None)
        if prepared.forks or prepared.asks_for_threads:
            privileges.forbid_new_privileges()
            permits.send_listener(set_up, prepared.asks_for_threads)
        layers.harden(prepared)
        set_up.close()
        run_cells(session, cells)
        os._exit(0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(1)


def close_all_but(*kept: int | None) -> None:
    for fd in range(3, 256):
        if fd not in kept:
            with contextlib.suppress(OSError):
                os.close(fd)


def fork_worker(prepared: Any, session: int, cells: list[str], streams: list[int]) -> Any:
    """A `ForkedWorker` whose worker is ready, or has failed, and the host's end of its monitor."""
    namespaces, forked = parts("namespaces", "forked_worker")
    ours, theirs = socket.socketpair()
    hosts_end, monitor = socket.socketpair()
    pid = namespaces.fork(0)
    if pid == 0:
        be_a_worker(prepared, session, cells, theirs, streams)
    theirs.close()
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)
    worker = forked.ForkedWorker(pid, monitor, ours, prepared.settings)
    while worker.set_up is not None:
        worker.read_set_up()
    return worker, hosts_end


def is_asked(worker: Any, patience_seconds: float) -> bool:
    """Whether somebody waits in the kernel for permission, now or soon."""
    poll = select.poll()
    poll.register(worker.permits.listener, select.POLLIN)
    found = poll.poll(1000 * patience_seconds)
    return any(events & select.POLLIN for _, events in found)


# -- the zygote, when it only lets sessions run ----------------------------------------------------


def serve(prepared: Any, sessions: list[list[str]], together: bool) -> None:
    workers: dict[int, Any] = {}
    ends = []
    deaths = wake_on_deaths()
    for session, cells in enumerate(sessions):
        worker, hosts_end = fork_worker(prepared, session, cells, [])
        workers[worker.group] = worker
        ends.append(hosts_end)  # Closed, it would mean that the session is not wanted any more.
        if not together:
            attend(workers, deaths)
    attend(workers, deaths)


def wake_on_deaths() -> int:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer)
    return reader


def attend(workers: dict[int, Any], deaths: int) -> None:
    """Answer whoever asks, without a permit for anybody, until every worker has ended."""
    while workers:
        reap(workers)
        asking = {worker.permits.listener: worker for worker in workers.values() if worker.permits}
        poll = select.poll()
        for fd in (*asking, deaths):
            poll.register(fd, select.POLLIN)
        for fd, events in poll.poll() if workers else []:
            if fd == deaths:
                os.read(deaths, 4096)
            elif events & select.POLLIN:
                asking[fd].permits.decide()


def reap(workers: dict[int, Any]) -> None:
    for group in list(workers):
        if os.waitpid(group, os.WNOHANG)[0]:
            worker = workers.pop(group)
            end(worker)


def end(worker: Any) -> None:
    """Everybody else of a session whose worker was waited for."""
    worker.end()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-worker.group, 0)
    worker.close()


# -- the zygote, when a script of the test tells it what to do -------------------------------------


class Watched:
    """A worker that writes JSON lines to its script and can be made to wait for it.

    Its cell says a value with `say(value)`, and waits for `go()` with `os.read(0, 1)`.
    """

    all: ClassVar[list[Watched]] = []

    def __init__(self, prepared: Any, cell: str) -> None:
        commands, self._to_worker = os.pipe()
        self._from_worker, lines = os.pipe()
        number = len(self.all)
        self.worker, self.host = fork_worker(prepared, number, [cell], [commands, lines])
        self.pid: int = self.worker.group
        self.permits = self.worker.permits
        os.close(commands)
        os.close(lines)
        self._pending = b""
        self.all.append(self)

    def go(self) -> None:
        os.write(self._to_worker, b".")

    def hear(self) -> Any:
        """The next value it says."""
        while b"\n" not in self._pending:
            ready = select.select([self._from_worker], [], [], PATIENCE_SECONDS)[0]
            assert ready, "the worker says nothing"
            more = os.read(self._from_worker, 4096)
            assert more, "the worker has ended"
            self._pending += more
        line, _, self._pending = self._pending.partition(b"\n")
        return json.loads(line)

    def asks(self, patience_seconds: float = PATIENCE_SECONDS) -> bool:
        return is_asked(self.worker, patience_seconds)

    def order(self, order: bytes) -> None:
        """As the host does it."""
        self.host.send(order)
        assert self.worker.read_orders()

    def decide(self) -> None:
        """Wait for a question and answer it."""
        assert self.asks(), "nobody asked"
        self.permits.decide()

    def hear_or_decide(self) -> Any:
        """The next value it says; questions before it are answered."""
        while b"\n" not in self._pending:
            fds = [self._from_worker, self.permits.listener]
            ready = select.select(fds, [], [], PATIENCE_SECONDS)[0]
            assert ready, "the worker neither asks nor says anything"
            if self._from_worker in ready:
                break
            self.permits.decide()
        return self.hear()

    def bury(self, pid: int) -> bool:
        """Wait for the death of one of its processes; whether others are left."""
        _, status = os.waitpid(pid, 0)
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        return bool(self.worker.note_death(code, 0.0))

    def kill_and_count(self) -> int:
        """Kill all its processes; how many there were, by waiting for each."""
        self.worker.end()
        count = 0
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-self.pid, 0)
                count += 1
        return count


def run_script(prepared: Any, script: str) -> None:
    names: dict[str, Any] = {
        "os": os,
        "signal": signal,
        "prepared": prepared,
        "start": lambda cell: Watched(prepared, cell),
    }
    try:
        exec(script, names)
    finally:
        for worker in Watched.all:
            worker.worker.end()
    say(names["result"])


# -- the beginning ---------------------------------------------------------------------------------


def surroundings() -> list[object]:
    """What must stay the same in a zygote that stays where it is."""
    return [os.getuid(), sorted(entry.name for entry in os.scandir("/"))]


def move_into_pid_namespace() -> None:
    """As the zygote does it: go on as process 1; what was this process ends with that one."""
    namespaces, privileges = parts("namespaces", "privileges")
    zygote = namespaces.fork_into_pid_namespace()
    if zygote == 0:
        privileges.die_with_parent(lambda: True)
        return
    _, status = os.waitpid(zygote, 0)
    os._exit(0 if status == 0 else 1)


def main() -> None:
    signal.alarm(LIFE_SECONDS)
    layers = load(sys.argv[1])
    order = json.loads(sys.argv[2])
    for name in PRELOADED.split():
        importlib.import_module(name)
    pretend(order.get("broken", []))
    before = surroundings()
    orders, tried = parts("orders", "trials")
    trials = tried.Trials(orders.Settings(**order.get("settings", {})))
    try:
        trials.finish()
        prepared = layers.prepare(trials)
    except layers.LayersMissing as error:
        say({"missing": str(error), "unchanged": before == surroundings()})
        return
    unchanged = before == surroundings()
    if prepared.pid_namespace:
        move_into_pid_namespace()
    prepared.zygote = os.getpid()
    facts = {
        "unchanged": unchanged,
        "max_tasks": prepared.max_tasks,
        "asks_for_threads": prepared.asks_for_threads,
    }
    say({**prepared.report(), **facts})
    if "script" in order:
        run_script(prepared, order["script"])
    else:
        serve(prepared, order.get("sessions", []), order.get("together", False))


if __name__ == "__main__":
    main()
