"""One function as a tool: its name, its line in the prompt, and safe calls.

A tool runs on the host, in the caller's program, and its arguments come from a model. They are
therefore checked and converted first, and every failure becomes a `ToolError` of one line.
"""

import asyncio
import contextlib
import functools
import inspect
import keyword
import re
from collections.abc import AsyncIterator, Callable
from typing import Any
from weakref import WeakKeyDictionary

from rlm.errors import ConfigError, ToolError
from rlm.portal import MAX_NESTED_TOOLS, ToolCall, inside
from rlm.tools import _arguments, _results
from rlm.tools._results import with_notes
from rlm.tools._threads import Raised, in_thread
from rlm.worker.repl_names import REPL_NAMES

__all__ = ["FunctionTool", "checked_name", "is_taken", "prompt_line"]

MAX_THREADS = 32
"""How many tools may run in threads of one event loop at the same time; further calls wait.

A tool that waits for a run which it started keeps its thread, so the tools of that run have their
own limit: no tool ever waits for one above it.
"""

MAX_TELLING_SECONDS = 5.0
"""How long an exception may take to become text."""

_TAKEN = frozenset(entry.name for entry in REPL_NAMES if not entry.yields)
_CONTEXT = re.compile(r"context_\d+")
_places: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, asyncio.Semaphore]] = (
    WeakKeyDictionary()
)


class FunctionTool:
    """A function, method, class or other callable as a tool; implements `rlm.protocols.Tool`.

    Functions run in a thread and coroutines on the loop, both for at most `timeout_seconds`; a
    thread cannot be stopped, so a late function continues unobserved. A function may make blocking
    calls of `RLM`: their time does not count, and they are cancelled with the call of the tool.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout_seconds: float = 60.0,
    ) -> None:
        if not callable(function):
            raise ConfigError(f"a tool must be callable, not {type(function).__name__}")
        self.name = self._checked_name(name if name is not None else _name_of(function))
        if not timeout_seconds > 0:
            raise ConfigError(f"tool {self.name!r}: timeout_seconds must be greater than 0")
        self.timeout_seconds = timeout_seconds
        self.hidden: Any = None
        """An object that results never show as data, such as the object of a method."""
        self._function = function
        self._on_loop = _is_async(function)
        self._parameters = _arguments.Parameters(function)
        self.usage = f"{self.name}{self._parameters.shown}"
        text = description or _arguments.summary(function)
        self.description = prompt_line(self.usage, self._noted(text))

    @staticmethod
    def _checked_name(name: Any) -> str:
        return checked_name(name)

    def _noted(self, text: str) -> str:
        return with_notes(text, self._parameters.notes)

    def __repr__(self) -> str:
        return f"FunctionTool({self.usage})"

    async def call(self, arguments: dict[str, Any]) -> Any:
        """Call the function; `{"*": [...]}` holds positional arguments. Errors are ToolErrors."""
        try:
            return await self._finished(arguments)
        except ToolError as error:
            raise ToolError(f"{self.name} failed: {error}") from error.__cause__
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the plugin boundary
            cause = error.error if isinstance(error, Raised) else error
            if isinstance(cause, _Misfit):
                problem = await _told(_results.problem, cause.error, arguments)
                raise ToolError(f"{self.name}: {problem}; usage: {self.usage}") from cause.error
            reason = await _told(_results.error_line, cause, arguments)
            raise ToolError(f"{self.name} failed: {reason}") from cause

    async def _finished(self, arguments: dict[str, Any]) -> Any:
        """Return the JSON-compatible result of a call, within the time limit."""
        above = inside.get()
        place = contextlib.nullcontext() if self._on_loop else _place(above.tools)
        async with place:
            clock = PausingTimeout(self.timeout_seconds)
            now = ToolCall(clock.pause_or_go_on)
            token = inside.set(above._replace(tools=above.tools + 1, call=now))
            try:
                async with clock.timeout:
                    return await self._result(arguments)
            except TimeoutError:
                if not clock.timeout.expired():
                    raise
                now.cancel()
                raise ToolError(f"no result within {self.timeout_seconds:g} s") from None
            except asyncio.CancelledError:
                now.cancel()
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                raise ToolError("it was cancelled") from None
            finally:
                inside.reset(token)

    async def _result(self, arguments: dict[str, Any]) -> Any:
        bind = functools.partial(self._bound, arguments)
        if self._on_loop:
            call = bind() if self._parameters.quick else await in_thread(bind)
            pending = call()
        else:
            is_plain, pending = await in_thread(functools.partial(self._called, bind))
            if is_plain:
                return pending
        try:
            value = await pending if inspect.isawaitable(pending) else pending
        except GeneratorExit as error:  # It would end the task that serves the cell.
            raise Raised(error) from None
        if isinstance(value, AsyncIterator):
            value = await _results.collected(value)
        return await in_thread(functools.partial(_results.plain, value, self.hidden))

    def _bound(self, arguments: dict[str, Any]) -> Callable[[], Any]:
        """Return the call with its arguments, converted; a validator may be slow."""
        try:
            positional, named = self._parameters.bind(arguments)
        except Exception as error:
            raise _Misfit(error) from error
        return functools.partial(self._function, *positional, **named)

    def _called(self, bind: Callable[[], Callable[[], Any]]) -> tuple[bool, Any]:
        """Call, and convert the result in the same thread unless it must be awaited first."""
        value = bind()()
        if inspect.isawaitable(value) or isinstance(value, AsyncIterator):
            return False, value
        return True, _results.plain(value, self.hidden)


class _Misfit(Exception):
    """The arguments do not fit the function."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


async def _told(tell: Callable[[Any, Any], str], error: BaseException, arguments: Any) -> str:
    """Return the text of an error; making it runs the caller's code, which may hang."""
    try:
        async with asyncio.timeout(MAX_TELLING_SECONDS):
            told: str = await in_thread(functools.partial(tell, error, arguments))
            return told
    except (TimeoutError, Raised, ToolError):
        return type(error).__name__


def checked_name(name: Any) -> str:
    """Return a name that is valid in a cell and free in the REPL; ConfigError otherwise."""
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise ConfigError(f"a tool can't be named {name!r}: it must be a Python name")
    if name.startswith("_"):
        raise ConfigError(f"a tool can't be named {name!r}: names that begin with _ are private")
    if is_taken(name):
        raise ConfigError(f"a tool can't be named {name!r}: the REPL itself uses that name")
    return name


def is_taken(name: str) -> bool:
    """Return whether the REPL itself uses a name."""
    return name in _TAKEN or _CONTEXT.fullmatch(name) is not None


def _name_of(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", type(function).__name__)
    if name == "<lambda>":
        raise ConfigError('a lambda has no name: give it one, as in tools={"search": lambda q: …}')
    return str(name)


def prompt_line(usage: str, text: str) -> str:
    text = " ".join(text.split())
    return f"`{usage}`: {text}" if text else f"`{usage}`"


def _is_async(function: Any) -> bool:
    """Return whether a call only creates a coroutine or async generator, which takes no time."""
    body = _arguments.body_of(function)
    return inspect.iscoroutinefunction(body) or inspect.isasyncgenfunction(body)


def _place(tools_above: int) -> asyncio.Semaphore:
    """Return the semaphore of one level of nested tools, so that levels never wait for others."""
    levels = _places.setdefault(asyncio.get_running_loop(), {})
    level = min(tools_above, MAX_NESTED_TOOLS + 1)
    return levels.setdefault(level, asyncio.Semaphore(MAX_THREADS))


class PausingTimeout:
    """A `timeout` that can be paused from any thread and then resumed."""

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = seconds
        self.timeout = asyncio.timeout(seconds)

    def pause_or_go_on(self, paused: bool) -> None:
        with contextlib.suppress(RuntimeError):  # The loop was closed; nobody waits any more.
            self._loop.call_soon_threadsafe(self._pause if paused else self._go_on)

    def _pause(self) -> None:
        with contextlib.suppress(RuntimeError):  # It has ended, in time or too late.
            if (when := self.timeout.when()) is not None:
                self._left = max(0.0, when - self._loop.time())
                self.timeout.reschedule(None)

    def _go_on(self) -> None:
        with contextlib.suppress(RuntimeError):
            if self.timeout.when() is None:
                self.timeout.reschedule(self._loop.time() + self._left)
