"""Imports modules in the zygote before it forks, so that sessions do not have to.

The zygote creates one `Preloading` and alternates between its control socket and `step()`, until
`done`. A step imports one module or warms up one thing. Nothing here leaves a thread or an open
file behind; a package may, and `threads_started_by` says which one did.
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
    # Used in nearly every cell, or to run a cell and format its error.
    *("re", "json", "math", "random", "collections", "collections.abc", "itertools", "functools"),
    *("io", "time", "operator", "heapq", "bisect", "copy", "contextlib", "types", "ast"),
    *("traceback", "linecache", "warnings", "datetime", "_strptime", "string", "textwrap"),
    *("typing", "dataclasses", "enum", "abc", "statistics", "decimal", "fractions", "numbers"),
    # For concurrent calls. asyncio takes longest, so its parts are separate steps.
    *("threading", "queue", "logging", "concurrent.futures.thread", "socket", "selectors"),
    *("inspect", "subprocess", "ssl", "asyncio.base_events", "asyncio"),
    # Reading and writing text and data.
    *("csv", "hashlib", "base64", "binascii", "struct", "zlib", "pprint", "difflib", "html"),
    *("html.parser", "urllib.parse", "unicodedata", "pathlib", "glob", "fnmatch", "pickle"),
    *("array", "calendar", "cmath", "secrets", "shlex", "uuid", "tempfile"),
    *("gzip", "zipfile", "xml.etree.ElementTree", "encodings.ascii", "encodings.latin_1"),
    *("encodings.cp1252", "encodings.utf_8_sig", "encodings.utf_16"),
)
"""Modules that model-written code often imports, the most frequent first."""

SINGLE_THREADED = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "BLIS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "_RJEM_MALLOC_CONF": "background_thread:false",
}
"""The environment of a zygote that preloads packages: without it, numerical libraries start
threads, and so do the allocators of pyarrow and of libraries in Rust.

It must be set before the library is loaded. A thread does not survive a fork, but a lock that it
held does.
"""


class Preloading:
    """Imports `modules`, then `packages`, one for each `step()`; a failure never raises.

    `imported`: what has been imported, in order. `failures`: a name and why its import failed.
    `threads_started_by`: a name and how many threads it started; a process with threads must not
    be the zygote. `process_folder`: /proc, if that path no longer exists.
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
        """Import the next module, or warm up the next thing, if any is left."""
        if self._modules:
            self._import(self._modules.pop(0))
        elif self._warm_ups:
            self._warm_ups.pop(0)()

    def run(self) -> None:
        """Do all remaining steps."""
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
    """Import a module; return why that failed, or None. Modules may raise anything."""
    known = set(sys.modules)
    try:
        importlib.import_module(name)
    except BaseException as error:
        _forget_parts(set(sys.modules) - known)
        return f"{type(error).__name__}: {error}"
    return None


def _forget_parts(names: Iterable[str]) -> None:
    """Remove the submodules of a package that failed to import; Python removes only the package.

    Otherwise, a cell that tries again would get a misleading error.
    """
    for name in sorted(names):
        package = name.rpartition(".")[0]
        if package and package not in sys.modules:
            del sys.modules[name]


def thread_count(process_folder: int | None = None) -> int:
    """Return the number of threads, including those started in C if Linux shows them.

    `process_folder`: /proc, opened while its path existed.
    """
    tasks = "/proc/self/task" if process_folder is None else "self/task"
    known = 1 + _thread._count()
    try:
        links = os.stat(tasks, dir_fd=process_folder).st_nlink
    except OSError:
        return known
    return max(known, links - 2)  # Each thread is a folder there.


def _compile() -> None:
    """Compile something: the compiler creates its types and tables when first used."""
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
    """Create a loop and close it; leave no file open and no loop current."""
    import asyncio

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()


# -- packages that are not allowed --


def hide_others(folders: Iterable[str], names: Iterable[str]) -> None:
    """Make only packages with these names importable from these folders.

    Other packages look as if they were not installed: libraries that try to import them expect an
    ImportError, not a PermissionError. This does not keep code from reading files.
    """
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
    """Return whether a module belongs to an allowed package or is a namespace around one."""
    return any(f"{name}.".startswith(f"{each}.") or each.startswith(f"{name}.") for each in allowed)


def _is_in(spec: ModuleSpec, places: tuple[str, ...]) -> bool:
    files = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return any(file.startswith(places) for file in files)
