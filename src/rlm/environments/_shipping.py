"""Packs the worker for a remote sandbox: a command line that starts it, and an archive of modules.

Python images come without compiled files, and a read-only container can't store any; compiling
what the worker needs takes longer than starting the container. So a Python with the same bytecode
as ours gets compiled modules, including those of the standard library, which `rlm.worker.bootstrap`
uses only where the sources are the same.
"""

import functools
import importlib.util
import json
import marshal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

from rlm import worker
from rlm.worker.bootstrap import COMPILED, PACKAGE, PROGRAM, SOURCES, called
from rlm.worker.sandbox.preload import COMMON_MODULES

__all__ = ["archive", "bootstrap_command"]

_FOLDER = Path(worker.__file__).parent

# Lists the modules of the standard library that a zygote has loaded when it is ready.
_LIST_LIBRARY = """
import os, sys
for name in sys.argv[1:]:
    try: __import__(name)
    except ImportError: pass
library = os.path.dirname(os.__file__) + os.sep
for name, module in sorted(sys.modules.items()):
    file = getattr(getattr(module, '__spec__', None), 'origin', None) or ''
    if file.startswith(library) and file.endswith('.py') and module.__spec__.name == name:
        print(name, file)
"""
_BESIDES = ("ctypes", "resource", "mmap", "fcntl", "runpy", "site", "tracemalloc", "zipimport")


def bootstrap_command(python: str, mode: str, place: str = "") -> list[str]:
    """Return the command that starts the worker, which then waits for its archive."""
    text = (_FOLDER / "bootstrap.py").read_text("utf-8")
    return [python, "-S", "-s", "-c", PROGRAM, text, mode, *([place] if place else [])]


@functools.lru_cache(maxsize=4)
def archive(magic: bytes | None = None) -> bytes:
    """Return the worker's modules, compiled if that Python has the same bytecode as ours.

    `magic` is its importlib.util.MAGIC_NUMBER, if known. The first call takes a moment.
    """
    if magic != importlib.util.MAGIC_NUMBER:
        sources = {name: (is_package, text) for name, is_package, text in _modules()}
        return SOURCES + zlib.compress(json.dumps(sources).encode("ascii"), 9)
    compiled = {
        name: (is_package, marshal.dumps(_compiled(name, is_package, text)))
        for name, is_package, text in _modules()
    }
    return COMPILED + marshal.dumps((compiled, _library()))


def _compiled(name: str, is_package: bool, text: str) -> CodeType:
    return compile(text, called(name, is_package), "exec", dont_inherit=True)


def _modules() -> Iterator[tuple[str, bool, str]]:
    for path in sorted(_FOLDER.rglob("*.py")):
        words = [PACKAGE, *path.relative_to(_FOLDER).with_suffix("").parts]
        is_package = words[-1] == "__init__"
        name = ".".join(words[:-1] if is_package else words)
        yield name, is_package, path.read_text("utf-8")


def _library() -> dict[str, tuple[bool, int, int, bytes]]:
    """Return standard library modules: whether each is a package, source size, checksum, code."""
    command = [sys.executable, "-S", "-s", "-c", _LIST_LIBRARY, *COMMON_MODULES, *_BESIDES]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    found = {}
    for name, _, file in (line.partition(" ") for line in listed.splitlines()):
        text = Path(file).read_bytes()
        code = SourceFileLoader(name, file).get_code(name)
        if code is not None:
            is_package = Path(file).name == "__init__.py"
            found[name] = is_package, len(text), zlib.crc32(text), marshal.dumps(code)
    return found
