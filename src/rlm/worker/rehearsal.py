"""What a worker does once for nobody: frames of a host that wants a bit of everything."""

from __future__ import annotations

from . import wire

__all__ = ["MOST_ANSWER_BYTES", "REQUESTS"]

MOST_ANSWER_BYTES = 1 << 16
_SETTINGS = {
    "seed": 0,
    "tools": [],
    "cell_memory_bytes": None,  # A hard limit would stay.
    "kept_output_chars": 1_000,
    "max_submission_chars": 1_000,
}
_CELLS = (
    # The usual statements, an echo, output, an error; what they bind, the last one deletes.
    "import re\ndef f(n):\n    return [f'{n}']\nfor x in f(1):\n    print(x)",
    "x = 1",
    "x",
    "x / 0",
    "del f, re, x",
)

REQUESTS = (
    wire.encode(wire.INIT, 0, [wire.to_json(_SETTINGS)]),
    *(wire.encode(wire.EXEC, 0, [wire.to_bytes(cell)]) for cell in _CELLS),
)
"""Each is answered by one frame of at most `MOST_ANSWER_BYTES`."""
