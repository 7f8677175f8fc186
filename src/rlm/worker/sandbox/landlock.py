"""Landlock: the kernel refuses this process and its forks every file that is not granted.

It controls opening, making, removing and renaming. It does not control lookups (`stat`, `access`),
modes and times: with this layer alone, code can still learn that a path exists.
"""

from __future__ import annotations

import os
import stat
import struct

from . import kernel

__all__ = ["abi", "restrict", "restrict_with", "ruleset"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_EXECUTE = 1 << 0
_WRITE_FILE = 1 << 1
_READ_FILE = 1 << 2
_READ_FOLDER = 1 << 3
_REMOVE_FOLDER = 1 << 4
_REMOVE_FILE = 1 << 5
_MAKE_CHARACTER_DEVICE = 1 << 6
_MAKE_FOLDER = 1 << 7
_MAKE_FILE = 1 << 8
_MAKE_SOCKET = 1 << 9
_MAKE_FIFO = 1 << 10
_MAKE_BLOCK_DEVICE = 1 << 11
_MAKE_LINK = 1 << 12
_MOVE_BETWEEN_FOLDERS = 1 << 13  # from ABI 2
_TRUNCATE = 1 << 14  # from ABI 3
_CONTROL_DEVICE = 1 << 15  # from ABI 5

_READABLE = _READ_FILE | _READ_FOLDER
_LISTABLE = _READ_FOLDER
_WRITABLE = (
    _READABLE
    | _WRITE_FILE
    | _TRUNCATE
    | _REMOVE_FOLDER
    | _REMOVE_FILE
    | _MAKE_FOLDER
    | _MAKE_FILE
    | _MAKE_LINK
    | _MOVE_BETWEEN_FOLDERS
)
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _CONTROL_DEVICE
"""The rights that apply to files; others are an error in a rule for a file."""

_FIRST_ABI_FILE_RIGHTS = 13
_ALL_PORTS = 0b11  # Binding and connecting, from ABI 4; no port is granted.
_ALL_SCOPES = 0b11  # Abstract Unix sockets and signals stay inside the sandbox, from ABI 6.
_QUIET = 1  # From ABI 7: refusals are not logged, because user code could flood the audit log.


def abi() -> int:
    """Return the version of Landlock that the kernel offers; 0 for none."""
    ask_version = 1
    try:
        return kernel.call("landlock_create_ruleset", None, 0, ask_version)
    except OSError:
        return 0


def restrict(
    readable: Iterable[str] = (), writable: Iterable[str] = (), listable: Iterable[str] = ()
) -> None:
    """Restrict this process to what is granted, for good; needs no_new_privs.

    A readable folder is granted with everything in it; a listable one, with its subfolders, for
    names only. Paths that do not exist are skipped.
    """
    rules = ruleset(readable, writable, listable)
    try:
        restrict_with(rules)
    finally:
        os.close(rules)


def restrict_with(rules: int) -> None:
    """Restrict this process with an existing ruleset."""
    kernel.call("landlock_restrict_self", rules, _QUIET if abi() >= 7 else 0)


def ruleset(
    readable: Iterable[str] = (), writable: Iterable[str] = (), listable: Iterable[str] = ()
) -> int:
    """Return the descriptor of a ruleset with these grants."""
    version = abi()
    handled = _handled_file_rights(version)
    attributes = struct.pack("<Q", handled)
    if version >= 4:
        attributes += struct.pack("<Q", _ALL_PORTS)
    if version >= 6:
        attributes += struct.pack("<Q", _ALL_SCOPES)
    rules = kernel.call("landlock_create_ruleset", attributes, len(attributes), 0)
    try:
        for rights, paths in ((_READABLE, readable), (_WRITABLE, writable), (_LISTABLE, listable)):
            for path in paths:
                _grant(rules, path, rights & handled)
    except OSError:
        os.close(rules)
        raise
    return rules


def _handled_file_rights(version: int) -> int:
    rights = (1 << _FIRST_ABI_FILE_RIGHTS) - 1
    if version >= 2:
        rights |= _MOVE_BETWEEN_FOLDERS
    if version >= 3:
        rights |= _TRUNCATE
    if version >= 5:
        rights |= _CONTROL_DEVICE
    return rights


def _grant(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # What can't be reached needs no grant.
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_FILES
        if rights:
            beneath_path = 1
            rule = struct.pack("<Qi", rights, place)
            kernel.call("landlock_add_rule", rules, beneath_path, rule, 0)
    finally:
        os.close(place)
