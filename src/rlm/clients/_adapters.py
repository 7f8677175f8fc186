"""What adapters for Python libraries share: calls in threads, and the meaning of errors."""

import asyncio
import contextlib
import contextvars
import re
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

from rlm._util.distribution import install_command
from rlm._util.secret_values import SHORTEST_SECRET_CHARS, secrets_of_the_environment
from rlm.errors import ConfigError, ModelError
from rlm.messages import Reply

__all__ = ["Flow", "Threads", "each_within", "imported", "model_error", "public_line", "reply_of"]

SHOWN_CHARS = 300
RETRYABLE = frozenset({408, 409, 429})
NEVER_SENT = re.compile(
    r"(Connect|ConnectionRefused|Proxy|PoolTimeout|NameResolution)(Error|Timeout)?$"
)
LATE_OR_LOST = re.compile(r"Timeout|TimedOut|Connection|Connect|Network|Disconnected|ReadError")
SECRET_SHAPE = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|ghp|AIza)[-_A-Za-z0-9]{16,}"
    r"|(?i:\bbearer\s+)[-._~+/=\w]{8,}"
    r"|(?<=://)[^/\s@]+(?=@)"
    r"|(?i:(?<=[?&]key=)|(?<=api_key=)|(?<=api-key: ))[^&\s'\"]+"
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]|\x1b\[[0-9;]*m")
_SECONDS = re.compile(r"\d{1,9}(\.\d+)?")


def imported(module: str, extra: str, wanted_by: str) -> Any:
    """Import a library on first use; if it is missing, name the command that installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise ConfigError(
            f"{wanted_by} needs the package {error.name!r}: {install_command(extra)}"
        ) from None


def model_error(model: str, error: BaseException, secrets: Iterable[str] = ()) -> ModelError:
    """Return a library's error as one line, with whether to retry and whether it was billed."""
    status = _status(error)
    names = [kind.__name__ for kind in type(error).__mro__]
    lost = isinstance(error, OSError) or any(LATE_OR_LOST.search(name) for name in names)
    unsent = isinstance(error, ConnectionRefusedError) or bool(NEVER_SENT.search(names[0]))
    if status is not None and status >= 500 and not any(_headers(error)):
        lost = True  # not a response: some libraries write 500 for a lost connection
    said = re.sub(rf"^(?:(?:\w+\.)*{names[0]}:\s*)+", "", public_line(str(error), secrets))
    text = f"{model}: {names[0]}" + (f": {said}" if said else "") + _advice(status, lost)
    return ModelError(
        text,
        status=status,
        retryable=lost if status is None else status in RETRYABLE or status >= 500,
        ambiguous=lost and not unsent if status is None else lost,
        retry_after_seconds=_retry_after(error),
    )


def public_line(text: str, secrets: Iterable[str] = ()) -> str:
    """Return one short line without secrets: given ones, the environment's, and look-alikes.

    They are removed before the text is cut, so that no half of a secret is left.
    """
    hidden = {*secrets, *secrets_of_the_environment()}
    for secret in sorted(hidden, key=len, reverse=True):
        if len(secret) >= SHORTEST_SECRET_CHARS:
            text = text.replace(secret, "[secret]")
    text = SECRET_SHAPE.sub("[secret]", text)
    text = " ".join(_CONTROL.sub(" ", text).split())
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"


def _status(error: BaseException) -> int | None:
    """Return the HTTP status of an error, wherever libraries may store it."""
    holders = (error, getattr(error, "response", None))
    for holder in holders:
        for name in ("status_code", "status", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600:
                return int(value)
    return None


def _headers(error: BaseException) -> list[Mapping[Any, Any]]:
    """Return the headers of the response, wherever libraries may store them."""
    holders = (error, getattr(error, "response", None))
    names = ("headers", "litellm_response_headers")
    found = [getattr(holder, name, None) for holder in holders for name in names]
    return [headers for headers in found if isinstance(headers, Mapping)]


def _retry_after(error: BaseException) -> float | None:
    waits = (_wait_in(headers) for headers in _headers(error))
    return next((wait for wait in waits if wait is not None), None)


def _wait_in(headers: Mapping[Any, Any]) -> float | None:
    found = {str(name).lower(): str(value).strip() for name, value in headers.items()}
    if _SECONDS.fullmatch(found.get("retry-after-ms", "")):
        return float(found["retry-after-ms"]) / 1000
    if _SECONDS.fullmatch(found.get("retry-after", "")):
        return float(found["retry-after"])
    return None


def _advice(status: int | None, lost: bool) -> str:
    advice = {
        401: "; check the key",
        403: "; check that the key may use this model",
        404: "; check the model's name",
        429: "; wait, lower max_concurrent_calls, or check the account's quota",
    }
    if status is None:
        return "; is the server reachable, and not overloaded?" if lost else ""
    return advice.get(status, "; try again later" if status >= 500 else "")


T = TypeVar("T")


class Flow:
    """Passed to a blocking function: takes its pieces, and says whether a caller still waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.given_up = False
        self._loop = loop
        self._said: asyncio.Queue[tuple[bool, object]] = asyncio.Queue()

    def send(self, piece: object) -> bool:
        """Pass on a piece from the thread; return False if no caller is waiting any more."""
        self.put(False, piece)
        return not self.given_up

    def put(self, is_last: bool, value: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: no caller waits
            self._loop.call_soon_threadsafe(self._said.put_nowait, (is_last, value))

    async def get(self) -> tuple[bool, object]:
        return await self._said.get()


class _Failed:
    """An exception that a function raised in its thread."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Threads(Generic[T]):
    """Runs functions in their own threads, `most` at a time; T is their return type."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._waiting: deque[tuple[Flow, Callable[[], None]]] = deque()
        self._running: set[Flow] = set()
        self._lock = threading.Lock()

    @property
    def abandoned(self) -> int:
        """Return how many threads are still working for callers that have given up."""
        with self._lock:
            return sum(flow.given_up for flow in self._running)

    async def stream(self, work: Callable[[Flow], T]) -> AsyncGenerator[str | T, None]:
        """Yield every piece the function sends, then its return value."""
        flow = Flow(asyncio.get_running_loop())
        context = contextvars.copy_context()
        self._submit(flow, lambda: flow.put(True, context.run(_outcome, work, flow)))
        try:
            is_last = False
            while not is_last:
                is_last, value = await flow.get()
                if isinstance(value, _Failed):
                    raise value.error
                yield cast("str | T", value)
        finally:
            flow.given_up = True

    def give_up_all(self) -> None:
        """Tell every function that no caller is waiting any more."""
        with self._lock:
            for flow in (*self._running, *(flow for flow, _ in self._waiting)):
                flow.given_up = True

    async def ended(self, timeout_seconds: float) -> bool:
        """Wait until no thread is running; return False if some still are after the timeout."""
        deadline = time.monotonic() + timeout_seconds
        while self._running:
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(0.01)
        return True

    def _submit(self, flow: Flow, job: Callable[[], None]) -> None:
        with self._lock:
            self._waiting.append((flow, job))
            if len(self._running) >= self._most:
                return
            first = self._next()
        if first is not None:
            threading.Thread(target=self._work, args=first, name=self._name, daemon=True).start()

    def _work(self, flow: Flow, job: Callable[[], None]) -> None:
        """Run a job, then waiting jobs, and end the thread when there are none."""
        upcoming: tuple[Flow, Callable[[], None]] | None = (flow, job)
        while upcoming is not None:
            flow, job = upcoming
            job()
            with self._lock:
                self._running.discard(flow)
                upcoming = self._next()

    def _next(self) -> tuple[Flow, Callable[[], None]] | None:
        """Return the next job with a waiting caller. The lock must be held."""
        while self._waiting:
            flow, job = self._waiting.popleft()
            if not flow.given_up:
                self._running.add(flow)
                return flow, job
        return None


def _outcome(work: Callable[[Flow], object], flow: Flow) -> object:
    """Return what the function returned, or what it raised, for the caller to raise again.

    Exceptions that would end a loop or a generator (SystemExit, StopIteration …) are wrapped.
    """
    try:
        return work(flow)
    except BaseException as error:  # noqa: BLE001 - the plugin boundary
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            return _Failed(error)
        return _Failed(RuntimeError(f"{type(error).__name__}: {error}"))


async def each_within(
    pieces: AsyncGenerator[T, None],
    seconds: float,
    model: str,
    explain: Callable[[], str] = str,
) -> AsyncGenerator[T, None]:
    """Yield pieces as they come, all within `seconds`; otherwise raise ModelError.

    Each wait has its own timeout: one that ran while the consumer works would cancel the consumer.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    async with contextlib.aclosing(pieces):
        while True:
            clock = asyncio.timeout_at(deadline)
            try:
                async with clock:
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if not clock.expired():
                    raise
                raise ModelError(
                    f"{model} did not answer within {seconds:g} s{explain()}",
                    retryable=True,
                    ambiguous=True,
                ) from None
            yield piece


async def reply_of(pieces: AsyncIterator[str | Reply]) -> Reply:
    """Return the reply at the end of a stream."""
    last: str | Reply = ""
    async for last in pieces:  # noqa: B007 - only the last one matters
        pass
    assert isinstance(last, Reply)
    return last
