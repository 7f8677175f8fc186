"""Where the running interpreter keeps what it may still need: its library and shared libraries."""

from __future__ import annotations

import os
import sys

__all__ = ["inside", "mapped_libraries", "readable_and_hidden", "standard_library", "without"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_SHARED_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
_TIME_ZONES = "/usr/share/zoneinfo"
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")


def standard_library() -> list[str]:
    """The folders and the archive that the standard library is imported from.

    Not from sysconfig, which names the virtual environment's folders for the platform part.
    """
    here = os.path.dirname(os.path.abspath(os.__file__))
    platform = os.path.join(sys.base_exec_prefix, sys.platlibdir, os.path.basename(here))
    version = f"python{sys.version_info[0]}{sys.version_info[1]}"
    archive = os.path.join(sys.base_prefix, sys.platlibdir, version + ".zip")
    return [here, platform, archive]


def readable_and_hidden(granted: Iterable[str]) -> tuple[list[str], list[str]]:
    """What a session may read, `granted` included, and the folders of it that it may not.

    Hidden are folders of installed packages: a standard library usually has one in it. What was
    granted explicitly is granted with all that is in it.
    """
    granted = [os.path.abspath(path) for path in granted]
    own = standard_library() + _library_folders()
    own += [*_SHARED_LIBRARIES, _TIME_ZONES]
    readable = [path for path in dict.fromkeys([*own, *granted]) if os.path.exists(path)]
    hidden = {found for folder in own for found in _package_folders(folder)}
    open_again = [os.path.realpath(path) for path in granted]
    return readable, sorted(
        path for path in hidden if not any(inside(path, each) for each in open_again)
    )


def _package_folders(folder: str) -> list[str]:
    """Where installed packages are in a library folder: in it, or in folders of Pythons in it."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    around = [folder, *(os.path.join(folder, name) for name in names if name.startswith("python"))]
    candidates = [os.path.join(each, name) for each in around for name in _PACKAGE_FOLDERS]
    return [os.path.realpath(path) for path in candidates if os.path.isdir(path)]


def inside(path: str, folder: str) -> bool:
    """Whether a path is the folder or below it; both absolute."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def without(readable: Iterable[str], hidden: Iterable[str]) -> tuple[list[str], list[str]]:
    """Say `readable` without the `hidden` in it: as smaller paths to read and folders to list.

    For layers that can grant a folder as a whole, but not with an exception.
    """
    hidden = list(hidden)
    kept: list[str] = []
    listed: list[str] = []
    ahead = [os.path.realpath(path) for path in readable]
    while ahead:
        path = ahead.pop()
        if path in hidden:
            continue
        if not any(inside(each, path) for each in hidden):
            kept.append(path)
            continue
        listed.append(path)
        ahead += [entry.path for entry in os.scandir(path) if not entry.is_symlink()]
    return kept, listed


def mapped_libraries() -> list[str]:
    """The shared libraries that this process has in memory, by path."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            paths = {line.rstrip("\n").partition("/")[2] for line in file}
    except OSError:
        return []
    return sorted(f"/{path}" for path in paths if ".so" in path and os.path.exists(f"/{path}"))


def _library_folders() -> list[str]:
    """Folders that hold libraries in use, because what they depend on is beside them.

    A folder that is not called lib-something may hold anything: then only the file counts.
    Libraries of installed packages are a matter of what is granted.
    """
    found = []
    for path in mapped_libraries():
        if not any(f"/{name}/" in path for name in _PACKAGE_FOLDERS):
            folder = os.path.dirname(path)
            found.append(folder if os.path.basename(folder).startswith("lib") else path)
    return found
