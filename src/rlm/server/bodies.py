"""Request bodies: how large they may be, where they wait, and how they are decoded.

A body counts as what it becomes in memory: text may take four bytes per character, and every JSON
list, object and number takes many times its characters. A body that does not fit waits in line,
per token; it waits on disk, so that waiting takes no memory.
"""

import asyncio
import json
import mmap
import tempfile
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, nullcontext
from typing import Any, BinaryIO, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request

from rlm._util.limited import JobLimits, Jobs, JobStopped, in_thread, owner
from rlm._util.slow_numbers import ON_LOOP, has_many
from rlm.context import EncodedJson
from rlm.server.decoding import Weight, decode, mistake, weight_of
from rlm.server.errors import ApiError, Closing, bad_request, too_large, unavailable
from rlm.server.settings import Settings
from rlm.server.tokens import Token

__all__ = ["Allowance", "Bodies", "Body", "Share", "Turns", "decoded", "limited"]

RETRY_SECONDS = 5


class Share:
    """What one request holds of an allowance; a second release does nothing."""

    def __init__(self, allowance: "Allowance", token: Token, size: int = 0) -> None:
        self._allowance = allowance
        self._token = token
        self.size = size

    def grow(self, size: int) -> None:
        """Hold `size` more bytes without waiting; raise ApiError if they are not available."""
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

    Use it on one event loop. The requests of one token are served in order, and never wait for
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
                f"{self._most_of_token:,} are allowed; upload large parts to /v1/files, and "
                "name them in rlm.file_ids"
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
                self._give_back(token, size)  # It had gone to a request that has just left.
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
            f"other requests use all of the {self._what} that is allowed; try again later",
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


SMALL_BYTES = 1 << 16
"""Larger bodies count against the allowance, and wait on disk until they may be read."""

MANY_VALUES_BYTES = 1 << 20
"""A body whose values take more memory is decoded in another process."""

KEPT = 3
"""How many times its size a body takes during a run: its text, and the encoded text."""

T = TypeVar("T")
_JOBS = Jobs("rlm.server.body_worker")
_DECODING_SECONDS = 60.0


class Turns:
    """Limits how many pieces of a token's bodies are handled at a time, in order of arrival.

    Otherwise, the event loop would handle a piece of every upload of a token before it turns to
    the requests of others. A piece that waits takes no turn, and its client has to wait to send.
    """

    AT_ONCE = 2

    def __init__(self) -> None:
        self._of_token: dict[str, asyncio.Semaphore] = {}

    def of(self, token: Token) -> asyncio.Semaphore:
        """Return the semaphore to hold while handling a piece of one of this token's bodies."""
        return self._of_token.setdefault(token.name, asyncio.Semaphore(self.AT_ONCE))


async def limited(
    request: Request, max_bytes: int, seconds: float, turn: asyncio.Semaphore | None = None
) -> AsyncGenerator[bytes, None]:
    """Yield the body in pieces, up to a number of bytes and seconds; hold `turn` for each piece.

    Close the generator if you do not read it to the end.
    """
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
                async with turn or nullcontext():
                    yield chunk
    except TimeoutError:
        raise ApiError(
            408, f"the request did not arrive within {seconds:g} s", code="request_timeout"
        ) from None


def _check_kind(request: Request) -> None:
    """Refuse a body that is declared as something other than JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(
            415,
            "the body must be JSON, with the header `Content-Type: application/json`",
            code="unsupported_media_type",
        )


class Body:
    """The whole body of one request, in memory if small, otherwise on disk."""

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
        """Decode the body as that type; errors name the field.

        A large body is read, and removed from the disk, when there is memory for it.
        """
        try:
            if self._file is None:
                data, self._data = self._data, b""
                return await _decode_small(data, kind)
            weight = await asyncio.to_thread(_weight, self._file)
            self._in_memory = await self._bodies.memory.wait_for(self._token, weight.total)
            file = self._file
            if weight.values <= MANY_VALUES_BYTES:
                return await asyncio.to_thread(lambda: _decode_file(file, kind))
            owner.set(self._token.name)
            return await in_thread(lambda: _decode_in_process(file, kind, weight))
        except JobStopped as error:
            raise _not_decoded(error) from None
        except msgspec.ValidationError as error:
            raise mistake(error, kind) from None
        except (ValueError, RecursionError) as error:
            raise bad_request(f"the body is not valid JSON: {error}", code="invalid_json") from None

    def keep(self) -> Share | None:
        """Hand over the share of memory that a run keeps for a large body."""
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


async def _decode_small(data: bytes, kind: type[T]) -> T:
    """Decode on the event loop, or in a thread if the numbers take long."""
    if has_many(data, ON_LOOP):
        return await asyncio.to_thread(lambda: decode(data, kind))
    return decode(data, kind)


def _weight(file: BinaryIO) -> Weight:
    file.flush()
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        return weight_of(view)


def _decode_file(file: BinaryIO, kind: type[T]) -> T:
    """Decode from the mapped file, without copying it."""
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view, memoryview(view) as data:
        return decode(data, kind)


def _decode_in_process(file: BinaryIO, kind: type[T], weight: Weight) -> T:
    """Decode a body with many values in another process; its context stays JSON text."""
    limits = JobLimits(
        seconds=_DECODING_SECONDS,
        memory_bytes=2 * weight.total + (256 << 20),
        output_bytes=2 * weight.total,
    )
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view, memoryview(view) as data:
        answer: str = _JOBS.call("read", kind.__name__, data=data, limits=limits)
    line, _, context = answer.partition("\n")
    facts: dict[str, Any] = json.loads(line)
    if "mistake" in facts:
        raise msgspec.ValidationError(facts["mistake"])
    if "too_many" in facts:
        raise bad_request(f"the body can't be read: {facts['too_many']}")
    if "invalid" in facts:
        raise ValueError(facts["invalid"])
    request: Any = decode(facts["request"].encode(), kind)
    if not context:
        return request  # type: ignore[no-any-return]
    given = EncodedJson(context, facts["description"], facts["are_texts"])
    if hasattr(request, "rlm"):
        return replace(request, rlm=replace(request.rlm, context=given))  # type: ignore[no-any-return]
    return replace(request, context=given)  # type: ignore[no-any-return]


def _not_decoded(error: JobStopped) -> ApiError:
    if error.reason == "crash":
        return unavailable(
            "the body could not be decoded; try again", "decoding_failed", RETRY_SECONDS
        )
    return too_large(
        "decoding this body takes too much time or memory; upload large parts to /v1/files, and "
        "name them in rlm.file_ids"
    )


class Bodies:
    """Where bodies are stored while they arrive and wait, and how much room they may take."""

    def __init__(self, settings: Settings, tokens: int) -> None:
        self._settings = settings
        self._folder = settings.folder / "bodies"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        seconds = settings.queue_seconds
        self.turns = Turns()
        self.disk = Allowance(settings.max_bodies_bytes, tokens, seconds, "disk")
        self.memory = Allowance(settings.max_memory_bytes, tokens, seconds, "memory")

    def new_file(self) -> BinaryIO:
        """Open a file without a name, so that a killed server leaves nothing behind."""
        file: BinaryIO = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
        return file

    @asynccontextmanager
    async def arrived(self, request: Request, token: Token) -> AsyncGenerator[Body, None]:
        """Receive a whole body, and release it at the end."""
        _check_kind(request)
        body = Body(self, token)
        try:
            most, seconds = self._settings.max_body_bytes, self._settings.body_seconds
            async with aclosing(limited(request, most, seconds, self.turns.of(token))) as chunks:
                async for chunk in chunks:
                    await body.add(chunk)
            yield body
        finally:
            body.close()


async def decoded(request: Request, settings: Settings, kind: type[T]) -> T | None:
    """Decode a small body, for requests without a context; return None if there is no body.

    Only reading tells whether there is one: a body in chunks comes without a Content-Length.
    """
    most = min(SMALL_BYTES, settings.max_body_bytes)
    chunks = limited(request, most, settings.body_seconds)
    body = b"".join([chunk async for chunk in chunks])
    if not body:
        return None
    _check_kind(request)
    try:
        return await _decode_small(body, kind)
    except msgspec.ValidationError as error:
        raise mistake(error, kind) from None
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not valid JSON: {error}", code="invalid_json") from None


def _too_large(max_bytes: int) -> ApiError:
    return too_large(
        f"a request may have at most {max_bytes:,} bytes; upload large parts to /v1/files, and "
        "name them in rlm.file_ids"
    )
