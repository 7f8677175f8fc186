"""A JSON-lines server for programs in other languages: `python -m elizaos_plugin_rlm.server`.

A request is a line of JSON on stdin, `{"id": …, "method": "infer"|"status"|"shutdown", "params":
{…}}`; its answer is a line on stdout, `{"id": …, "result": …}` or `{"id": …, "error": "…"}`.
Requests run concurrently and are answered as they finish; the id identifies them.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from io import FileIO, RawIOBase
from typing import Any

from elizaos_plugin_rlm.client import RLMClient
from elizaos_plugin_rlm.config import RLMConfig
from elizaos_plugin_rlm.engines import error_line, in_thread, known_secrets
from elizaos_plugin_rlm.lines import LineReader, LineWriter, TooLong

__all__ = ["RLMServer", "main"]

PROTOCOL = 1
MAX_LINE_BYTES = 1024**3
LONG_LINE_BYTES = 256 * 1024
MAX_CONCURRENT = 32
"""Requests that run at the same time; further ones wait."""

MAX_WAITING = 1_024
"""Unanswered requests; no more are read until some are answered."""

METHODS = ("infer", "status", "shutdown")


class RequestProblem(ValueError):
    """A line is not a valid request; the text says why."""


class RLMServer:
    """Answers lines of requests with lines of results, without the pipes."""

    def __init__(self, client: RLMClient, write: Callable[[bytes], None]) -> None:
        self._client = client
        self._write = write
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._room = asyncio.Semaphore(MAX_WAITING)
        self.is_shut_down = asyncio.Event()

    async def take(self, line: bytes | TooLong) -> None:
        """Start to answer a line; wait only if too many are waiting already."""
        if isinstance(line, bytes) and not line.strip():
            return
        await self._room.acquire()
        task = asyncio.create_task(self._answer(line))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def finish(self) -> None:
        """Wait for all requests."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def cancel_all(self) -> None:
        """Cancel all requests; each gets an error as its answer."""
        for task in tuple(self._tasks):
            task.cancel()
        await self.finish()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()

    async def _answer(self, line: bytes | TooLong) -> None:
        identity: Any = None
        try:
            request = await _read(line)
            identity = request.get("id")
            reply = {"id": identity, "result": await self._result(request)}
        except RequestProblem as error:
            reply = {"id": identity, "error": str(error)}
        except asyncio.CancelledError:
            reply = {"id": identity, "error": "the server was shut down"}
        except Exception as error:  # noqa: BLE001 - boundary of a request: others continue
            reply = {
                "id": identity,
                "error": f"the server failed: {error_line(error, known_secrets())}",
            }
        self._write(_line(reply))

    async def _result(self, request: dict[str, Any]) -> dict[str, Any]:
        method, params = request.get("method"), request.get("params")
        if method not in METHODS:
            raise RequestProblem(f"unknown method {_short(method)}; methods: {', '.join(METHODS)}")
        params = {} if params is None else params
        if not isinstance(params, dict):
            raise RequestProblem("params must be an object")
        if method == "status":
            return await self._status()
        if method == "shutdown":
            self.is_shut_down.set()
            return {"shutdown": True}
        opts = params.pop("opts", None) or {}
        if not isinstance(opts, dict):
            raise RequestProblem("opts must be an object")
        async with self._slots:
            return (await self._client.generate({**opts, **params})).to_dict()

    async def _status(self) -> dict[str, Any]:
        reason = await self._client.unavailable_reason()
        status = {"available": reason is None, "reason": reason, "in_flight": len(self._tasks) - 1}
        if reason is None:
            config = self._client.config
            status |= {name: getattr(config, name) for name in _SHOWN}
        return {**status, "cost": self._client.get_cost_summary()}


_SHOWN = ("backend", "root_model", "subcall_model", "environment", "max_iterations", "max_depth")


async def _read(line: bytes | TooLong) -> dict[str, Any]:
    """Parse a line; a long one in a thread, so that others do not wait."""
    if isinstance(line, bytes) and len(line) > LONG_LINE_BYTES:
        return await in_thread(lambda: _request(line))
    return _request(line)


def _request(line: bytes | TooLong) -> dict[str, Any]:
    """Parse a line as a request; raise RequestProblem with a short reason if it is not one."""
    if isinstance(line, TooLong):
        raise RequestProblem(f"the line is longer than {MAX_LINE_BYTES:,} bytes")
    try:
        request = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except RecursionError:
        raise RequestProblem("the line cannot be read as JSON: nested too deeply") from None
    except ValueError as error:
        raise RequestProblem(f"the line is not JSON: {error_line(error)}") from None
    if not isinstance(request, dict):
        raise RequestProblem("a request must be an object with id, method and params")
    return request


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not in JSON")


def _line(reply: dict[str, Any]) -> bytes:
    """Encode a reply as ASCII JSON, so lone surrogates survive; other objects become text."""
    return json.dumps(reply, default=str).encode("ascii")


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:80]}…"


async def serve(read_from: RawIOBase, write_to: RawIOBase, config: RLMConfig | None = None) -> None:
    """Serve until `shutdown`, or until the input ends and everything is answered."""
    writer = LineWriter(write_to)
    client = RLMClient(config)
    server = RLMServer(client, writer.write)
    ready = {"ready": True, "protocol": PROTOCOL}
    writer.write(_line({**ready, "available": await client.unavailable_reason() is None}))
    reading = asyncio.create_task(_read_all(LineReader(read_from, MAX_LINE_BYTES), server))
    shut_down = asyncio.create_task(server.is_shut_down.wait())
    await asyncio.wait({reading, shut_down}, return_when=asyncio.FIRST_COMPLETED)
    if server.is_shut_down.is_set():
        reading.cancel()
        await server.cancel_all()
    else:
        await server.finish()
    shut_down.cancel()
    writer.close()


async def _read_all(reader: LineReader, server: RLMServer) -> None:
    async for line in reader:
        await server.take(line)


def main() -> None:
    """Serve on stdin and stdout; redirect any other output to stderr."""
    requests, answers = FileIO(os.dup(0), "rb"), FileIO(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        asyncio.run(serve(requests, answers))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
