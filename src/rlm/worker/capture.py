"""Captures the output of a cell: counts all characters, and keeps the head and the tail."""

from __future__ import annotations

import codecs
import io
import threading

from .turns import is_left_over

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


class BoundedStream(io.TextIOBase):
    """A text stream that stands in for stdout or stderr and never grows past `kept_chars`.

    Writes are safe from any thread, and `.buffer` takes bytes. The object lives as long as the
    session, because log handlers and threads keep references to it. Of several `turns`, it holds
    the output of the current one: what an earlier turn left running may write, but that is dropped.
    """

    def __init__(self, kept_chars: int, turns: Turns | None = None) -> None:
        super().__init__()
        self.buffer = _ByteSide(self)
        self._lock = threading.Lock()
        self._turns = turns
        self._turn = turns.current if turns else None
        self._has_dropped = False
        self.keep(kept_chars)

    def keep(self, kept_chars: int) -> None:
        """Set how many characters to keep, and forget what was written."""
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
        with self._lock:
            self._forget_earlier_turns()
            if not self._written:
                return "", 0
            tail = self._kept_tail()
            lost = self._written - (self._head_limit - self._head_room) - len(tail)
            text, written = joined("".join(self._head), lost, tail), self._written
            self._start()
        return text, written

    def take_dropped(self) -> bool:
        """Return whether something was dropped since the last call."""
        has_dropped, self._has_dropped = self._has_dropped, False
        return has_dropped

    def _forget_earlier_turns(self) -> None:
        """Drop what was written between the last cell of a turn and the turn that follows it."""
        if self._turns is not None and self._turn is not self._turns.current:
            self._turn = self._turns.current
            self._has_dropped = self._has_dropped or self._written > 0
            self._start()

    def write(self, text: str) -> int:
        """Count `text` and keep what falls into the head or the tail."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        size = len(text)
        with self._lock:
            self._forget_earlier_turns()
            if self._turn is not None and is_left_over(self._turn):
                self._has_dropped = True
                return size
            self._written += size
            if size <= self._head_room:
                self._head.append(text)
                self._head_room -= size
                return size
            if self._head_room:
                self._head.append(text[: self._head_room])
                text = text[self._head_room :]
                self._head_room = 0
            self._add_to_tail(text)
        return size

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
