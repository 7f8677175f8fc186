"""The folder of this user's own in which the runtime unpacks itself.

It runs what it finds there as machine code, and by default it looks in the temporary folder, which
other users can write to.
"""

import os
import sys
from pathlib import Path

from rlm.errors import ConfigError

__all__ = ["private_folder"]

_OTHERS_MAY_WRITE = 0o022


def private_folder() -> Path:
    """That folder, made if it is not there; about 60 MB will be in it."""
    folder = _caches() / "rlm" / "wasm"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise ConfigError(
            f"{folder} can't be made: {error.strerror}; set XDG_CACHE_HOME to a folder of your own"
        ) from error
    if sys.platform != "win32" and (
        found.st_uid != os.geteuid() or found.st_mode & _OTHERS_MAY_WRITE
    ):
        raise ConfigError(
            f"{folder} can be changed by other users; run `chmod 700 {folder}`, or set "
            "XDG_CACHE_HOME to a folder of your own"
        )
    return folder


def _caches() -> Path:
    named = os.environ.get("XDG_CACHE_HOME", "")
    if Path(named).is_absolute():
        return Path(named)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path.home() / ".cache"
