"""Where settings are, and how their files are read and replaced."""

import contextlib
import errno
import os
import stat
import time
from collections.abc import Generator, Mapping
from pathlib import Path

from rlm._util.atomic import replacing
from rlm.errors import ConfigError

__all__ = ["LARGEST_BYTES", "config_folder", "locked", "prepare_folder", "private_bytes", "write"]

LARGEST_BYTES = 65_536
LOCK_SECONDS = 5.0
READ_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
)
"""Follow no symbolic link, and do not wait for the writer of a pipe."""


def config_folder(variables: Mapping[str, str]) -> Path | None:
    """Return `RLM_CONFIG_DIR`, else a folder below the XDG configuration folder, on every system.

    Return None if there is no home. It depends on the real environment, never on a `.env`.
    """
    if named := variables.get("RLM_CONFIG_DIR"):
        return Path(named).expanduser().absolute()
    base = Path(variables.get("XDG_CONFIG_HOME", ""))
    if base.is_absolute():  # The specification says to ignore relative paths.
        return base / "rlm"
    home = Path(variables.get("HOME") or variables.get("USERPROFILE") or "")
    # A relative path would point into the working folder, which may be someone else's.
    return home / ".config" / "rlm" if home.is_absolute() else None


def prepare_folder(folder: Path | None) -> Path:
    """Create the folder, readable only by its owner, and return it."""
    if folder is None:
        raise ConfigError("there is no home folder for settings: set RLM_CONFIG_DIR to a folder")
    try:
        # `parents=True` would create parents with the default mode, which the umask may leave open.
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        for each in reversed(missing):
            each.mkdir(mode=0o700, exist_ok=True)
        facts = folder.stat()
        if _is_ours(facts) and stat.S_IMODE(facts.st_mode) & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise ConfigError(
            f"{folder} can't be created: {error.strerror or error}; set RLM_CONFIG_DIR to a "
            "writable folder"
        ) from error
    return folder


def private_bytes(path: Path) -> tuple[bytes, bool] | None:
    """Read a file that only its owner may read; None if there is none.

    The second value says whether others could read it until now, which is corrected. A symbolic
    link or a file of another user is refused.
    """
    try:
        number = os.open(path, READ_FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.EMLINK}:
            raise ConfigError(
                f"{path} is a symbolic link, which could lead anywhere: put the file itself there"
            ) from error
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
    facts = os.fstat(number)
    if not stat.S_ISREG(facts.st_mode):
        os.close(number)
        raise ConfigError(f"{path} is not a regular file")
    with os.fdopen(number, "rb") as file:
        if not _is_ours(facts):
            raise ConfigError(f"{path} belongs to another user, so its keys are not used")
        was_open = os.name == "posix" and bool(stat.S_IMODE(facts.st_mode) & 0o077)
        if was_open:
            os.fchmod(file.fileno(), 0o600)
        data = file.read(LARGEST_BYTES + 1)
    if len(data) > LARGEST_BYTES:
        raise ConfigError(f"{path} has more than {LARGEST_BYTES:,} bytes")
    return data, was_open


def write(path: Path, data: bytes) -> None:
    """Replace a file as a whole; it is readable only by its owner from the start."""
    try:
        with replacing(path) as file:
            file.write(data)
    except OSError as error:
        raise ConfigError(f"{path} can't be written: {error.strerror or error}") from error


@contextlib.contextmanager
def locked(folder: Path) -> Generator[None, None, None]:
    """Let one process at a time read, change and write files of a folder, where locks exist."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    number = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        give_up = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise ConfigError(
                        f"another process has kept {folder} locked for {LOCK_SECONDS:g} seconds; "
                        "end it, or try again"
                    ) from None
            time.sleep(0.02)
        yield
    finally:
        os.close(number)


def _is_ours(facts: os.stat_result) -> bool:
    return not hasattr(os, "getuid") or facts.st_uid == os.getuid()
