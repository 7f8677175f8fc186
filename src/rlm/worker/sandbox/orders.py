"""What a host may ask of the zygote, a byte each; both sides use this file."""

from __future__ import annotations

__all__ = ["INTERRUPT", "LOOK", "NOW", "PERMIT_FORK", "TERMINATE", "WARM"]

# On the control socket, with two descriptors: a session for a run that waits, or one to be kept
# ready, which can wait for the preloading.
NOW = b"N"
WARM = b"W"

# On the lifeline of a session. Closing it ends the session.
INTERRUPT = b"I"
LOOK = b"L"
TERMINATE = b"T"
PERMIT_FORK = b"P"
