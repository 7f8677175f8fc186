"""What checks and attacks use: a session with short method names, its host, and contexts."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Any, Literal

from rlm.errors import CallRefused, RLMError, SessionError
from rlm.protocols import Environment, Session, with_defaults
from rlm.results import CellResult
from rlm.testing.conformance.vault import VAULT_TOOLS, Vault, bridge_to
from rlm.worker import tagged

__all__ = [
    "Bench",
    "NotOffered",
    "Repl",
    "StoredContext",
    "SuiteHost",
    "Unmet",
    "expect",
    "stored",
]

CELL_SECONDS = 30.0
CLOSE_SECONDS = 10.0
_PLAIN_TOOLS = [
    {"name": name, "description": f"does {name}"} for name in ("lookup", "give", "broken")
]
TOOLS = [*_PLAIN_TOOLS, *VAULT_TOOLS]


class Unmet(Exception):
    """The environment does not do what is documented; the message says what it does."""


class NotOffered(Exception):
    """The environment lacks what a check is about; the message says what is missing."""


def expect(actual: object, expected: object, what: str) -> None:
    """Raise Unmet unless both are equal."""
    if actual != expected:
        raise Unmet(f"{what}: expected {_short(expected)}, got {_short(actual)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:100]}…{text[-40:]} ({len(text):,} characters)"


class StoredContext:
    """A context in memory; implements `rlm.protocols.ContextSource`."""

    def __init__(
        self, kind: Literal["text", "json", "tagged_json", "bytes", "source"], data: bytes
    ) -> None:
        self.kind: Literal["text", "json", "tagged_json", "bytes", "source"] = kind
        self.size_bytes = len(data)
        self._data = data

    def chunks(self, chunk_bytes: int) -> Iterator[bytes]:
        """Yield the bytes in chunks, which may end inside a character."""
        for start in range(0, len(self._data), chunk_bytes):
            yield self._data[start : start + chunk_bytes]


def stored(value: Any) -> StoredContext:
    """Return a value as the engine would store it."""
    if isinstance(value, str):
        return StoredContext("text", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes):
        return StoredContext("bytes", value)
    if isinstance(value, set | frozenset | tuple):
        return StoredContext("tagged_json", tagged.dumps(value).encode())
    return StoredContext("json", json.dumps(value).encode())


class SuiteHost:
    """A host that answers every prompt with `re:<prompt>`, and records what it was asked.

    A prompt `fail:reason` fails and `refuse` is refused, as is everything past `max_prompts`.
    With `hold_until`, answers wait until that many calls are in flight at once. The vault's tools
    are real.
    """

    def __init__(self, vault: Vault | None = None) -> None:
        self._bridge = bridge_to(Vault() if vault is None else vault)
        self.reply: Callable[[str], str] = "re:{}".format
        self.max_prompts: int | None = None
        self.start_over()

    def start_over(self, hold_until: int = 0) -> None:
        """Forget what was asked so far."""
        self.asked: list[tuple[str, dict[str, Any], list[str]]] = []
        self.prompts = 0
        self.in_flight = 0
        self.max_in_flight = 0
        self.hold_until = hold_until
        self.was_asked = asyncio.Event()
        self.release = asyncio.Event()

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        """Answer a call, as `Host` requires."""
        if len(self.asked) < 10_000:
            self.asked.append((kind, arguments, list(parts)))
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        self.was_asked.set()
        try:
            if self.hold_until:
                if self.in_flight >= self.hold_until:
                    self.release.set()
                await self.release.wait()
            if kind == "tool" and "vault" in arguments["name"]:
                return await self._bridge.answer(kind, arguments, parts)
            return self._answer(kind, arguments, parts)
        finally:
            self.in_flight -= 1

    def _answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        if kind == "budget":
            return {"calls": 7}, []
        if kind == "data":
            if arguments["arguments"].get("query") == "select broken":
                raise CallRefused("no such column: broken", limit="data")
            rows = [[1, "é"], [2, None]] if not arguments["arguments"].get("start") else []
            told = {"columns": ["id", "text"], "types": ["", ""], "is_cut": False, "rows": rows}
            return {}, [json.dumps(told)]
        if kind == "cite":
            return ({}, parts) if parts else ({"problem": "no such place"}, [])
        if kind == "tool":
            return {"json": json.dumps(_tool_result(**arguments))}, []
        if kind == "operator":
            value = [f"{arguments['name']}:{part}" for part in parts]
            return {}, [json.dumps({"value": value, "note": f"{len(parts)} items"})]
        prompts = parts[: len(arguments["contexts"])] if kind == "rlm" else parts
        self.prompts += len(prompts)
        too_many = self.max_prompts is not None and self.prompts > self.max_prompts
        if too_many or "refuse" in prompts:
            raise CallRefused("over the limit", limit="max_calls")
        failed = {
            str(index): prompt.partition(":")[2]
            for index, prompt in enumerate(prompts)
            if prompt.startswith("fail:")
        }
        return {"failed": failed}, [self.reply(prompt) for prompt in prompts]


def _tool_result(name: str, arguments: dict[str, Any]) -> Any:
    """`lookup` returns its arguments; `give` returns a value, or `chars` characters."""
    if name == "lookup":
        return {"name": name, "arguments": arguments}
    if name == "give":
        positional = arguments.get("*", [None])
        return ("ab" * (arguments.get("chars", 0) // 2)) or arguments.get("value", positional[0])
    if name == "broken":
        raise RuntimeError("the tool is broken")
    raise CallRefused(f"unknown tool {name!r}; tools: broken, give, lookup", limit="tools")


class Repl:
    """A session under test."""

    def __init__(self, bench: "Bench", session: Session, host: SuiteHost) -> None:
        self.bench = bench
        self.session = session
        self.host = host

    async def run(self, code: str, timeout_seconds: float = CELL_SECONDS) -> CellResult:
        """Run a cell and return its result; a slow environment gets more time."""
        seconds = timeout_seconds * self.bench.patience
        return await self.session.execute(code, timeout_seconds=seconds)

    def begin(self, code: str, timeout_seconds: float = CELL_SECONDS) -> "asyncio.Task[CellResult]":
        """Start a cell. Its error is ignored if the check ends before it looks."""
        cell = asyncio.create_task(self.run(code, timeout_seconds))
        cell.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return cell

    async def show(self, code: str) -> str:
        """Return what a cell wrote to stdout, without its last newline; it must not fail."""
        result = await self.run(code)
        if result.error is not None:
            raise Unmet(f"{code.splitlines()[-1]!r} raised {result.error.traceback[-500:]}")
        return result.stdout.removesuffix("\n")

    async def shows(self, code: str, expected: str) -> None:
        """Check that a cell writes exactly this; it must not fail."""
        expect(await self.show(code), expected, _last_line(code))

    async def fails(self, code: str, kind: str, words: str = "") -> None:
        """Check that a cell ends in an error of that type, whose message contains these words."""
        result = await self.run(code)
        if result.error is None:
            raise Unmet(f"{_last_line(code)}: no error, but {kind} was expected")
        expect(result.error.type, kind, _last_line(code))
        if words not in result.error.message:
            raise Unmet(f"{_last_line(code)}: {words!r} is not in {result.error.message[:200]!r}")

    async def load(self, value: Any, name: str = "context") -> None:
        """Bind a context."""
        await self.session.load(name, stored(value))

    async def lives(self) -> None:
        """Check that the session still works, including calls."""
        await self.shows("1 + 1", "2")
        await self.shows("llm_query('still there')", "'re:still there'")

    async def dies(self, code: str) -> str:
        """Check that a cell ends the session; return the message of the error."""
        try:
            result = await self.run(code)
        except SessionError as error:
            return str(error)
        how = "continued" if result.error is None else f"reported {result.error.type}"
        raise Unmet(f"{_last_line(code)}: the session {how}, but a SessionError was expected")


def _last_line(code: str) -> str:
    line = code.strip().splitlines()[-1] if code.strip() else ""
    return line if len(line) <= 80 else f"{line[:77]}..."


class Bench:
    """Opens sessions of the environment under test, and always closes them."""

    def __init__(self, environment: Environment) -> None:
        self.environment = with_defaults(environment)
        self.patience = self.environment.patience
        self.vault = Vault()
        self._shared: Repl | None = None

    def excuse_for(self, row: str) -> str | None:
        """Return why the environment can't keep a promise, if it says so in advance.

        Its `lacks` maps a part of `group: name` to the reason.
        """
        return next((why for part, why in self.environment.lacks.items() if part in row), None)

    def harm_of(self, row: str) -> str | None:
        """Return why a check must not be tried, from `harms_host`."""
        return next((why for part, why in self.environment.harms_host.items() if part in row), None)

    @contextlib.asynccontextmanager
    async def opened(self, **options: Any) -> AsyncGenerator[Repl, None]:
        """Open a fresh session with the tools of the suite, and close it afterwards."""
        repl = await self.open(**options)
        try:
            yield repl
        finally:
            await self.close(repl)

    async def open(self, **options: Any) -> Repl:
        """Open a fresh session, which the caller closes."""
        host = SuiteHost(self.vault)
        settings = {"seed": 0, "tools": TOOLS, **options}
        return Repl(self, await self.environment.open(host, settings), host)

    async def shared(self) -> Repl:
        """Return a session for checks that do not affect each other."""
        if self._shared is None:
            self._shared = await self.open()
        self._shared.host.start_over()
        return self._shared

    async def drop_shared(self) -> None:
        """Close the shared session, so that the next check gets a fresh one."""
        shared, self._shared = self._shared, None
        if shared is not None:
            await self.close(shared)

    async def close(self, repl: Repl) -> None:
        """Close a session; ignore errors, and do not wait forever."""
        with contextlib.suppress(RLMError, OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await repl.session.close()
