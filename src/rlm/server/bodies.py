"""Request bodies: how large they may be, where they wait, and how they are decoded.

In memory a body counts as what it becomes: text may take four bytes a character, and every list,
object and
number of JSON takes many times its characters. A body that does not fit waits in line, per token;
it waits on
disk, so that waiting takes no memory.
"""

import asyncio
import mmap
import re
import tempfile
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any, BinaryIO, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import Request

from rlm.server.errors import ApiError, Closing, bad_request, too_large, unavailable
from rlm.server.settings import Settings
from rlm.server.tokens import Token

__all__ = ["Allowance", "Bodies", "Body", "Share", "decoded", "decoded_bytes", "limited"]

RETRY_SECONDS = 5
SLICE_BYTES = 1 << 20
"""Bodies are scanned in slices, so that other threads can run in between."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


class Share:
    """What one request holds of an allowance; a second release does nothing."""

    def __init__(self, allowance: "Allowance", token: Token, size: int = 0) -> None:
        self._allowance = allowance
        self._token = token
        self.size = size

    def grow(self, size: int) -> None:
        """Hold `size` more bytes without waiting; raise ApiError if they are not free."""
        self._allowance._take_now(self._token, size)
        self.size += size

    def shrink(self, size: int) -> None:
        """Release all but `size` bytes."""
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
    """Bytes that all requests share. With several tokens, none may hold more than half.

    It lives on one event loop. The requests of one token are served in order, and never wait for
    another token.
    """

    def __init__(self, max_bytes: int, tokens: int, queue_seconds: float, what: str) -> None:
        self._most = max_bytes
        self._most_of_token = max_bytes if tokens < 2 else max_bytes // 2
        self._queue_seconds = queue_seconds
        self._what = what
        self._waiting: deque[_Waiting] = deque()
        self._of_token: Counter[str] = Counter()
        self._closing = False
        self.used = 0

    def share(self, token: Token) -> Share:
        """Return an empty share that grows as bytes arrive."""
        return Share(self, token)

    async def wait_for(self, token: Token, size: int) -> Share:
        """Hold `size` bytes, now or after waiting in line; raise ApiError if that is impossible."""
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
        """Refuse waiting requests and all later ones."""
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
        """Admit waiting requests that fit, in order for each token."""
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


def decoded_bytes(body: bytes | mmap.mmap) -> int:
    """Return an upper bound of the memory that a JSON body takes with its text and values."""
    wide, quotes, values = False, 0, 0
    for part in _slices(body):
        wide = wide or not part.isascii() or b"\\u" in part
        quotes += part.count(b'"') - part.count(b'\\"')
        values += _of_values(part)
    if quotes <= len(body) // 16:
        values = min(values, _of_values(_without_texts(body)))
    return len(body) * (8 if wide else 4) + values


def _slices(body: bytes | mmap.mmap) -> Iterator[bytes]:
    """Yield the body in slices; a pair of characters may be split between two."""
    for at in range(0, len(body), SLICE_BYTES):
        yield body[at : at + SLICE_BYTES + 1]


def _without_texts(body: bytes | mmap.mmap) -> bytes:
    """Remove the content of strings, which is only text."""
    kept, end = bytearray(), 0
    for found in _STRING.finditer(body):
        kept += body[end : found.start()] + b'""'
        end = found.end()
    return bytes(kept) + body[end:]


def _of_values(structure: bytes) -> int:
    """Estimate the memory of CPython objects: a list 56 bytes, a dict 64 or 184, a number 32."""
    objects = structure.count(b"{")
    return (
        96 * structure.count(b"[")
        + 72 * objects
        + 128 * (objects - structure.count(b"{}"))
        + 40 * structure.count(b":")
        + 32 * structure.count(b'"')
        + 44 * structure.count(b",")
    )


SMALL_BYTES = 1 << 16
"""Larger bodies are counted, and wait on disk until they may be read."""

KEPT = 3
"""The size of a body during a run, as a multiple: its text, and that encoded."""

T = TypeVar("T")
_MISTAKE = re.compile(r"(?P<what>.*?)(?: - at `(?P<key>key in )?\$(?P<where>.*)`)?", re.DOTALL)
_FIELD = re.compile(r"field `([^`]*)`")


async def limited(request: Request, max_bytes: int, seconds: float) -> AsyncGenerator[bytes, None]:
    """Yield the body in pieces, up to a number of bytes and seconds."""
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated[:20]) > max_bytes:
        raise _too_large(max_bytes)
    size = 0
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > max_bytes:
                    raise _too_large(max_bytes)
                yield chunk
    except TimeoutError:
        raise ApiError(
            408, f"the request did not arrive within {seconds:g} s", code="request_timeout"
        ) from None


def _check_kind(request: Request) -> None:
    """Refuse a body that is declared as something else than JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(
            415,
            "the body must be JSON, with the header `Content-Type: application/json`",
            code="unsupported_media_type",
        )


class Body:
    """The whole body of one request: a small one in memory, a large one on disk."""

    def __init__(self, bodies: "Bodies", token: Token) -> None:
        self._bodies = bodies
        self._token = token
        self._data = b""
        self._file: BinaryIO | None = None
        self._on_disk = bodies.disk.share(token)
        self._in_memory: Share | None = None
        self.size = 0

    @property
    def is_large(self) -> bool:
        return self._file is not None

    async def add(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self._file is None and self.size <= SMALL_BYTES:
            self._data += chunk
            return
        new = chunk if self._file is not None else self._data + chunk
        self._on_disk.grow(len(new))
        if self._file is None:
            self._file, self._data = self._bodies.new_file(), b""
        await asyncio.to_thread(self._file.write, new)

    async def read_as(self, kind: type[T]) -> T:
        """Decode the body as that type; an error names the field.

        A large body is read when there is memory for it, and then leaves the disk.
        """
        try:
            if self._file is None:
                data, self._data = self._data, b""
                return _read(data, kind)
            size = await asyncio.to_thread(self._measure, self._file)
            self._in_memory = await self._bodies.memory.wait_for(self._token, size)
            file = self._file
            return await asyncio.to_thread(lambda: _decoded(file, kind))
        except msgspec.ValidationError as error:
            raise _mistake(str(error)) from None
        except (ValueError, RecursionError) as error:
            raise bad_request(f"the body is not valid JSON: {error}", code="invalid_json") from None

    def keep(self) -> Share | None:
        """Hand over the share of memory that a run keeps of a large body."""
        share, self._in_memory = self._in_memory, None
        if share is not None:
            share.shrink(self.size * KEPT)
        return share

    def close(self) -> None:
        self._data = b""
        if self._file is not None:
            self._file.close()
        self._on_disk.release()
        if self._in_memory is not None:
            self._in_memory.release()

    @staticmethod
    def _measure(file: BinaryIO) -> int:
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return decoded_bytes(view)


def _decoded(file: BinaryIO, kind: type[T]) -> T:
    """Decode from the mapped file, without copying it."""
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view, memoryview(view) as data:
        return _read(data, kind)


class Bodies:
    """Where bodies are while they arrive and wait, and how much they may take."""

    def __init__(self, settings: Settings, tokens: int) -> None:
        self._settings = settings
        self._folder = settings.folder / "bodies"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        seconds = settings.queue_seconds
        self.disk = Allowance(settings.max_bodies_bytes, tokens, seconds, "disk")
        self.memory = Allowance(settings.max_memory_bytes, tokens, seconds, "memory")

    def new_file(self) -> BinaryIO:
        """Open a file without a name, of which a killed server leaves nothing."""
        file: BinaryIO = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
        return file

    @asynccontextmanager
    async def arrived(self, request: Request, token: Token) -> AsyncGenerator[Body, None]:
        """Receive a whole body, and release it in the end."""
        _check_kind(request)
        body = Body(self, token)
        try:
            chunks = limited(request, self._settings.max_body_bytes, self._settings.body_seconds)
            async for chunk in chunks:
                await body.add(chunk)
            yield body
        finally:
            body.close()


async def decoded(request: Request, settings: Settings, kind: type[T]) -> T:
    """Decode a small body, for requests without a context."""
    _check_kind(request)
    most = min(SMALL_BYTES, settings.max_body_bytes)
    chunks = limited(request, most, settings.body_seconds)
    body = b"".join([chunk async for chunk in chunks])
    try:
        return _read(body, kind)
    except msgspec.ValidationError as error:
        raise _mistake(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not valid JSON: {error}", code="invalid_json") from None


def _read(body: bytes | memoryview, kind: type[T]) -> T:
    """Treat 2.0 as a whole number: JSON has one kind of number."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        if "got `float`" not in str(error):
            raise
    return msgspec.convert(_with_whole_numbers(msgspec.json.decode(body)), kind)


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_with_whole_numbers(each) for each in value]
    if isinstance(value, dict):
        return {name: _with_whole_numbers(each) for name, each in value.items()}
    return value


def _mistake(text: str) -> ApiError:
    found = _MISTAKE.fullmatch(text)
    what, where = (found["what"], found["where"] or "") if found else (text, "")
    missing = _FIELD.search(what)
    if missing is not None:
        where = f"{where}.{missing[1]}"
    param = where.lstrip(".") or None
    return bad_request(f"{what}{f' at {param}' if param else ''}", param, "invalid_type")


def _too_large(max_bytes: int) -> ApiError:
    return too_large(
        f"a request may have {max_bytes:,} bytes here; upload what is larger to /v1/files, and "
        "name it in rlm.file_ids"
    )
