"""Files for their owner only."""

import os
from pathlib import Path

__all__ = ["private"]


def private(path: str | Path, flags: int) -> int:
    """Open a file for its owner only; a link is refused, since it may lead to anything."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
