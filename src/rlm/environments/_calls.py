"""Calls from a worker's cells: each is checked, then answered in its own task, in any order."""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal

from msgspec import Struct, json

from rlm._util.own_exits import is_failure, named
from rlm._util.slow_numbers import ON_LOOP, has_many
from rlm._util.untrusted import JsonBounds, TooLarge, read_json
from rlm.environments._clock import WAITS_FOR, CellClock
from rlm.environments._frames import Stream, read_metadata, read_parts
from rlm.errors import CallRefused, ProtocolViolation
from rlm.protocols import Host
from rlm.worker import bounds, wire
from rlm.worker.images import MAX_CALL_BYTES, MAX_IMAGE_BYTES, MAX_IMAGES, media_type_of

__all__ = ["FAILED_CALL_SECONDS", "OFF_LOOP_BYTES", "Call", "PendingCalls", "read_call"]

OFF_LOOP_BYTES = 256 << 10
"""Longer frames are decoded and encoded in a thread."""
_QUICK_BYTES = 4 << 10
"""Shorter arguments are decoded on the event loop, whatever numbers they hold."""
FAILED_CALL_SECONDS = 0.01
"""How much of a cell's time a failed call costs, so that a loop of failing calls ends soon."""
_MAX_PENDING_CALLS = 4_096
_MAX_PENDING_BYTES = 64 << 20
_MAX_HELD_BYTES = 16 << 20
_ANSWER_BYTES = 64
"""What an answer that waits takes besides its frame."""
_REASON_BYTES = 128
"""About how long the reason is why one call of a batch failed."""
_SENT_AT_ONCE_BYTES = 64 << 10

_EMPTY_META: tuple[dict[str, Any], ...] = ({}, {"failed": {}})


class Call(Struct, frozen=True):
    """A call from a cell. `prompts` is the number of model calls in it.

    `parts` are its texts. Pictures are in the arguments: `images` holds, for each prompt, a list
    of bytes and names. Without pictures, the key is missing.
    """

    kind: str
    arguments: dict[str, Any]
    parts: list[str]
    prompts: int


class _LlmArguments(Struct, forbid_unknown_fields=True):
    model: str | None
    batched: bool
    images: list[list[int | str]] | None = None  # A number is the index of a part after the texts.
    max_tokens: int | None = None
    schema: Any = None


class _OperatorArguments(Struct, forbid_unknown_fields=True):
    name: str
    options: dict[str, Any]
    model: str | None
    left: int | None = None  # How many of the texts are the left items of pairs.
    absent: tuple[int, ...] = ()  # The positions of the items that are None.


class _ContextKind(Struct, forbid_unknown_fields=True):
    kind: Literal["text", "json", "source"]


class _RlmArguments(Struct, forbid_unknown_fields=True):
    model: str | None
    batched: bool
    contexts: list[_ContextKind | None]
    tools: list[str] | None = None


class _CiteArguments(Struct, forbid_unknown_fields=True):
    start: int | None
    end: int | None
    name: str | int | None


class _NoArguments(Struct, forbid_unknown_fields=True):
    pass


_ARGUMENTS = {
    kind: JsonBounds(each.arguments_bytes, bounds.MAX_TOOL_VALUES)
    for kind, each in bounds.CALLS.items()
}
_DATA = JsonBounds(
    bounds.CALLS[b"tool"].arguments_bytes,
    bounds.MAX_TOOL_VALUES,
    exponents=bounds.MAX_TOOL_VALUES,
)
"""Arguments of tools and queries are often data, with numbers of every kind."""
_ROWS = JsonBounds(bounds.CALLS[b"llm"].arguments_bytes, 4 * wire.MAX_PARTS)
"""A batch has a list of pictures, or an object that describes the context, for every prompt."""
_LLM = json.Decoder(_LlmArguments)
_RLM = json.Decoder(_RlmArguments)
_OPERATOR = json.Decoder(_OperatorArguments)
_CITE = json.Decoder(_CiteArguments)
_NOTHING = json.Decoder(_NoArguments)


def read_call(frame: wire.Frame) -> Call:
    """Check a CALL frame; raise CallRefused, which the cell sees, if it is too large."""
    kind = frame.parts[0] if frame.parts else b""
    read = _CALL_READERS.get(kind)
    if read is None:
        raise ProtocolViolation(f"the worker made an unknown kind of call: {kind[:40]!r}")
    call = None
    if len(frame.parts) - 2 <= bounds.CALLS[kind].texts:
        if (problem := bounds.call_problem(frame.parts)) is not None:
            raise _refusal(problem)
        try:
            call = read(frame)
        except TooLarge as error:
            raise _refusal(f"a call of kind {kind.decode()!r} is too large: {error}") from None
    if call is None:
        raise ProtocolViolation(f"a call of kind {kind!r} came with {len(frame.parts) - 2} parts")
    return call


def _refusal(problem: str) -> CallRefused:
    return CallRefused(problem, limit="size")


def _read_llm(frame: wire.Frame) -> Call | None:
    given = read_metadata(frame, 1, _LLM, _ROWS)
    _check_model(given.model)
    arguments: dict[str, Any] = {"model": given.model, "batched": given.batched}
    if given.max_tokens is not None:
        arguments["max_tokens"] = given.max_tokens
    if given.schema is not None:
        arguments["schema"] = given.schema
    if given.images is None:
        parts = read_parts(frame.parts[2:])
    else:
        parts, arguments["images"] = _with_images(frame, given.images)
    if not parts or not (len(parts) == 1 or given.batched):
        return None
    return Call("llm", arguments, parts, len(parts))


def _with_images(
    frame: wire.Frame, given: list[list[int | str]]
) -> tuple[list[str], list[list[bytes | str]]]:
    """Return the prompts and the pictures of each; the last parts of the frame are pictures."""
    numbers = {each for row in given for each in row if not isinstance(each, str)}
    end = len(frame.parts) - len(numbers)
    if end != 2 + len(given) or numbers != set(range(len(numbers))):
        raise ProtocolViolation("a call came with a different number of pictures than it announced")
    sent = frame.parts[end:]
    if any(len(row) > MAX_IMAGES for row in given) or sum(map(len, sent)) > MAX_CALL_BYTES:
        raise ProtocolViolation("a call came with too many pictures")
    if any(len(part) > MAX_IMAGE_BYTES or media_type_of(part) is None for part in sent):
        raise ProtocolViolation("a call came with a picture that is too large or is not a picture")
    prompts = read_parts(frame.parts[2:end])
    return prompts, [[e if isinstance(e, str) else sent[e] for e in row] for row in given]


def _read_rlm(frame: wire.Frame) -> Call | None:
    given, parts = read_metadata(frame, 1, _RLM, _ROWS), read_parts(frame.parts[2:])
    _check_model(given.model)
    prompts = len(given.contexts)
    contexts = [context and {"kind": context.kind} for context in given.contexts]
    expected = max(1, prompts) + sum(context is not None for context in contexts)
    if len(parts) != expected or not (prompts <= 1 or given.batched):
        return None
    arguments: dict[str, Any] = {"model": given.model, "batched": given.batched}
    arguments["contexts"] = contexts
    if given.tools is not None:
        arguments["tools"] = given.tools
    return Call("rlm", arguments, parts, prompts)


def _read_operator(frame: wire.Frame) -> Call | None:
    given = read_metadata(frame, 1, _OPERATOR, _ARGUMENTS[b"operator"])
    parts = read_parts(frame.parts[2:])
    _check_model(given.model)
    if len(given.name) > bounds.MAX_NAME_CHARS:
        raise TooLarge(f"an operator's name can have at most {bounds.MAX_NAME_CHARS} characters")
    arguments: dict[str, Any] = {
        "name": given.name,
        "options": given.options,
        "model": given.model,
        "left": given.left,
        "absent": given.absent,
    }
    return Call("operator", arguments, parts, 1)


def _check_model(model: str | None) -> None:
    if model is not None and len(model) > bounds.MAX_MODEL_CHARS:
        raise TooLarge(f"a model's name can have at most {bounds.MAX_MODEL_CHARS} characters")


def _read_tool(frame: wire.Frame) -> Call | None:
    """Check a tool call: a name, and arguments that may be any JSON."""
    try:
        given = read_json(frame.part(1), _DATA)
    except TooLarge:
        raise
    except ValueError as error:
        raise ProtocolViolation(f"the worker sent malformed metadata: {error}") from None
    if not isinstance(given, dict) or given.keys() != {"name", "arguments"}:
        raise ProtocolViolation("the worker called a tool in an unknown form")
    name, arguments = given["name"], given["arguments"]
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise ProtocolViolation("the worker called a tool in an unknown form")
    if len(name) > bounds.MAX_MODEL_CHARS:
        raise TooLarge(f"a tool's name can have at most {bounds.MAX_MODEL_CHARS} characters")
    return Call("tool", {"name": name, "arguments": arguments}, [], 0)


def _read_data(frame: wire.Frame) -> Call | None:
    """Check a request for data that is on the host: its source, a method, and arguments by name."""
    try:
        given = read_json(frame.part(1), _DATA)
    except TooLarge:
        raise
    except ValueError as error:
        raise ProtocolViolation(f"the worker sent malformed metadata: {error}") from None
    if not isinstance(given, dict) or given.keys() != {"source", "method", "arguments"}:
        raise ProtocolViolation("the worker asked for data in an unknown form")
    names, arguments = (given["source"], given["method"]), given["arguments"]
    if not all(isinstance(name, str) for name in names) or not isinstance(arguments, dict):
        raise ProtocolViolation("the worker asked for data in an unknown form")
    if any(len(name) > bounds.MAX_NAME_CHARS for name in names):
        raise TooLarge(f"a name can have at most {bounds.MAX_NAME_CHARS} characters")
    return Call("data", given, [], 0)


def _read_cite(frame: wire.Frame) -> Call | None:
    """Check a citation: two offsets or one quote, and the name of a text."""
    given, parts = read_metadata(frame, 1, _CITE), read_parts(frame.parts[2:])
    offsets = [each for each in (given.start, given.end) if each is not None]
    if len(offsets) != (0 if parts else 2):
        return None
    arguments = {"start": given.start, "end": given.end, "name": given.name}
    return Call("cite", arguments, parts, 0)


def _read_budget(frame: wire.Frame) -> Call | None:
    read_metadata(frame, 1, _NOTHING)
    return Call("budget", {}, [], 0)


def _read_message(frame: wire.Frame) -> Call | None:
    """Check a message from a cell: a key and a text."""
    read_metadata(frame, 1, _NOTHING)
    kind, parts = frame.text(0), read_parts(frame.parts[2:])
    return Call(kind, {}, parts, 0) if len(parts) == 2 else None


_CALL_READERS: dict[bytes, Callable[[wire.Frame], Call | None]] = {
    b"llm": _read_llm,
    b"rlm": _read_rlm,
    b"operator": _read_operator,
    b"tool": _read_tool,
    b"data": _read_data,
    b"stream": _read_message,
    b"note": _read_message,
    b"cite": _read_cite,
    b"budget": _read_budget,
}


class PendingCalls:
    """The calls of one worker that have not been answered yet.

    `pace` is called when `is_full` may have changed, `fail` when the worker breaks the protocol.
    `prompts` counts the model calls of a cell.
    """

    def __init__(
        self,
        host: Host,
        stream: Stream,
        clock: CellClock,
        pace: Callable[[], None],
        fail: Callable[[ProtocolViolation], None],
    ) -> None:
        self._host = host
        self._stream = stream
        self._clock = clock
        self._pace = pace
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[int, asyncio.Task[None] | None] = {}  # None while a call is starting
        self._is_cancelled = False
        self._held: deque[bytes] = deque()  # Answers that wait until others have been read.
        self._held_bytes = self._pending_bytes = 0
        self._sending: asyncio.Task[None] | None = None
        self.prompts = 0

    @property
    def is_full(self) -> bool:
        """Whether too many bytes wait, either to be answered or to be read by the worker."""
        return self._held_bytes > _MAX_HELD_BYTES or self._pending_bytes > _MAX_PENDING_BYTES

    def start(self, frame: wire.Frame) -> None:
        """Answer a call in its own task."""
        call = _call_or_refusal(frame) if _is_quick(frame) else None
        if frame.id in self._tasks:
            raise ProtocolViolation("the worker used the same call id twice")
        if len(self._tasks) >= _MAX_PENDING_CALLS:
            raise ProtocolViolation(f"more than {_MAX_PENDING_CALLS:,} calls at the same time")
        if isinstance(call, Call):
            self._begin(frame.id, call)
        self._tasks[frame.id] = None
        self._pending_bytes += frame.size_bytes
        if self._pending_bytes > _MAX_PENDING_BYTES:
            self._pace()
        task = _start_task(self._loop, self._answer(frame, call))
        if frame.id in self._tasks:  # Otherwise it is answered, or the answer waits to be read.
            self._tasks[frame.id] = task
            if self._is_cancelled:
                task.cancel()

    def cancel(self) -> None:
        """Cancel every call that has not been answered."""
        self._is_cancelled = True
        for task in self._tasks.values():
            if task is not None:
                task.cancel()

    async def wait(self, timeout_seconds: float) -> None:
        """Wait until every call has ended, or until the timeout."""
        tasks = [task for task in self._tasks.values() if task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_seconds)

    def _begin(self, call_id: int, call: Call) -> None:
        """Count the prompts of a call; some kinds of calls stop the cell's clock."""
        self.prompts += call.prompts
        if call.kind in WAITS_FOR:
            self._clock.begin_wait(call_id)

    async def _answer(self, frame: wire.Frame, call: Call | CallRefused | None) -> None:
        try:
            if call is None:
                call = await asyncio.to_thread(_call_or_refusal, frame)
                if isinstance(call, Call):
                    self._begin(frame.id, call)
            frame.parts.clear()
            data, failed = await self._answer_frame(frame.id, call)
            if failed:
                self._clock.charge(FAILED_CALL_SECONDS)
        except ProtocolViolation as error:
            if not self._is_cancelled:
                self._fail(error)
            return
        finally:
            del self._tasks[frame.id]
            was_full = self._pending_bytes > _MAX_PENDING_BYTES
            self._pending_bytes -= frame.size_bytes
            self._clock.end_wait(frame.id)
            if was_full:
                self._pace()
        self._send(data)

    def _send(self, answer: bytes) -> None:
        """Send an answer, after the worker has read the others."""
        if not (self._held or self._stream.is_full):
            self._stream.write(answer)
            return
        self._held.append(answer)
        self._held_bytes += len(answer) + _ANSWER_BYTES
        if self._sending is None:
            self._sending = self._loop.create_task(self._send_held())
        if self.is_full:
            self._pace()

    async def _send_held(self) -> None:
        """Send the held answers as the worker reads: one task, as they may be very many."""
        while self._held:
            await self._stream.until_room()
            answers, size = [], 0
            while self._held and size < _SENT_AT_ONCE_BYTES:
                answers.append(self._held.popleft())
                size += len(answers[-1])
            self._held_bytes -= size + len(answers) * _ANSWER_BYTES
            self._stream.write(b"".join(answers))
            self._pace()
            await asyncio.sleep(0)
        self._sending = None

    async def _answer_frame(self, call_id: int, call: Call | CallRefused) -> tuple[bytes, bool]:
        """Return the answer to send, and whether every part of the call failed."""
        task = asyncio.current_task()
        try:
            if isinstance(call, CallRefused):
                raise call
            meta, texts = await self._host.answer(call.kind, call.arguments, call.parts)
            failed = 0 < len(texts) == len(meta.get("failed", ()))
            size = sum(map(len, texts)) + len(meta.get("json", ""))
            if size + _REASON_BYTES * len(meta.get("failed", ())) > OFF_LOOP_BYTES:
                return await asyncio.to_thread(_encode_answer, call_id, meta, texts), failed
            return _encode_answer(call_id, meta, texts), failed
        except BaseException as error:  # the boundary to the host: a cell waits for an answer
            if not is_failure(error, task, (BaseException,)):
                raise
            message = str(error) if isinstance(error, Exception) else named(error)
            meta = {"type": type(error).__name__, "message": message}
            return wire.encode(wire.ANSWER_ERROR, call_id, [wire.to_json(meta)]), True


def _encode_answer(call_id: int, meta: dict[str, Any], texts: Sequence[str]) -> bytes:
    """Return the frame of an answer; after most model calls the metadata is an empty part."""
    first = b"" if meta in _EMPTY_META else wire.to_json(meta)
    return wire.encode(wire.ANSWER, call_id, [first, *[wire.to_bytes(text) for text in texts]])


def _start_task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]
) -> "asyncio.Task[None]":
    """Start a task, eagerly where Python supports that: most answers are then ready at once."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=loop, eager_start=True)
    return asyncio.Task(work, loop=loop)  # `create_task` takes longer.


def _is_quick(frame: wire.Frame) -> bool:
    """Whether a call is decoded in a few milliseconds, so that no thread is needed."""
    if frame.size_bytes > OFF_LOOP_BYTES or len(frame.parts) < 2:
        return frame.size_bytes <= OFF_LOOP_BYTES
    arguments = frame.parts[1]
    return len(arguments) <= _QUICK_BYTES or not has_many(arguments, ON_LOOP)


def _call_or_refusal(frame: wire.Frame) -> Call | CallRefused:
    """Return the call, or the refusal that the cell will see."""
    try:
        return read_call(frame)
    except CallRefused as error:
        return error
