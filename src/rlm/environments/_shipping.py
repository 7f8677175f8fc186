"""Sends the worker to where it is to run: its own text on a command line, its modules after it."""

import functools
import importlib.util
import json
import marshal
import zlib
from collections.abc import Iterator
from pathlib import Path

from rlm import worker
from rlm.worker.arrival import COMPILED, PACKAGE, SOURCES, called

__all__ = ["archive", "arrival_command"]

_FOLDER = Path(worker.__file__).parent


def arrival_command(python: str, mode: str, place: str = "") -> list[str]:
    """The words that start the worker, which then waits for its archive."""
    program = (_FOLDER / "arrival.py").read_text("utf-8")
    return [python, "-S", "-s", "-c", program, mode, *([place] if place else [])]


@functools.lru_cache(maxsize=4)
def archive(magic: bytes | None = None) -> bytes:
    """The worker's modules, compiled if that Python understands what ours compiles.

    `magic` is its importlib.util.MAGIC_NUMBER, if known. Compiling takes a tenth of a second.
    """
    if magic != importlib.util.MAGIC_NUMBER:
        sources = {name: (is_package, text) for name, is_package, text in _modules()}
        return SOURCES + zlib.compress(json.dumps(sources).encode("ascii"), 9)
    compiled = {
        name: (is_package, compile(text, called(name, is_package), "exec", dont_inherit=True))
        for name, is_package, text in _modules()
    }
    return COMPILED + marshal.dumps(compiled)


def _modules() -> Iterator[tuple[str, bool, str]]:
    for path in sorted(_FOLDER.rglob("*.py")):
        words = [PACKAGE, *path.relative_to(_FOLDER).with_suffix("").parts]
        is_package = words[-1] == "__init__"
        name = ".".join(words[:-1] if is_package else words)
        yield name, is_package, path.read_text("utf-8")
