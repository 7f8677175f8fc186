"""What a host may ask of the zygote, a byte each; both sides use this file."""

from __future__ import annotations

__all__ = ["GROW", "INTERRUPT", "NOW", "PERMIT_FORK", "RETIRE", "STATE", "TERMINATE", "WARM"]

# On the control socket, with two descriptors: a session for a run that waits, or one to be kept
# ready, which can wait for the preloading. What memory its cells may take may follow, in 8 bytes.
NOW = b"N"
WARM = b"W"

# On the control socket, alone: end when the last session has ended; there is a successor.
RETIRE = b"R"

# On the monitor of a session. Closing it ends the session.
INTERRUPT = b"I"
STATE = b"L"
TERMINATE = b"T"
PERMIT_FORK = b"P"
GROW = b"G"
