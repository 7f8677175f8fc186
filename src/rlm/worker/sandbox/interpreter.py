"""Finds the files that the running interpreter may still need: its library and shared libraries."""

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
    """Return the folders and the archive that the standard library is imported from.

    sysconfig can't be used: it names folders of the virtual environment for the platform part.
    """
    here = os.path.dirname(os.path.abspath(os.__file__))
    platform = os.path.join(sys.base_exec_prefix, sys.platlibdir, os.path.basename(here))
    version = f"python{sys.version_info[0]}{sys.version_info[1]}"
    archive = os.path.join(sys.base_prefix, sys.platlibdir, version + ".zip")
    return [here, platform, archive]


def readable_and_hidden(granted: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return what a session may read, including `granted`, and the folders to hide in it.

    Folders of installed packages are hidden: a standard library usually contains one. Explicit
    grants include everything in them.
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
    """Return the folders of installed packages in a library folder."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    around = [folder, *(os.path.join(folder, name) for name in names if name.startswith("python"))]
    candidates = [os.path.join(each, name) for each in around for name in _PACKAGE_FOLDERS]
    return [os.path.realpath(path) for path in candidates if os.path.isdir(path)]


def inside(path: str, folder: str) -> bool:
    """Return whether a path is a folder or below it; both must be absolute."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def without(readable: Iterable[str], hidden: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return `readable` without `hidden`, as smaller paths to read and folders to list.

    This is for layers that can only grant whole folders, without exceptions.
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
    """Return the paths of the shared libraries that this process has loaded."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            paths = {line.rstrip("\n").partition("/")[2] for line in file}
    except OSError:
        return []
    return sorted(f"/{path}" for path in paths if ".so" in path and os.path.exists(f"/{path}"))


def _library_folders() -> list[str]:
    """Return the folders of loaded libraries, because their dependencies are beside them.

    A folder whose name does not begin with lib may contain anything, so only the file itself is
    returned then. Libraries of installed packages have to be granted.
    """
    found = []
    for path in mapped_libraries():
        if not any(f"/{name}/" in path for name in _PACKAGE_FOLDERS):
            folder = os.path.dirname(path)
            found.append(folder if os.path.basename(folder).startswith("lib") else path)
    return found
