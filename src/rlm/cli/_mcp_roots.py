"""What a gateway opens: folders, denied files in them, and the record of what was read."""

import os
import re
import secrets
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from rlm.data.filesystem.denial import DEFAULT_DENIALS, Denials
from rlm.errors import ConfigError
from rlm.gateway.paths import Root
from rlm.records.journal import Places

__all__ = ["denials_of", "keep_out_of", "named_folders", "needs_unix", "new_record", "roots_of"]

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


def needs_unix() -> None:
    """Raise where a path could change while it is walked."""
    if sys.platform == "win32":
        raise ConfigError(
            "the gateway opens files relative to open folders, which Windows does not support: "
            "run it in WSL 2, or in a container, and use `rlm mcp install --url` here"
        )


def named_folders(given: Sequence[str]) -> dict[str, Path]:
    """Return folders by name, from `DIR` and `NAME=DIR`."""
    if not given:
        raise ConfigError("say which folders clients may see: --root DIR, or --root NAME=DIR")
    found: dict[str, Path] = {}
    for text in given:
        name, equals, folder = text.partition("=")
        if not equals or not _NAME.fullmatch(name) or Path(text).is_dir():
            folder = text
            name = Path(folder).resolve().name or "root"
        if not folder:
            raise ConfigError(f"--root {text!r} does not name a folder")
        if name in found:
            raise ConfigError(f"two roots are called {name!r}; name one: --root NAME={folder}")
        found[name] = Path(folder)
    return found


def denials_of(deny: Iterable[str], allow: Iterable[str], *, usual: bool) -> Denials:
    """Return the usual denials and the operator's; `--allow` removes only usual ones."""
    patterns = list(DEFAULT_DENIALS) if usual else []
    for pattern in allow:
        if pattern not in patterns:
            raise ConfigError(
                f"--allow {pattern!r} is not one of the usual denials, which are: "
                f"{' '.join(DEFAULT_DENIALS)}"
            )
        patterns.remove(pattern)
    for pattern in deny:
        if not pattern.strip() or "/" in pattern or pattern.startswith("!"):
            raise ConfigError(
                f"--deny {pattern!r}: a pattern matches one name, and contains no slash and no `!`"
            )
    return Denials([*patterns, *deny])


def roots_of(given: Sequence[str], denials: Denials) -> list[Root]:
    """Open all folders, or none."""
    opened: list[Root] = []
    try:
        for name, folder in named_folders(given).items():
            opened.append(Root(folder, name, denials))
    except ConfigError:
        for root in opened:
            root.close()
        raise
    return opened


def new_record() -> Path:
    """Return a new record file; several gateways may run at once."""
    try:
        state = Places.usual(os.environ).root
    except RuntimeError as error:  # raised by `pathlib` when there is no home
        raise ConfigError(
            f"there is no folder for the record ({error}); set --provenance"
        ) from error
    began = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return state / "provenance" / f"{began}-{os.getpid()}-{secrets.token_hex(3)}.jsonl"


def keep_out_of(roots: Iterable[Root], path: Path, what: str) -> None:
    """Refuse a file below a root: records about clients are not for clients."""
    place = path.absolute().parent.resolve() / path.name
    for root in roots:
        if place.is_relative_to(root.path):
            raise ConfigError(
                f"{what} {path} is below the root {root.name!r}, where clients could read it; "
                "put it elsewhere"
            )
