"""A REPL at the end of a real worker process, and the host that answers it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Literal

import pytest

from rlm.environments.local import LocalEnvironment
from rlm.errors import CallRefused
from rlm.protocols import Environment, Session
from rlm.results import CellResult

Asked = tuple[str, dict[str, Any], list[str]]


class FakeHost:
    """Answers every prompt with `re:<prompt>`; remembers all it was asked.

    A prompt `fail:reason` fails, `refuse` is refused. With `hold_until` set, answers wait until
    that many calls are in flight at the same moment.
    """

    def __init__(self) -> None:
        self.reply: Callable[[str], str] = "re:{}".format
        self.start_over(hold_until=0)

    def start_over(self, hold_until: int) -> None:
        """Forget everything asked so far."""
        self.hold_until = hold_until
        self.asked: list[Asked] = []
        self.in_flight = 0
        self.max_in_flight = 0
        self.was_asked = asyncio.Event()
        self.release = asyncio.Event()

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        self.asked.append((kind, arguments, list(parts)))
        self.in_flight += 1
        self.was_asked.set()
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            if self.hold_until:
                await self._hold()
            return self._answer(kind, arguments, parts)
        finally:
            self.in_flight -= 1

    async def _hold(self) -> None:
        if self.in_flight >= self.hold_until:
            self.release.set()
        await self.release.wait()

    def _answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        if kind == "budget":
            return {"calls": 7}, []
        if kind == "tool":
            if arguments["name"] == "broken":
                raise RuntimeError("the tool is broken")
            return {"json": json.dumps(arguments)}, []
        if "refuse" in parts:
            raise CallRefused("over the limit", limit="max_calls")
        prompts = parts[: len(arguments["contexts"])] if kind == "rlm" else parts
        failed = {
            str(index): prompt.partition(":")[2]
            for index, prompt in enumerate(prompts)
            if prompt.startswith("fail:")
        }
        return {"failed": failed}, [self.reply(prompt) for prompt in prompts]

    def prompts(self) -> list[str]:
        return [part for _, _, parts in self.asked for part in parts]


class StoredContext:
    """A context as the engine stores it."""

    def __init__(self, kind: Literal["text", "json", "bytes"], data: bytes) -> None:
        self.kind: Literal["text", "json", "bytes"] = kind
        self.data = data
        self.size_bytes = len(data)

    def chunks(self, chunk_bytes: int) -> Iterator[bytes]:
        for start in range(0, len(self.data), chunk_bytes):
            yield self.data[start : start + chunk_bytes]


class Repl:
    """A session with short spellings for tests."""

    def __init__(self, session: Session, host: FakeHost) -> None:
        self.session = session
        self.host = host

    async def run(self, code: str, timeout_seconds: float = 30) -> CellResult:
        return await self.session.execute(code, timeout_seconds=timeout_seconds)

    async def show(self, code: str) -> str:
        """What a cell that must not fail wrote to stdout."""
        result = await self.run(code)
        assert result.error is None, result.error.traceback
        return result.stdout.rstrip("\n")

    async def fail(self, code: str) -> tuple[str, str]:
        """Type and message of the error of a cell that must fail."""
        result = await self.run(code)
        assert result.error is not None, result.stdout
        return result.error.type, result.error.message

    async def load(self, value: Any, name: str = "context") -> None:
        if isinstance(value, str):
            stored = StoredContext("text", value.encode("utf-8", "surrogatepass"))
        elif isinstance(value, bytes):
            stored = StoredContext("bytes", value)
        else:
            stored = StoredContext("json", json.dumps(value).encode())
        await self.session.load(name, stored)


Opener = Callable[..., Any]


@pytest.fixture
async def open_repl() -> AsyncIterator[Opener]:
    """Opens REPLs that are closed after the test."""
    environment: Environment = LocalEnvironment()

    async def open_one(**options: Any) -> Repl:
        host = FakeHost()
        return Repl(await environment.open(host, options), host)

    yield open_one
    await environment.close()


@pytest.fixture
async def repl(open_repl: Opener) -> Repl:
    tools = [{"name": name, "description": f"does {name}"} for name in ("lookup", "broken")]
    opened: Repl = await open_repl(tools=tools)
    return opened


async def checkpointed(repl: Repl) -> None:
    """Wait until the session has a checkpoint of what was done so far."""
    session: Any = repl.session
    async with asyncio.timeout(60):
        while session._checkpoint is None or session._changed:
            await asyncio.sleep(0.005)


async def out_of_time(repl: Repl, code: str) -> CellResult:
    """Run a cell whose time is up once it is at its last statement, which must use the processor.

    With a short limit, a machine that is busy might end it before it has begun.
    """
    session: Any = repl.session
    worker = session._handle
    repl.host.was_asked.clear()
    cell = asyncio.create_task(repl.run(f"llm_query('here')\n{code}", timeout_seconds=600))
    await repl.host.was_asked.wait()
    before = seen = await worker.state()
    while not cell.done() and seen is not None and seen.cpu_seconds < before.cpu_seconds + 0.1:
        await asyncio.sleep(0.01)
        seen = await worker.state()
    if not cell.done():
        session._stopper.time_is_up()
    return await cell
