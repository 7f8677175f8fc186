"""Read standard input and pipes: never more than fits in memory, nor longer than there is time."""

import math
import select
import time
from typing import BinaryIO

import click

from rlm.cli._errors import LIMITED, say
from rlm.context.streams import MAX_READ_CHARS

__all__ = ["read_text"]

READ_AT_ONCE = 1 << 20


def read_text(stream: BinaryIO, name: str, seconds: float | None = None) -> str:
    """Decode the rest of a stream byte for byte: what is not UTF-8 becomes surrogates.

    Refuse more than is held in memory. With `seconds`, give up after that time.
    """
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    data = bytearray()
    while _is_ready(stream, deadline):
        block = _next_block(stream)
        if not block:
            return data.decode("utf-8", "surrogateescape")
        data += block
        if len(data) > MAX_READ_CHARS:
            raise click.ClickException(
                f"{name} holds more than {MAX_READ_CHARS >> 20} MiB; write it to a file and pass "
                "that with -f, so that it is not held in memory"
            )
    say(f"Stopped early: {name} did not end within {seconds:g} seconds; no model was asked.")
    raise click.exceptions.Exit(LIMITED)


def _next_block(stream: BinaryIO) -> bytes:
    """Return what is there, at most a block; wait only if nothing is."""
    read = getattr(stream, "read1", stream.read)
    block: bytes = read(READ_AT_ONCE)
    return block


def _is_ready(stream: BinaryIO, deadline: float) -> bool:
    """Wait until reading would not block; return False if that takes too long."""
    left = deadline - time.monotonic()
    if left == math.inf:
        return True
    if left <= 0:
        return False
    try:
        return bool(select.select([stream], [], [], left)[0])
    except (OSError, ValueError):  # an object in memory, or Windows, where only sockets can wait
        return True
