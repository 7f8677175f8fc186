"""How many bytes the bodies of requests may take, all of them together: on disk, and in memory.

In memory a body is counted as what it becomes: text may take four bytes a character, and every
list, object and number of JSON takes many times its characters. A body that does not fit waits in
line for its token's turn; it waits on disk, so that waiting costs no memory.
"""

import asyncio
import re
from collections import Counter, deque
from collections.abc import Iterator
from mmap import mmap

from msgspec import Struct

from rlm.server.errors import ApiError, Closing, too_large, unavailable
from rlm.server.tokens import Token

__all__ = ["Allowance", "Share", "decoded_bytes"]

RETRY_SECONDS = 5
SLICE_BYTES = 1 << 20
"""Bodies are looked through in slices: other threads run between them."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


class Share:
    """What one request holds of an allowance; releasing it twice does no harm."""

    def __init__(self, allowance: "Allowance", token: Token, size: int = 0) -> None:
        self._allowance = allowance
        self._token = token
        self.size = size

    def grow(self, size: int) -> None:
        """Hold `size` bytes more, without waiting; an ApiError if they are not free."""
        self._allowance._take_now(self._token, size)
        self.size += size

    def shrink(self, size: int) -> None:
        """Give back all but `size` bytes."""
        if size < self.size:
            self._allowance._give_back(self._token, self.size - size)
            self.size = size

    def release(self) -> None:
        self.shrink(0)


class _Waiting(Struct, frozen=True, eq=False):
    turn: "asyncio.Future[None]"
    token: Token
    size: int


class Allowance:
    """Lives on one event loop. Where there are several tokens, none may hold more than half.

    Requests of one token are served in order; they never wait for those of another token.
    """

    def __init__(self, most_bytes: int, tokens: int, queue_seconds: float, what: str) -> None:
        self._most = most_bytes
        self._most_of_token = most_bytes if tokens < 2 else most_bytes // 2
        self._queue_seconds = queue_seconds
        self._what = what
        self._waiting: deque[_Waiting] = deque()
        self._of_token: Counter[str] = Counter()
        self._closing = False
        self.used = 0

    def share(self, token: Token) -> Share:
        """A share that holds nothing yet, to grow as bytes arrive."""
        return Share(self, token)

    async def wait_for(self, token: Token, size: int) -> Share:
        """Hold `size` bytes, now or after waiting in line; an ApiError if that can't be."""
        if size > self._most_of_token:
            raise too_large(
                f"this body takes about {size:,} bytes of {self._what}, and "
                f"{self._most_of_token:,} are allowed; upload what is large to /v1/files, and "
                "name it in rlm.file_ids"
            )
        if self._closing:
            raise Closing
        first = all(each.token.name != token.name for each in self._waiting)
        if first and self._fits(token, size):
            self._take(token, size)
        else:
            await self._wait(token, size)
        return Share(self, token, size)

    def close(self) -> None:
        """Refuse those that wait, and whatever comes later."""
        self._closing = True
        for each in self._waiting:
            if not each.turn.done():
                each.turn.set_exception(Closing())

    async def _wait(self, token: Token, size: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(turn, token, size)
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(self._queue_seconds):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._give_back(token, size)  # It was given to a request that has just left.
            if isinstance(error, TimeoutError):
                raise self._full() from None
            raise
        finally:
            turn.cancel()
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self._serve()

    def _take_now(self, token: Token, size: int) -> None:
        if not self._fits(token, size):
            raise self._full()
        self._take(token, size)

    def _full(self) -> ApiError:
        return unavailable(
            f"other requests hold the {self._what} that is allowed; try again later",
            "bytes_exceeded",
            RETRY_SECONDS,
        )

    def _fits(self, token: Token, size: int) -> bool:
        of_token = self._of_token[token.name] + size
        return self.used + size <= self._most and of_token <= self._most_of_token

    def _take(self, token: Token, size: int) -> None:
        self.used += size
        self._of_token[token.name] += size

    def _give_back(self, token: Token, size: int) -> None:
        self.used -= size
        self._of_token[token.name] -= size
        if not self._of_token[token.name]:
            del self._of_token[token.name]
        self._serve()

    def _serve(self) -> None:
        """Let in those that fit, each token's in order."""
        blocked: set[str] = set()
        for each in list(self._waiting):
            if each.turn.done() or each.token.name in blocked:
                continue
            if self._fits(each.token, each.size):
                self._waiting.remove(each)
                self._take(each.token, each.size)
                each.turn.set_result(None)
            else:
                blocked.add(each.token.name)


# -- what a body becomes --------------------------------------------------------------------------


def decoded_bytes(body: bytes | mmap) -> int:
    """About the most memory that a JSON body takes with its text and its values; never less."""
    wide, quotes, values = False, 0, 0
    for part in _slices(body):
        wide = wide or not part.isascii() or b"\\u" in part
        quotes += part.count(b'"') - part.count(b'\\"')
        values += _of_values(part)
    if quotes <= len(body) // 16:
        values = min(values, _of_values(_without_texts(body)))
    return len(body) * (8 if wide else 4) + values


def _slices(body: bytes | mmap) -> Iterator[bytes]:
    """The body in slices; what has two characters may be cut in two and is still looked at."""
    for at in range(0, len(body), SLICE_BYTES):
        yield body[at : at + SLICE_BYTES + 1]


def _without_texts(body: bytes | mmap) -> bytes:
    """The body without the insides of its strings: they may hold anything, and are only text."""
    kept, end = bytearray(), 0
    for found in _STRING.finditer(body):
        kept += body[end : found.start()] + b'""'
        end = found.end()
    return bytes(kept) + body[end:]


def _of_values(structure: bytes) -> int:
    """As CPython needs it: a list from 56 bytes, a dict 64 or from 184, a text 50, a number 32."""
    objects = structure.count(b"{")
    return (
        96 * structure.count(b"[")
        + 72 * objects
        + 128 * (objects - structure.count(b"{}"))
        + 40 * structure.count(b":")
        + 32 * structure.count(b'"')
        + 44 * structure.count(b",")
    )
