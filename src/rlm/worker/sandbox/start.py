"""Starts a zygote: trials of what this machine allows run while the worker's modules load.

Loading takes about forty milliseconds, and the trials are separate processes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys

from .orders import Settings
from .privileges import make_session_nice
from .trials import Trials

__all__ = ["main"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .zygote import Zygote

_LENGTH = struct.Struct("<I")


def main(fd: int, host_pid: int = 0) -> None:
    """Serve the host at the other end of socket `fd` as its zygote, until the host is gone.

    `host_pid` defaults to the parent. Sessions are forked below this function, and their code can
    reach its variables, so these contain nothing of the host.
    """
    zygote = _made(fd, host_pid or os.getppid())
    del fd, host_pid
    if zygote is not None:
        zygote.serve()
        zygote.clean_up()


def _made(fd: int, host_pid: int) -> Zygote | None:
    """Return the zygote, or None if sessions are impossible; the host has been told why."""
    signal.pthread_sigmask(
        signal.SIG_SETMASK, ()
    )  # The thread that started this process may block some.
    make_session_nice()
    control = socket.socket(fileno=fd)
    settings = _receive_settings(control)
    sys.path += settings["search_path"]
    if settings.get("installed"):
        settings["layers"]["readable"] = _add_installed_packages()
    if settings["layers"].get("scratch"):
        settings["layers"]["scratch"] = _own_folder(settings["layers"]["scratch"])
    _forget_command_line()
    trials = Trials(Settings(**settings["layers"]))
    from . import zygote  # Imported here, because this takes time.

    return zygote.made(control, host_pid, settings, trials)


def _forget_command_line() -> None:
    """Hide from cells how this process was started."""
    sys.argv = [""]
    sys.orig_argv = [""]
    sys.executable = getattr(sys, "_base_executable", "")  # Not a virtual environment's.


def _receive_settings(control: socket.socket) -> dict[str, Any]:
    (size,) = _LENGTH.unpack(control.recv(_LENGTH.size, socket.MSG_WAITALL))
    settings: dict[str, Any] = json.loads(control.recv(size, socket.MSG_WAITALL))
    return settings


def _add_installed_packages() -> list[str]:
    """Add the folders of installed packages, which -S leaves out, to sys.path; return them."""
    import site

    before = set(sys.path)
    site.main()
    return [path for path in sys.path if path not in before and os.path.exists(path)]


def _own_folder(place: str) -> str:
    """Make a folder for the session of this sandbox, which may have another uid."""
    import tempfile

    folder = tempfile.mkdtemp(prefix="session-", dir=place)
    os.chmod(folder, 0o777)  # noqa: S103 - this sandbox has one user
    return folder
