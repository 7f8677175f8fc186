"""Starts the worker in the sandbox, with some of its modules replaced."""

import importlib
import os
import sys
from types import ModuleType
from typing import Any

__all__ = ["WORK_FOLDER", "boot"]

WORK_FOLDER = "/data"
"""A folder in memory, whose size the runtime limits."""

_REPLACED = {"channel": "channel", "checkpoints": "channel", "memory": "memory"}
"""Modules of the worker, and the modules here that take their place."""
_HERE = "rlm.environments.wasm.guest"


def boot(path: str | None) -> None:
    """Serve the host through the file at `path`; without one, only compile what is needed."""
    sys.modules["__main__"] = ModuleType("__main__")  # The runtime uses the original one.
    session = _worker_session()
    from rlm.environments.wasm.guest import stand_ins
    from rlm.environments.wasm.guest.shared_file import SharedFile

    if path is None:
        return
    channel = session._channel
    stand_ins.put_in_place(channel, sys.modules["rlm.worker.compiling"])
    os.chdir(WORK_FOLDER)
    session.serve(SharedFile(path))


def _worker_session() -> Any:
    for name, stand_in in _REPLACED.items():
        sys.modules[f"rlm.worker.{name}"] = importlib.import_module(f"{_HERE}.{stand_in}")
    sys.modules["rlm.worker.shared"] = ModuleType("rlm.worker.shared")  # Needs shared memory.
    interrupts: Any = importlib.import_module("rlm.worker.interrupts")
    polled: Any = importlib.import_module(f"{_HERE}.interrupts")
    interrupts.Interrupts = polled.PolledInterrupts
    worker: Any = importlib.import_module("rlm.worker.main")

    class Session(worker.Worker):  # type: ignore[misc]
        """The worker, which frees memory before it takes a context."""

        def _add_chunk(self, frame: Any) -> None:
            self._memory.make_room()
            super()._add_chunk(frame)

    return Session()
