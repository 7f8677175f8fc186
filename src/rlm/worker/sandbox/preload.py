"""What the zygote imports before it forks, so that no session pays for it.

The zygote makes one `Preloading`, looks at its control socket, calls `step()`, looks again, until
`done`. A step imports one module or warms one thing up. Nothing here leaves a thread or an open
file behind by itself; a package may, and `threads_started_by` says which one did.
"""

from __future__ import annotations

import _thread
import importlib
import os
import sys
from importlib.machinery import PathFinder

__all__ = [
    "COMMON_MODULES",
    "SINGLE_THREADED",
    "Preloading",
    "hide_others",
    "thread_count",
    "try_import",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from importlib.machinery import ModuleSpec
    from typing import Any

COMMON_MODULES = (
    # What nearly every cell uses, and what running a cell and formatting its error uses.
    *("re", "json", "math", "random", "collections", "collections.abc", "itertools", "functools"),
    *("io", "time", "operator", "heapq", "bisect", "copy", "contextlib", "types", "ast"),
    *("traceback", "linecache", "warnings", "datetime", "_strptime", "string", "textwrap"),
    *("typing", "dataclasses", "enum", "abc", "statistics", "decimal", "fractions", "numbers"),
    # Calls to models side by side. asyncio is the dearest of all, so its parts are steps.
    *("threading", "queue", "logging", "concurrent.futures.thread", "socket", "selectors"),
    *("inspect", "subprocess", "ssl", "asyncio.base_events", "asyncio"),
    # Reading and writing text and data.
    *("csv", "hashlib", "base64", "binascii", "struct", "zlib", "pprint", "difflib", "html"),
    *("html.parser", "urllib.parse", "unicodedata", "pathlib", "glob", "fnmatch", "pickle"),
    *("array", "calendar", "cmath", "secrets", "shlex", "uuid", "tempfile"),
    *("gzip", "zipfile", "xml.etree.ElementTree", "encodings.ascii", "encodings.latin_1"),
    *("encodings.cp1252", "encodings.utf_8_sig", "encodings.utf_16"),
)
"""Modules that model-written code imports all the time, the most frequent ones first."""

SINGLE_THREADED = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "BLIS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "_RJEM_MALLOC_CONF": "background_thread:false",
}
"""Environment of a zygote that preloads packages: numerical libraries start threads otherwise, and
so do the allocators that pyarrow and libraries in Rust bring along.

It has to be there before the library is loaded. A thread does not survive a fork, but a lock that
it held does.
"""


class Preloading:
    """Imports `modules`, then `packages`, one for each `step()`; a failure never raises.

    `imported`: what is there now, in order. `failures`: a name and why it could not be imported.
    `threads_started_by`: a name and by how much it raised the number of threads; a process with
    threads must not be the zygote. `process_folder`: /proc, if it has no such name any more.
    """

    def __init__(
        self, packages: Iterable[str] = (), modules: Iterable[str] = COMMON_MODULES
    ) -> None:
        self.imported: list[str] = []
        self.failures: dict[str, str] = {}
        self.threads_started_by: dict[str, int] = {}
        self.process_folder: int | None = None
        self._modules = list(dict.fromkeys([*modules, *packages]))
        self._warm_ups: list[Callable[[], None]] = [_compile, _format_traceback, _make_event_loop]

    @property
    def done(self) -> bool:
        """Whether no step is left."""
        return not self._modules and not self._warm_ups

    def step(self) -> None:
        """Import the next module, or warm the next thing up; nothing if all is done."""
        if self._modules:
            self._import(self._modules.pop(0))
        elif self._warm_ups:
            self._warm_ups.pop(0)()

    def run(self) -> None:
        """All the steps that are left, without a look at anything in between."""
        while not self.done:
            self.step()

    def _import(self, name: str) -> None:
        before = thread_count(self.process_folder)
        reason = try_import(name)
        if reason is None:
            self.imported.append(name)
        else:
            self.failures[name] = reason
        started = thread_count(self.process_folder) - before
        if started > 0:
            self.threads_started_by[name] = started


def try_import(name: str) -> str | None:
    """Import a module; why that failed, or None. A module may raise anything while it loads."""
    known = set(sys.modules)
    try:
        importlib.import_module(name)
    except BaseException as error:
        _forget_parts(set(sys.modules) - known)
        return f"{type(error).__name__}: {error}"
    return None


def _forget_parts(names: Iterable[str]) -> None:
    """Python drops a package that failed, but not its modules that were loaded by then.

    A cell that tries again would get those without the package, and an error that misleads.
    """
    for name in sorted(names):
        package = name.rpartition(".")[0]
        if package and package not in sys.modules:
            del sys.modules[name]


def thread_count(process_folder: int | None = None) -> int:
    """The threads of this process, those that libraries started in C included where Linux tells.

    `process_folder`: /proc, opened before its name was gone.
    """
    tasks = "/proc/self/task" if process_folder is None else "self/task"
    known = 1 + _thread._count()
    try:
        links = os.stat(tasks, dir_fd=process_folder).st_nlink
    except OSError:
        return known
    return max(known, links - 2)  # Each thread is a folder in there.


def _compile() -> None:
    """The compiler makes its tree types and tables when it is first used."""
    import ast

    sample = (
        "import re\ndef f(a, *, b=1):\n    return [f'{x!r}' for x in a]\nclass A:\n    y: int\n"
    )
    compile(ast.parse(sample), "<warm-up>", "exec", dont_inherit=True)


def _format_traceback() -> None:
    import traceback

    try:
        raise ValueError("warm-up")
    except ValueError as error:
        traceback.format_exception(type(error), error, error.__traceback__)


def _make_event_loop() -> None:
    """A loop that is closed again: it leaves no file open, and none is current afterwards."""
    import asyncio

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()


# -- packages that are not allowed --


def hide_others(folders: Iterable[str], names: Iterable[str]) -> None:
    """Have only packages of these names found in these folders. It keeps nobody from reading."""
    places = tuple(f"{folder.rstrip('/')}/" for folder in folders)
    allowed = frozenset(names)

    class AllowedFinder(PathFinder):
        @classmethod
        def find_spec(cls, fullname: str, *args: Any, **options: Any) -> ModuleSpec | None:
            spec = super().find_spec(fullname, *args, **options)
            hidden = spec is not None and _is_in(spec, places) and not _is_of(fullname, allowed)
            return None if hidden else spec

    if places:
        where = sys.meta_path.index(PathFinder)
        sys.meta_path[where] = AllowedFinder


def _is_of(name: str, allowed: frozenset[str]) -> bool:
    """Whether a module belongs to one of them, or is a folder around one, as `google` is."""
    return any(f"{name}.".startswith(f"{each}.") or each.startswith(f"{name}.") for each in allowed)


def _is_in(spec: ModuleSpec, places: tuple[str, ...]) -> bool:
    files = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return any(file.startswith(places) for file in files)
