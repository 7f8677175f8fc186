"""Captures the output of a cell: counts all characters, and keeps the head and the tail."""

from __future__ import annotations

import codecs
import io
import threading

__all__ = ["BoundedStream", "cut", "joined"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .turns import Turns


def cut(text: str, limit: int) -> str:
    """Keep `limit` characters, half from each end, and a line that says how much is missing."""
    if len(text) <= limit:
        return text
    tail = limit // 2
    return joined(text[: limit - tail], len(text) - limit, text[len(text) - tail :])


def joined(head: str, lost_chars: int, tail: str) -> str:
    """Join head and tail, with a line between them if something is missing."""
    if not lost_chars:
        return head + tail
    return f"{head}\n[... {lost_chars:,} characters cut ...]\n{tail}"


_MAX_LEFT_OVER_CHARS = 2_000
"""How much to keep of what earlier turns left running prints to one stream during a cell."""


class _Ends:
    """The head and the tail of a text that is written in pieces, at most `kept_chars` in all."""

    def __init__(self, kept_chars: int) -> None:
        self._tail_limit = kept_chars // 2
        self._head_limit = kept_chars - self._tail_limit
        self._start()

    def _start(self) -> None:
        self._written = 0
        self._head: list[str] = []
        self._head_room = self._head_limit
        self._tail: list[str] = []
        self._tail_chars = 0

    def take(self) -> tuple[str, int]:
        """Return the kept text and the number of characters written, and start again."""
        if not self._written:
            return "", 0
        tail = self._kept_tail()
        lost = self._written - (self._head_limit - self._head_room) - len(tail)
        text, written = joined("".join(self._head), lost, tail), self._written
        self._start()
        return text, written

    def add(self, text: str) -> None:
        """Count `text` and keep what falls into the head or the tail."""
        size = len(text)
        self._written += size
        if size <= self._head_room:
            self._head.append(text)
            self._head_room -= size
            return
        if self._head_room:
            self._head.append(text[: self._head_room])
            text = text[self._head_room :]
            self._head_room = 0
        self._add_to_tail(text)

    def _add_to_tail(self, text: str) -> None:
        if len(text) > self._tail_limit:
            text = text[len(text) - self._tail_limit :]
        self._tail.append(text)
        self._tail_chars += len(text)
        # Joining only at twice the limit, or at many small pieces, keeps the cost linear.
        if self._tail_chars > 2 * self._tail_limit or len(self._tail) > 65_536:
            kept = self._kept_tail()
            self._tail = [kept]
            self._tail_chars = len(kept)

    def _kept_tail(self) -> str:
        tail = "".join(self._tail)
        return tail[max(0, len(tail) - self._tail_limit) :]


class BoundedStream(io.TextIOBase):
    """A text stream that stands in for stdout or stderr and never grows past `kept_chars`.

    Writes are safe from any thread, and `.buffer` takes bytes. The object lives as long as the
    session, because log handlers and threads keep references to it. Of several `turns`, it holds
    the output of the current one; what an earlier turn left running writes is kept apart.
    """

    def __init__(self, kept_chars: int, turns: Turns | None = None) -> None:
        super().__init__()
        self.buffer = _ByteSide(self)
        self._lock = threading.Lock()
        self._turns = turns
        self._turn = turns.current if turns else None
        self.keep(kept_chars)

    def keep(self, kept_chars: int) -> None:
        """Set how many characters to keep, and forget what was written."""
        self._output = _Ends(kept_chars)
        self._left_over = _Ends(min(kept_chars, _MAX_LEFT_OVER_CHARS))

    def take(self) -> tuple[str, int]:
        """Return the kept text and the number of characters written, and start again."""
        with self._lock:
            self._follow_turns()
            return self._output.take()

    def take_left_over(self) -> str:
        """Return, cut, what earlier turns left running has written, and start again."""
        with self._lock:
            return self._left_over.take()[0]

    def _follow_turns(self) -> None:
        """Set apart what was written between the last cell of a turn and the turn after it."""
        if self._turns is not None and self._turn is not self._turns.current:
            self._turn = self._turns.current
            self._left_over.add(self._output.take()[0])

    def write(self, text: str) -> int:
        """Count `text` and keep what falls into the head or the tail."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        with self._lock:
            self._follow_turns()
            is_left_over = self._turn is not None and self._turn.is_over_here()
            (self._left_over if is_left_over else self._output).add(text)
        return len(text)

    def writelines(self, lines: Iterable[Any]) -> None:
        """Write each of `lines`, as every text stream does."""
        for line in lines:
            self.write(line)

    def writable(self) -> bool:
        """Return True: this is a stream to write to."""
        return True

    def reconfigure(self, **_: Any) -> None:
        """Do nothing; scripts call this."""

    encoding = "utf-8"
    """The encoding that scripts see; `.buffer` decodes it."""


class _ByteSide(io.RawIOBase):
    """`sys.stdout.buffer`: decodes bytes, which may end inside a character."""

    def __init__(self, stream: BoundedStream) -> None:
        super().__init__()
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._stream.write(self._decoder.decode(bytes(data)))
        return len(data)
