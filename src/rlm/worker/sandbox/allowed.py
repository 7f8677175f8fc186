"""Packages that are installed but not allowed look as if they were not installed.

Where files are only protected, not gone, Python finds a package that it can't read and fails with a
PermissionError. Many libraries try to import others and are prepared for an ImportError alone.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder

__all__ = ["hide_others"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from importlib.machinery import ModuleSpec
    from typing import Any


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
