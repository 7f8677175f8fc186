"""The host side of the tools that cells call: each call runs in a thread of its own."""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import dspy
from pydantic_core import to_jsonable_python

from rlm.errors import CallRefused
from rlm.worker import tagged

__all__ = ["MAX_CALLS_AT_ONCE", "ToolCalls", "active_interpreters", "invoked"]

MAX_CALLS_AT_ONCE = 32
"""How many tools of one interpreter run at the same time; further calls wait."""

MAX_MESSAGE_CHARS = 4_000

active_interpreters: contextvars.ContextVar[tuple[object, ...]] = contextvars.ContextVar(
    "recursivelm_dspy_interpreters", default=()
)
"""The tokens of the interpreters that wait for the tool in which this code runs."""


class ToolCalls:
    """Answers what cells ask; implements `rlm.protocols.Host`.

    `invoke` calls a tool by name. `interrupted` holds what a tool raised that is no answer to a
    cell, such as KeyboardInterrupt; `on_interrupt` is then called on the event loop.
    """

    def __init__(self, invoke: Callable[[str, list[Any], dict[str, Any]], Any]) -> None:
        self._invoke = invoke
        self._context = contextvars.copy_context()
        self._slots: asyncio.Semaphore | None = None
        self.interrupted: BaseException | None = None
        self.on_interrupt: Callable[[], Coroutine[Any, Any, None]] | None = None

    def begin_cell(self, token: object) -> None:
        """Give the tools of the next cell the caller's settings: dspy keeps them in context."""
        self.interrupted = None
        self._context = contextvars.copy_context()
        self._context.run(active_interpreters.set, (*active_interpreters.get(), token))

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        """Call a tool; what it raises is an answer that the cell raises again."""
        name, given = arguments.get("name"), arguments.get("arguments")
        if kind != "tool" or not isinstance(name, str) or not isinstance(given, dict):
            raise CallRefused(f"{kind!r} is not available here", limit="kind")
        try:
            args, kwargs = tagged.unmarked(given.get("args")), tagged.unmarked(given.get("kwargs"))
        except ValueError as error:
            raise CallRefused(
                f"an argument of {name} could not be read: {error}", limit="kind"
            ) from None
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise CallRefused(f"{name} was called in an unknown form", limit="kind")
        if self._slots is None:
            self._slots = asyncio.Semaphore(MAX_CALLS_AT_ONCE)
        async with self._slots:
            text = await _in_thread(
                self._context.copy(), lambda: self._answered(name, args, kwargs)
            )
        if text is None and self.on_interrupt is not None:
            await self.on_interrupt()
        return {"json": text or tagged.dumps(_failure(RuntimeError("the tool was stopped")))}, ()

    def _answered(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> str | None:
        """Return the answer of a tool, or None if it was interrupted."""
        try:
            value = self._invoke(name, args, kwargs)
            return tagged.dumps({"value": to_jsonable_python(value, fallback=str)})
        except Exception as error:  # noqa: BLE001 - a tool is the caller's code
            return tagged.dumps(_failure(error))
        except BaseException as error:  # noqa: BLE001 - it is raised again by `execute`
            self.interrupted = error
            return None


def _failure(error: Exception) -> dict[str, str]:
    """Describe an exception; a KeyError's text is the key alone, in quotes."""
    message = error.args[0] if isinstance(error, KeyError) and error.args else error
    return {"type": type(error).__name__, "error": str(message)[:MAX_MESSAGE_CHARS]}


async def _in_thread(
    context: contextvars.Context, function: Callable[[], str | None]
) -> str | None:
    """Run a function in a new thread.

    A pool could be full of tools that wait for interpreters whose tools wait for the pool.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[str | None] = loop.create_future()

    def finish(text: str | None) -> None:
        if not done.done():
            done.set_result(text)

    def run() -> None:
        text = context.run(function)
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish, text)

    threading.Thread(target=run, name="recursivelm-dspy-tool", daemon=True).start()
    return await done


def invoked(tool: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call a tool as dspy does, with keywords; wait for its result if it is awaitable."""
    positional, named = _by_keyword(tool, args, kwargs)
    value = tool(*positional, **named)
    return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


def _by_keyword(
    tool: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> tuple[Sequence[Any], dict[str, Any]]:
    """Name the positional arguments: many tools of dspy, and each `dspy.Tool`, take only names."""
    if not args:
        return (), kwargs
    try:
        signature = inspect.signature(tool.func if isinstance(tool, dspy.Tool) else tool)
    except (TypeError, ValueError):  # some builtins have no signature
        return args, kwargs
    named = dict(kwargs)
    parameters = list(signature.parameters.values())
    if any(each.kind in {each.POSITIONAL_ONLY, each.VAR_POSITIONAL} for each in parameters):
        return args, kwargs
    signature.bind(*args, **kwargs)  # It says what is wrong with them.
    named.update((each.name, value) for each, value in zip(parameters, args, strict=False))
    return (), named


async def _awaited(value: Any) -> Any:
    return await value
