"""Lines of JSON on standard input and output, checked before the SDK sees them.

The SDK reads lines of any length, stops at a message that is no object, and lets `_meta` replace
the parameters of a method. Here, such messages are answered with an error or changed.
"""

import asyncio
import contextlib
import json
import logging
import os
import queue
import re
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from acp import RequestError
from acp.agent.connection import AgentSideConnection

from recursivelm_acp.agent import EditorAgent

if TYPE_CHECKING:
    from acp.interfaces import Agent

__all__ = ["MAX_LINE_BYTES", "StdioTransport", "read_message", "run", "serve"]

MAX_LINE_BYTES = 16 << 20
MAX_ERROR_CHARS = 2_000
ENDING_SECONDS = 10.0

_log = logging.getLogger("rlm.acp")


def read_message(line: bytes | str) -> dict[str, Any]:
    """Decode a line; RequestError if it is no message of JSON-RPC 2.0."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RequestError(-32700, f"a message must be one line of JSON: {error}"[:300]) from None
    if not isinstance(message, dict):
        raise RequestError(-32600, "a message must be one JSON object; batches are not supported")
    _check_id(message)
    if "method" in message:
        _check_call(message)
    elif not isinstance(message.get("id"), int):
        raise RequestError(-32600, "a message must have a `method` or be a response to a request")
    elif not _is_sound(message.get("error")) or (message.get("error") and "result" in message):
        # The caller that waits for this response must learn of it.
        message["error"] = {"code": -32603, "message": "the client's response is malformed"}
        message.pop("result", None)
    return message


def _check_id(message: dict[str, Any]) -> None:
    found = message.get("id")
    if found is not None and (isinstance(found, bool) or not isinstance(found, int | str)):
        raise RequestError(-32600, "the `id` of a message must be a string or an integer")


def _check_call(message: dict[str, Any]) -> None:
    if not isinstance(message["method"], str):
        raise RequestError(-32600, "the `method` of a message must be a string")
    params = message.get("params")
    if params is None:
        message["params"] = {}
    elif not isinstance(params, dict):
        raise RequestError(-32602, "the `params` of a message must be an object")
    else:
        # The SDK passes these on as arguments, and would replace others of the same name.
        message["params"] = {
            name: value for name, value in params.items() if name not in ("_meta", "field_meta")
        }


def _is_sound(error: Any) -> bool:
    """Return whether a response has no error, or one with the fields of JSON-RPC."""
    if error is None:
        return True
    fields = (error.get("code"), error.get("message")) if isinstance(error, dict) else ()
    return tuple(map(type, fields)) == (int, str)


def _answerable_id(line: bytes) -> Any:
    """Return the id of a message that is refused, if one can be found."""
    with contextlib.suppress(ValueError, RecursionError):
        message = json.loads(line)
        found = message.get("id") if isinstance(message, dict) else None
        if isinstance(found, int | str) and not isinstance(found, bool):
            return found
    return None


_FIRST_ID = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18}|"[ -!#-\[\]-~]{1,100}")\s*,'
)


def _first_id(line: bytes) -> Any:
    """Return the id of a message that is too long, if it comes first, where clients write it."""
    found = _FIRST_ID.match(line)
    return json.loads(found[1]) if found else None


class _Waiting(NamedTuple):
    data: bytes
    done: asyncio.Future[None]


class StdioTransport:
    """Messages over two descriptors, with a daemon thread for each.

    So neither a client that sends nothing nor one that reads nothing keeps the process alive.
    """

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=16)
        self._waiting: queue.Queue[_Waiting | None] = queue.Queue()
        for work in (self._read, self._write):
            threading.Thread(target=work, name=f"rlm-acp{work.__name__}", daemon=True).start()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next sound message, None at the end; others are answered here."""
        while (line := await self._lines.get()) is not None:
            if not line.strip():
                continue
            try:
                if len(line) > MAX_LINE_BYTES:
                    raise RequestError(
                        -32600,
                        f"a message can have at most {MAX_LINE_BYTES:,} bytes; put large texts "
                        "into files in the folder, and link to them",
                    )
                return read_message(line)
            except RequestError as error:
                _log.warning("a message was refused: %s", error)
                known = _answerable_id(line) if len(line) <= MAX_LINE_BYTES else _first_id(line)
                await self.send({"jsonrpc": "2.0", "id": known, "error": error.to_error_obj()})
        return None

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message, and wait until the client's pipe has taken it."""
        if (error := message.get("error")) is not None and "data" in error:
            # The SDK repeats what was wrong, which may be all of a large message.
            message = {**message, "error": {**error, "data": _shortened(error["data"])}}
        data = _encoded(message)
        done = self._loop.create_future()
        self._waiting.put(_Waiting(data, done))
        await done

    async def close(self) -> None:
        self._waiting.put(None)

    def _read(self) -> None:
        with os.fdopen(self._reading, "rb") as file:
            while line := file.readline(MAX_LINE_BYTES + 1):
                rest = line
                while len(line) > MAX_LINE_BYTES and rest and not rest.endswith(b"\n"):
                    rest = file.readline(MAX_LINE_BYTES)
                if not self._hand_over(line):
                    return
        self._hand_over(None)

    def _hand_over(self, line: bytes | None) -> bool:
        """Pass a line to the event loop; return whether it is still running."""
        putting = self._lines.put(line)
        try:
            asyncio.run_coroutine_threadsafe(putting, self._loop).result()
        except (RuntimeError, asyncio.CancelledError):  # the loop has ended
            putting.close()
            return False
        return True

    def _write(self) -> None:
        problem: OSError | None = None
        while (waiting := self._waiting.get()) is not None:
            try:
                left = memoryview(waiting.data)
                while left and problem is None:
                    left = left[os.write(self._writing, left) :]
            except OSError as error:  # The client is gone.
                problem = error
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(_settle, waiting.done, problem)


def _encoded(message: Any) -> bytes:
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _shortened(data: Any) -> Any:
    """Return what an error says in addition, if it is short, and JSON can represent it."""
    try:
        text = _encoded(data).decode()
    except (RecursionError, ValueError):
        return {"details": "it is nested too deeply, or contains numbers that JSON does not allow"}
    return data if len(text) <= MAX_ERROR_CHARS else {"details": f"{text[:MAX_ERROR_CHARS]} …"}


def _settle(done: asyncio.Future[None], problem: OSError | None) -> None:
    if done.done():
        return
    if problem is None:
        done.set_result(None)
    else:
        done.set_exception(ConnectionError(str(problem)))


async def serve(agent: EditorAgent, transport: StdioTransport) -> None:
    """Serve until the client closes its end; then end what runs, and save nothing half done."""
    # The SDK answers for methods that the agent leaves out: there is no such method.
    implemented = cast("Agent", agent)
    connection = AgentSideConnection(
        implemented, transport, listening=False, use_unstable_protocol=True
    )
    try:
        await connection.listen()
    finally:
        await agent.aclose()
        await connection.close()


def run(agent: EditorAgent, transport: Callable[[], StdioTransport]) -> None:
    """Serve on an event loop of its own, until the end of input, SIGTERM or Ctrl-C."""

    async def until_signal() -> None:
        serving = asyncio.ensure_future(serve(agent, transport()))
        loop = asyncio.get_running_loop()

        def end() -> None:
            serving.cancel()
            loop.call_later(ENDING_SECONDS, os._exit, 0)

        for each in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError):  # Windows
                loop.add_signal_handler(each, end)
        with contextlib.suppress(asyncio.CancelledError):
            await serving

    asyncio.run(until_signal())
