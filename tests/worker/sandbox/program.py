"""Run by the tests in a process of its own: a zygote with sessions, each running the given cells.

    python program.py FOLDER_OF_THE_WORKER JSON

The JSON holds `settings` for `layers.Settings`, `broken` (what to pretend is not possible here),
and `sessions`: for each a list of cells. A cell is Python code that may set `result`. Prints JSON
lines: first the report, then one per cell: session, what it set or "", the name of its exception.
Standard library only and Python 3.9, because it runs with whatever Python another user can read.
"""

from __future__ import annotations

import errno
import importlib
import importlib.util
import json
import os
import signal
import struct
import sys
from typing import Any, NoReturn

# What cells need must be there before: in sealed mode nothing can be imported later.
PRELOADED = """
array asyncio concurrent.futures.thread ctypes fcntl mmap resource select shutil socket sqlite3
subprocess tempfile threading time traceback
"""


def load(folder: str) -> Any:
    spec = importlib.util.spec_from_file_location(
        "rlm_worker", folder + "/__init__.py", submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["rlm_worker"] = module
    spec.loader.exec_module(module)
    return importlib.import_module("rlm_worker.sandbox.layers")


def parts(*names: str) -> list[Any]:
    return [importlib.import_module(f"rlm_worker.sandbox.{name}") for name in names]


def say(value: object) -> None:
    os.write(1, json.dumps(value).encode() + b"\n")


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

    def fails(*_: object) -> NoReturn:
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
            "mount_setattr": lambda: disappears("mount_setattr"),
            "pidfd_open": lambda: disappears("pidfd_open"),
            "container": lambda: refuse(["unshare", "mount", "pivot_root"]),
            "landlock": lambda: refuse(["landlock_create_ruleset"]),
            "machine": kernel._COLUMNS.clear,
        }[name]()


def run_cells(session: int, cells: list[str]) -> None:
    for cell in cells:
        names: dict[str, Any] = {"os": os, "__name__": "__main__"}
        error = ""
        try:
            exec(cell, names)
        except BaseException as raised:
            error = type(raised).__name__
        say([session, names.get("result", ""), error])


def run_session(layers: Any, prepared: Any, session: int, cells: list[str]) -> NoReturn:
    """In the keeper; never returns."""
    try:
        layers.enter_session(prepared, session)
        worker = os.fork()
        if worker == 0:
            # As the worker does: a handler of its own, so that asyncio does not set one.
            signal.signal(signal.SIGINT, lambda *_: None)
            layers.harden(prepared)
            run_cells(session, cells)
            os._exit(0)
        layers.harden_keeper(prepared)
        os.waitpid(worker, 0)
        os._exit(0)
    finally:
        import traceback

        traceback.print_exc()
        os._exit(1)


def surroundings() -> list[object]:
    """What must stay the same in a zygote that stays where it is."""
    return [os.getuid(), sorted(entry.name for entry in os.scandir("/"))]


def main() -> None:
    layers = load(sys.argv[1])
    order = json.loads(sys.argv[2])
    for name in PRELOADED.split():
        importlib.import_module(name)
    pretend(order.get("broken", []))
    before = surroundings()
    try:
        prepared = layers.prepare(layers.Settings(**order.get("settings", {})))
    except layers.LayersMissing as error:
        say({"missing": str(error), "unchanged": before == surroundings()})
        return
    say(
        {
            **prepared.report(),
            "unchanged": before == surroundings(),
            "pid": os.getpid(),
            "max_tasks": prepared.max_tasks,
        }
    )
    keepers = []
    for session, cells in enumerate(order.get("sessions", [])):
        child = layers.fork_keeper(prepared)
        if child == 0:
            run_session(layers, prepared, session, cells)
        keepers.append(child)
        if not order.get("together"):
            os.waitpid(child, 0)
    if order.get("together"):
        for child in keepers:
            os.waitpid(child, 0)


if __name__ == "__main__":
    main()
