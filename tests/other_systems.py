"""Become a Python of macOS or Windows as far as `rlm` can tell, then run a program.

    python -m tests.other_systems win32 program.py ARGUMENTS

What other packages import is loaded first, so that they stay what they are. Then `sys.platform`
changes, modules that the system lacks can't be imported, and `os`, `signal` and `socket` lose what
it lacks: for everything that is imported later, which is all of `rlm`. On Windows, event loops
can't watch files or signals, as those of asyncio can't there. A child process is one of Linux
again.
"""

import asyncio
import importlib
import importlib.abc
import importlib.util
import runpy
import signal
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

MODULES = {
    "darwin": (),
    "win32": ("curses", "fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios"),
}
_LINUX_ONLY = (
    *("memfd_create", "pidfd_open", "pipe2", "posix_fallocate", "posix_fadvise", "eventfd"),
    *("sched_getaffinity", "sched_setaffinity", "unshare", "setns", "O_PATH", "O_TMPFILE"),
    *("getrandom", "copy_file_range", "splice", "MFD_CLOEXEC", "MFD_ALLOW_SEALING"),
)
_UNIX_ONLY = (
    *("fork", "forkpty", "register_at_fork", "killpg", "setsid", "getpgid", "getsid", "setpgid"),
    *("getuid", "geteuid", "getgid", "getegid", "getgroups", "getresuid", "setuid", "uname"),
    *("pread", "pwrite", "preadv", "pwritev", "readv", "writev", "sendfile", "fchmod", "fchown"),
    *("chown", "lchown", "mkfifo", "mknod", "statvfs", "fstatvfs", "sysconf", "confstr", "nice"),
    *("getloadavg", "wait", "wait3", "wait4", "waitid", "WNOHANG", "getpriority", "setpriority"),
    *("O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "O_SYNC", "O_DSYNC"),
    *("openpty", "ttyname", "ctermid", "sync", "fdatasync", "initgroups", "chroot", "lockf"),
    *("set_blocking", "get_blocking", "posix_spawn", "tcgetpgrp", "fchdir", "getlogin"),
)
_SIGNALS = (
    *("SIGALRM", "SIGBUS", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGIO", "SIGKILL", "SIGPIPE"),
    *("SIGPROF", "SIGQUIT", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1"),
    *("SIGUSR2", "SIGVTALRM", "SIGWINCH", "SIGXCPU", "SIGXFSZ", "alarm", "setitimer", "pause"),
    *("pthread_sigmask", "pthread_kill", "sigwait", "sigpending", "siginterrupt", "sigtimedwait"),
)
MISSING = {
    "darwin": {"os": _LINUX_ONLY, "socket": ("SO_PEERCRED", "MSG_NOSIGNAL")},
    "win32": {
        "os": (*_LINUX_ONLY, *_UNIX_ONLY),
        "signal": _SIGNALS,
        "socket": ("AF_UNIX", "SCM_RIGHTS", "CMSG_SPACE", "CMSG_LEN", "send_fds", "recv_fds"),
    },
}

LOADED_FIRST = (
    *("asyncio", "asyncio.subprocess", "concurrent.futures.thread", "subprocess", "tempfile"),
    *("shutil", "socket", "ssl", "sqlite3", "zipfile", "zoneinfo", "multiprocessing", "uuid"),
    *("logging.handlers", "ctypes", "getpass", "mimetypes", "selectors", "webbrowser", "random"),
    *("platform", "importlib.metadata", "aiohttp", "aiohttp.web", "click", "msgspec", "packaging"),
    *("rich.console", "rich.live", "rich.table", "rich.markdown", "rich.panel", "rich.syntax"),
    *("starlette.applications", "starlette.routing", "uvicorn", "uvicorn.server", "anyio"),
    *("mcp.server.stdio", "mcp.client.stdio", "pydantic", "eryx"),
)


class _Lacking(ModuleType):
    """A module without some of its names."""

    def __init__(self, real: ModuleType, missing: Sequence[str]) -> None:
        super().__init__(real.__name__)
        self.__dict__.update({n: each for n, each in vars(real).items() if n not in missing})


class _Without(importlib.abc.MetaPathFinder):
    """A finder that does not find some modules."""

    def __init__(self, finder: Any, names: Sequence[str]) -> None:
        self._finder = finder
        self._names = frozenset(names)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname in self._names:
            return None
        return self._finder.find_spec(fullname, path, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)


class WindowsLoop(asyncio.SelectorEventLoop):
    """An event loop with what asyncio's has on Windows."""

    add_reader = asyncio.AbstractEventLoop.add_reader
    add_writer = asyncio.AbstractEventLoop.add_writer
    add_signal_handler = asyncio.AbstractEventLoop.add_signal_handler
    remove_signal_handler = asyncio.AbstractEventLoop.remove_signal_handler


def _msvcrt() -> ModuleType:
    """Return Windows' module, with the locks of this system."""
    import fcntl

    made = ModuleType("msvcrt")
    vars(made).update(
        LK_NBLCK=fcntl.LOCK_EX | fcntl.LOCK_NB,
        LK_UNLCK=fcntl.LOCK_UN,
        locking=lambda fd, mode, _: fcntl.flock(fd, mode),
    )
    return made


def become(system: str) -> None:
    """Make this process look like one of another system, for modules that are imported later."""
    for name in LOADED_FIRST:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
    if system == "win32":
        policy: Any = asyncio.DefaultEventLoopPolicy
        policy._loop_factory = WindowsLoop
        vars(asyncio)["SelectorEventLoop"] = WindowsLoop
        sys.modules["msvcrt"] = _msvcrt()
    for name in MODULES[system]:
        sys.modules.pop(name, None)
    sys.meta_path[:] = [_Without(each, MODULES[system]) for each in sys.meta_path]
    for name, missing in MISSING[system].items():
        sys.modules[name] = _Lacking(importlib.import_module(name), missing)
    vars(sys)["platform"] = system


def let_children_start() -> None:
    """Start the child of `wasm` as on Linux, which it is; Windows hands sockets over otherwise."""
    process: Any = importlib.import_module("rlm.environments.wasm.process")
    started, system = process.started, sys.platform

    def started_on_linux(*arguments: Any) -> Any:
        vars(sys)["platform"] = "linux"
        try:
            return started(*arguments)
        finally:
            vars(sys)["platform"] = system

    process.started = started_on_linux
    process.os = vars(importlib.import_module("posixpath"))["os"]


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    system, program, *rest = sys.argv[1:]
    become(system)
    sys.argv = [program, *rest]
    runpy.run_path(program, run_name="__main__")
