"""How a child process is started, on every system."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from rlm import worker
from rlm.environments.wasm.places import private_folder

__all__ = ["started"]

_HERE = str(Path(__file__).parent)
_WORKER = str(Path(worker.__file__).parent)

# Only the files beside this one are to be found in the child: no other file of rlm, no folder of
# the user's. That spares it most of its imports.
_START = f"""
import sys, types
for name, path in {{
    "rlm": [], "rlm.environments": [], "rlm.environments.wasm": [{_HERE!r}]
}}.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = path
from rlm.environments.wasm.child import main
main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
"""


def started(guest_bytes: int, sockets: list[socket.socket]) -> "subprocess.Popen[bytes]":
    """Start a child, with these sockets and nothing else of this process."""
    folder = str(private_folder())
    command = [sys.executable, "-I", "-c", _START, _WORKER, str(guest_bytes)]
    variables = {"TMPDIR": folder, "TEMP": folder, "TMP": folder, "MALLOC_ARENA_MAX": "2"}
    if sys.platform == "win32":  # Sockets are no files there, and are made over to a process.
        child = subprocess.Popen(  # noqa: S603 - our own interpreter and program
            command,
            cwd=folder,
            env={**variables, "SYSTEMROOT": os.environ["SYSTEMROOT"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            creationflags=subprocess.CREATE_NEW_PROCESS_GROUP,
        )
        assert child.stdin is not None
        with child.stdin as line:
            for each in sockets:
                data = each.share(child.pid)
                line.write(len(data).to_bytes(4, "little") + data)
        return child
    numbers = [each.fileno() for each in sockets]
    return subprocess.Popen(  # noqa: S603 - our own interpreter and program
        [*command, *map(str, numbers)],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=numbers,
        start_new_session=True,
    )
