"""The host's end of the connection to a worker: `Stream` moves bytes, the rest checks frames.

The code in a sandbox may be hostile and write to the stream itself. So nothing in a frame is
trusted before it is checked here, and nothing is decoded before its size is checked against
`rlm.worker.bounds` and the limits of the session. `_calls` reads the calls of cells.
"""

import array
import asyncio
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct, json

from rlm._util.slow_numbers import decode_with
from rlm._util.untrusted import JsonBounds, TooLarge, check_json, read_json, read_texts
from rlm.errors import ProtocolViolation
from rlm.results import CellError, CellResult, Submission, bounded
from rlm.worker import bounds, wire

__all__ = [
    "Done",
    "SessionBounds",
    "Stream",
    "read_done",
    "read_files",
    "read_metadata",
    "read_parts",
    "read_piece",
    "read_value",
]

_READ_BYTES = 1 << 16
_MAX_UNSENT_BYTES = 1 << 16
_SMALL_FRAME = (bounds.MAX_META_BYTES, 2)
_CALL_FRAME = (wire.MAX_TO_HOST_BYTES, wire.MAX_PARTS)
_MAX_CHAR_BYTES = 4
_SLACK_BYTES = 4 << 10
"""Room for the heads of frames, short metadata, and the line that says how much was cut."""


class Stream:
    """A connected socket: calls `on_data` with what arrives, `on_end` once if the peer closes it.

    asyncio's transports can't send file descriptors, and take longer to set up than a worker takes
    to answer. So this uses `add_reader` and `add_writer` of the event loop; see `_pumped` for those
    that have none.
    """

    def __init__(
        self,
        connection: socket.socket,
        on_data: Callable[[bytes], None],
        on_end: Callable[[], None],
    ) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._fd = connection.fileno()  # asyncio formats other arguments, which is slow.
        self._on_data = on_data
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[tuple[memoryview, Sequence[int]]] = deque()
        self._unsent_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_open = True
        self._is_reading = False

    @property
    def can_send_fds(self) -> bool:
        """Whether file descriptors can be sent."""
        return self._socket.family == getattr(socket, "AF_UNIX", None)

    @property
    def is_full(self) -> bool:
        """Whether many bytes are waiting to be sent."""
        return not self._has_room.is_set()

    async def until_room(self) -> None:
        """Wait until everything has been sent, or the stream is closed."""
        await self._has_room.wait()

    def read(self, on: bool) -> None:
        """Start or stop reading."""
        if on == self._is_reading or not self._is_open:
            return
        self._is_reading = on
        self._watch_input(on)

    def look(self) -> None:
        """Read what has already arrived, without waiting for the event loop."""
        if self._is_reading:
            self._read_once()

    def write(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """Send bytes now or as soon as possible; descriptors go with the first byte.

        Descriptors must stay open until then. Bytes for a closed stream are dropped.
        """
        if not self._is_open:
            return
        left = memoryview(data)
        if not self._unsent:
            sent = self._send(left, fds)
            if sent == len(data):
                return
            left, fds = left[sent:], () if sent else fds
            self._watch_output(True)
        self._unsent.append((left, fds))
        self._unsent_bytes += len(left)
        if self._unsent_bytes > _MAX_UNSENT_BYTES:
            self._has_room.clear()

    def close(self) -> None:
        """Close the socket; `on_end` is not called."""
        if not self._is_open:
            return
        self.read(False)
        self._is_open = False
        if self._unsent:
            self._all_sent()
        self._socket.close()

    def _watch_input(self, on: bool) -> None:
        if on:
            self._loop.add_reader(self._fd, self._read_once)
        else:
            self._loop.remove_reader(self._fd)

    def _watch_output(self, on: bool) -> None:
        if on:
            self._loop.add_writer(self._fd, self._send_more)
        else:
            self._loop.remove_writer(self._fd)

    def _read_once(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._on_data(data)
        else:
            self.close()
            self._on_end()

    def _send(self, data: memoryview, fds: Sequence[int]) -> int:
        """Send what fits now and return its size; everything counts as sent if the peer is gone."""
        try:
            if fds:
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
                return self._socket.sendmsg([data], [rights])
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except ConnectionError:
            return len(data)  # Data that arrived before can still be read.

    def _send_more(self) -> None:
        while self._unsent:
            data, fds = self._unsent[0]
            try:
                sent = self._send(data, fds)
            except OSError:  # Descriptors could not be sent: the frame is lost.
                self.close()
                self._on_end()
                return
            self._unsent_bytes -= sent
            if sent < len(data):
                self._unsent[0] = (data[sent:], () if sent else fds)
                return
            self._unsent.popleft()
        self._all_sent()

    def _all_sent(self) -> None:
        """Stop sending: nothing is left, or nothing can be sent."""
        self._watch_output(False)
        self._forget_unsent()

    def _forget_unsent(self) -> None:
        self._unsent.clear()
        self._unsent_bytes = 0
        self._has_room.set()


class SessionBounds:
    """The limits on the frames of one session and on the texts in them.

    `kept_output_chars` and `max_submission_chars` are options of the session.
    """

    def __init__(
        self,
        kept_output_chars: int = 1_000_000,
        max_submission_chars: int = bounds.MAX_ANSWER_CHARS,
    ) -> None:
        self.kept_chars = kept_output_chars
        self.answer_chars = max_submission_chars
        kept_bytes = _MAX_CHAR_BYTES * kept_output_chars + _SLACK_BYTES
        answer_bytes = _MAX_CHAR_BYTES * max_submission_chars + _SLACK_BYTES
        done_bytes = bounds.MAX_META_BYTES + bounds.MAX_VARIABLES_BYTES + _SLACK_BYTES
        done_bytes = min(wire.MAX_TO_HOST_BYTES, done_bytes + 2 * kept_bytes + 4 * answer_bytes)
        value_bytes = {
            wire.FETCH: min(wire.MAX_TO_HOST_BYTES, answer_bytes),
            wire.LIST_FILES: bounds.MAX_FILES_BYTES + _SLACK_BYTES,
            wire.READ_FILE: bounds.MAX_PIECE_BYTES + _SLACK_BYTES,
        }
        self._usual = self._after(_SMALL_FRAME)
        self._by_request = {kind: self._after((size, 2)) for kind, size in value_bytes.items()}
        self._by_request[wire.EXEC] = {**self._usual, wire.DONE: (done_bytes, _MAX_DONE_PARTS)}

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "SessionBounds":
        """Return the limits of a session with these options."""
        names = ("kept_output_chars", "max_submission_chars")
        return cls(**{name: options[name] for name in names if name in options})

    def after(self, request: int) -> dict[int, tuple[int, int]]:
        """Return the limits on bytes and parts, by type of frame, during a request of this kind."""
        return self._by_request.get(request, self._usual)

    @staticmethod
    def _after(value: tuple[int, int]) -> dict[int, tuple[int, int]]:
        return {
            wire.READY: _SMALL_FRAME,
            wire.DONE: _SMALL_FRAME,
            wire.CALL: _CALL_FRAME,
            wire.VALUE: value,
        }


class Done(Struct, frozen=True):
    """The end of a cell."""

    result: CellResult
    deleted_variables: list[str]


_Shape = TypeVar("_Shape")
_Text = Literal["submission", "answer_content", "submission_json"]


class _DoneMeta(Struct, forbid_unknown_fields=True):
    error: CellError | None
    how: Literal["FINAL", "FINAL_VAR", "SUBMIT", "submit_answer", "answer", "kept answer"] | None
    texts: list[_Text]


_EMPTY_DONE_META = _DoneMeta(None, None, [])
_MAX_DONE_PARTS = 8
_MAX_VARIABLE_WORDS = 4 * bounds.MAX_CHANGED_VARIABLES + bounds.MAX_DELETED_VARIABLES
_META = JsonBounds(bounds.MAX_META_BYTES, 1_000)
_FILES = JsonBounds(bounds.MAX_FILES_BYTES, 4 * bounds.MAX_FILES)
_DONE = json.Decoder(_DoneMeta)
_VALUE = json.Decoder(dict[str, str])


def read_done(
    frame: wire.Frame, *, calls: int, seconds: float, within: SessionBounds | None = None
) -> Done:
    """Check a DONE frame; `calls` and `seconds` were measured by the host."""
    within = within or _USUAL_BOUNDS
    parts = frame.parts
    if not 5 <= len(parts) <= _MAX_DONE_PARTS or len(parts[0]) != wire.DONE_COUNTS.size:
        raise ProtocolViolation("the end of a cell came with wrong parts")
    stdout_chars, stderr_chars, new, changed, interrupted = wire.DONE_COUNTS.unpack(parts[0])
    meta = _small_metadata(frame, 1, _DONE) if parts[1] else _EMPTY_DONE_META
    words = _variable_words(parts[4], new, changed)
    texts = dict(zip(meta.texts, _decode_texts(parts[5:], within), strict=False))
    if not len(texts) == len(meta.texts) == len(parts) - 5:
        raise ProtocolViolation("the end of a cell came with the wrong number of parts")
    submission = None
    if meta.how is not None and "submission" in texts:
        submission = Submission(texts["submission"], meta.how, texts.get("submission_json"))
    result = CellResult(
        stdout=_output(parts[2], within.kept_chars),
        stderr=_output(parts[3], within.kept_chars),
        stdout_chars=stdout_chars,
        stderr_chars=stderr_chars,
        error=meta.error,
        new_variables=_pairs(words, 0, new),
        changed_variables=_pairs(words, new, changed),
        submission=submission,
        answer_content=texts.get("answer_content"),
        interrupted=interrupted,
        calls=calls,
        seconds=seconds,
    )
    deleted = words[2 * (new + changed) :]
    return Done(bounded(result, within.kept_chars, within.answer_chars), deleted)


def _variable_words(part: bytes, new: int, changed: int) -> list[str]:
    """Split names and descriptions, once their number has been checked."""
    if not part:
        words = []
    elif len(part) > bounds.MAX_VARIABLES_BYTES or part.count(b"\0") >= _MAX_VARIABLE_WORDS:
        raise ProtocolViolation("the end of a cell names more variables than are reported")
    else:
        words = _lenient(part).split("\0")
    if max(new, changed) > bounds.MAX_CHANGED_VARIABLES or 2 * (new + changed) > len(words):
        raise ProtocolViolation("the end of a cell counts more variables than it names")
    return words


def _decode_texts(parts: list[bytes], within: SessionBounds) -> list[str]:
    """Decode a submitted text; cut it first if it is too long."""
    max_bytes = 2 * _MAX_CHAR_BYTES * within.answer_chars + _SLACK_BYTES
    return [
        _lenient(part) if len(part) <= max_bytes else str(part[:max_bytes], "utf-8", "replace")
        for part in parts
    ]


def _output(part: bytes, kept_chars: int) -> str:
    """Decode output; if it is very long, decode only its beginning and end."""
    if not part:
        return ""
    room = _MAX_CHAR_BYTES * kept_chars + _SLACK_BYTES
    if len(part) > room:
        half = room // 2
        return str(part[:half], "utf-8", "replace") + str(part[-half:], "utf-8", "replace")
    return _lenient(part)


def _lenient(part: bytes) -> str:
    """Decode text; lone surrogates are replaced if there are very many."""
    try:
        return read_parts([part])[0]
    except TooLarge:
        return str(part, "utf-8", "replace")


def _pairs(words: list[str], start: int, count: int) -> dict[str, str]:
    """Return the pairs of name and description from index `start` on."""
    if not count:
        return {}
    words = words[2 * start : 2 * (start + count)]
    return dict(zip(words[::2], words[1::2], strict=True))


def read_value(
    frame: wire.Frame, within: SessionBounds | None = None
) -> tuple[str | None, str | None]:
    """Check a VALUE frame and return its text and its error."""
    within = within or _USUAL_BOUNDS
    meta = _small_metadata(frame, 0, _VALUE)
    if len(frame.parts) > 2:
        raise ProtocolViolation("a value came with too many parts")
    error = meta.get("error")
    text = _decode_texts(frame.parts[1:], within)[0] if len(frame.parts) == 2 else None
    return (
        None if text is None else text[: within.answer_chars],
        None if error is None else error[: bounds.MAX_MESSAGE_CHARS],
    )


def read_files(frame: wire.Frame) -> list[tuple[str, int]]:
    """Check the answer to LIST_FILES: names and sizes, which may be false."""
    try:
        listed = msgspec.convert(read_json(frame.part(1), _FILES), list[tuple[str, int]])
    except (ValueError, msgspec.ValidationError) as error:
        raise ProtocolViolation(f"the worker sent a malformed list of files: {error}") from None
    if len(listed) > bounds.MAX_FILES:
        raise ProtocolViolation(f"the worker listed {len(listed):,} files")
    return listed


def read_piece(frame: wire.Frame) -> bytes:
    """Check the answer to READ_FILE."""
    if len(frame.parts) != 2 or len(frame.parts[1]) > bounds.MAX_PIECE_BYTES:
        raise ProtocolViolation("a piece of a file came in a wrong form")
    return frame.parts[1]


def read_parts(parts: list[bytes]) -> list[str]:
    """Decode the texts of parts that arrived together."""
    try:
        return read_texts(parts)
    except UnicodeDecodeError as error:
        reason = f"text is not UTF-8: {error.reason}"
        raise ProtocolViolation(f"the worker sent a malformed frame: {reason}") from None


def _small_metadata(frame: wire.Frame, index: int, decoder: json.Decoder[_Shape]) -> _Shape:
    """Check the size of an answer; an answer that is too large violates the protocol."""
    try:
        return read_metadata(frame, index, decoder)
    except TooLarge as error:
        raise ProtocolViolation(f"the worker sent metadata that is too large: {error}") from None


def read_metadata(
    frame: wire.Frame, index: int, decoder: json.Decoder[_Shape], allowed: JsonBounds = _META
) -> _Shape:
    """Decode a JSON part of a known shape; raise TooLarge if it exceeds `allowed`."""
    try:
        part = frame.part(index)
        check_json(part, allowed)
        return decode_with(decoder, part)
    except TooLarge:
        raise
    except (wire.WireError, msgspec.MsgspecError, UnicodeError, RecursionError):
        pass  # It may still be valid: Python's json accepts NaN and lone surrogates.
    try:
        return msgspec.convert(read_json(frame.part(index), allowed), decoder.type)
    except TooLarge:
        raise
    except (ValueError, msgspec.ValidationError, RecursionError) as error:
        raise ProtocolViolation(f"the worker sent malformed metadata: {error}") from None


_USUAL_BOUNDS = SessionBounds()
