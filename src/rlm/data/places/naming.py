"""Turn the names of objects, which strangers may have chosen, into relative paths of files.

An object store allows any name: `../x`, `/x`, `a//b`, 1,024 bytes in one part, control characters,
marks that reverse the direction of text, and names that differ only in case.
"""

import hashlib
import unicodedata
from collections.abc import Iterable
from pathlib import PurePosixPath

__all__ = ["file_names", "last_part"]

MAX_PART_BYTES = 150
MAX_NAME_BYTES = 600
MAX_PARTS = 30
MAX_SUFFIX_CHARS = 12
TAG_CHARS = 10

_FORBIDDEN = frozenset('<>:"\\|?*')
"""Characters that Windows forbids in names, and the backslash."""
_DEVICES = frozenset(
    (
        *("aux", "con", "nul", "prn"),
        *(f"{name}{number}" for name in ("com", "lpt") for number in range(10)),
    )
)


def file_names(names: Iterable[str]) -> dict[str, str]:
    """Return the path of each name: relative, harmless, and unique in any file system.

    A file gets a tag if its plain path is also that of a folder or, ignoring case, of another file.
    The same names always get the same paths.
    """
    plain = {name: _plain_path(name) for name in sorted(set(names))}
    folders = {_key(folder) for path in plain.values() for folder in _folders(path)}
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name, path in plain.items():
        number = 0
        free = path
        while _key(free) in taken or _key(free) in folders:
            free = _tagged(path, f"{name}\0{number}")
            number += 1
        taken.add(_key(free))
        found[name] = free
    return found


def last_part(name: str) -> str:
    """Return the last part of a name as the name of a file or folder; "data" if there is none."""
    parts = [part for part in name.split("/") if part]
    return _plain_part(parts[-1]) if parts else "data"


def _plain_path(name: str) -> str:
    parts = [_plain_part(part) for part in name.split("/")]
    path = "/".join(parts)
    if len(parts) > MAX_PARTS or len(path.encode()) > MAX_NAME_BYTES:
        return f"{_digest(name, 32)}{_suffix(parts[-1])}"
    return path


def _plain_part(part: str) -> str:
    """Return one part of a path, with %XX for characters not printable or not allowed."""
    shown = "".join(
        char
        if char.isprintable() and char not in _FORBIDDEN
        else "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
        for char in part
    )
    if shown.strip(". ") == "":  # Includes "", "." and "..".
        shown = shown.replace(".", "%2E").replace(" ", "%20") or "%"
    elif shown.endswith((".", " ")) or shown.partition(".")[0].lower() in _DEVICES:
        shown = f"{shown}_" if shown.endswith((".", " ")) else f"_{shown}"
    if len(shown.encode()) > MAX_PART_BYTES:
        shown = _tagged(shown, part)
    return shown


def _tagged(path: str, origin: str) -> str:
    """Return a path whose last part has a tag before its suffix and is short enough."""
    folder, slash, part = path.rpartition("/")
    suffix = _suffix(part)
    stem = part.removesuffix(suffix)
    room = MAX_PART_BYTES - TAG_CHARS - 1 - len(suffix.encode())
    stem = stem.encode()[:room].decode("utf-8", "ignore")
    return f"{folder}{slash}{stem}~{_digest(origin, TAG_CHARS)}{suffix}"


def _suffix(part: str) -> str:
    suffix = PurePosixPath(part).suffix
    return suffix if len(suffix) <= MAX_SUFFIX_CHARS and suffix[1:].isalnum() else ""


def _folders(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def _key(path: str) -> str:
    """Return a key that is equal for paths which some file system treats as the same."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _digest(text: str, chars: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:chars]
