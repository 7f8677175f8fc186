"""Parts of Python that would hang or fail in WebAssembly, replaced as well as possible.

The runtime has no threads, and waiting for one of its locks that is held ends the whole sandbox. So
code that would wait forever gets an error.
"""

import asyncio
import concurrent.futures
import concurrent.futures.thread
import errno
import functools
import io
import itertools
import select
import socket
import threading
import time
import tokenize
from asyncio import base_events
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

__all__ = ["MAX_BRACKETS", "put_in_place"]

if TYPE_CHECKING:
    from rlm.environments.wasm.guest.channel import Channel


def put_in_place(channel: "Channel", compiling: Any) -> None:
    """Replace what cells use, under the usual names; `compiling` is the worker's module."""
    _make_loop_default(channel)
    _replace_functions(channel)
    _replace_locks()
    _limit_nesting(compiling)


class ThreadPoolExecutor(concurrent.futures.Executor):
    """Runs each job when it is submitted, because there are no threads."""

    def __init__(
        self,
        max_workers: int | None = None,
        thread_name_prefix: str = "",
        initializer: Callable[..., Any] | None = None,
        initargs: tuple[Any, ...] = (),
    ) -> None:
        self._max_workers = max_workers or 1
        self._is_open = True
        if initializer is not None:
            initializer(*initargs)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run the job now; the future is done when this returns."""
        if not self._is_open:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - raised again by `result()`
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Refuse further jobs; none is pending."""
        self._is_open = False


class NoSocket(socket.socket):
    """Refuses to create sockets, because there is no network."""

    def __init__(self, *_: Any, **named: Any) -> None:
        raise PermissionError(errno.EPERM, "there is no network in this sandbox")


def _replace_functions(channel: "Channel") -> None:
    real_select: Any = select.select

    def sleep(seconds: float, /) -> None:
        """Sleep; an interrupt ends the sleep."""
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            channel.wait(deadline)

    def select_files(rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None, /) -> Any:
        """Like `select.select`, but waiting for no files can be interrupted."""
        if rlist or wlist or xlist:
            return real_select(rlist, wlist, xlist, timeout)
        sleep(float("inf") if timeout is None else timeout)
        return [], [], []

    select_files.__name__ = select_files.__qualname__ = "select"
    sleep.__qualname__ = "sleep"
    vars(time)["sleep"] = sleep
    vars(socket)["socket"] = NoSocket
    vars(select)["select"] = select_files
    for module in (concurrent.futures, concurrent.futures.thread):
        vars(module)["ThreadPoolExecutor"] = ThreadPoolExecutor


# -- locks --


class Lock:
    """A lock for a program with a single thread."""

    def __init__(self) -> None:
        self._is_held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock; if it is held, wait for the timeout or raise an error."""
        if not self._is_held:
            self._is_held = True
            return True
        if blocking and timeout < 0:
            raise RuntimeError("this lock is held, and without threads nothing can release it")
        if blocking:
            time.sleep(timeout)
        return False

    def release(self) -> None:
        """Release the lock."""
        if not self._is_held:
            raise RuntimeError("release unlocked lock")
        self._is_held = False

    def locked(self) -> bool:
        """Return whether the lock is held."""
        return self._is_held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def _wait(condition: Any, timeout: float | None = None) -> bool:
    """Replace `Condition.wait`, where no other thread can notify."""
    if timeout is None:
        raise RuntimeError("without threads nothing can end this wait; WebAssembly has none")
    time.sleep(max(0.0, timeout))
    return False


def _replace_locks() -> None:
    vars(threading).update(Lock=Lock)
    condition: Any = threading.Condition
    condition.wait = _wait


# -- the event loop of cells --

_Given = TypeVarTuple("_Given")
_Result = TypeVar("_Result")


class _Selector:
    """The selector of an event loop; it only waits for the host."""

    def __init__(self, channel: "Channel") -> None:
        self._channel = channel

    def select(self, timeout_seconds: float | None) -> list[Any]:
        """Wait until something arrives, or for the timeout."""
        if timeout_seconds is None:
            self._channel.wait()
        else:
            self._channel.wait(time.monotonic() + timeout_seconds)
        return []

    def close(self) -> None:
        """Do nothing: nothing is open."""


class _PollingLoop(base_events.BaseEventLoop):
    def __init__(self, channel: "Channel") -> None:
        super().__init__()
        self._selector = _Selector(channel)

    def _process_events(self, events: list[Any]) -> None:
        """Do nothing: the channel itself sets the results of futures."""

    def _write_to_self(self) -> None:
        """Do nothing: no other thread could wake this one."""

    def add_reader(
        self, fd: Any, callback: Callable[[Unpack[_Given]], Any], *args: *_Given
    ) -> None:
        """Accept only -1, the descriptor of interrupts, which are polled."""
        if fd != -1:
            raise NotImplementedError("there are no files to wait for in WebAssembly")

    def run_in_executor(
        self, executor: Any, func: Callable[[Unpack[_Given]], _Result], *args: *_Given
    ) -> "asyncio.Future[_Result]":
        """Run the function now, because there are no threads."""
        return asyncio.wrap_future(ThreadPoolExecutor().submit(func, *args), loop=self)


def _make_loop_default(channel: "Channel") -> None:
    """Make `asyncio.run` and `asyncio.new_event_loop` create loops of this kind."""
    events: Any = asyncio.events
    events._set_running_loop(None)  # The runtime leaves its own there.
    type(events._get_event_loop_policy())._loop_factory = staticmethod(
        functools.partial(_PollingLoop, channel)
    )


# -- deeply nested brackets --

MAX_BRACKETS = 100
"""Here the parser overflows the stack at about 130; its own limit is 200."""

_STEPS = {**dict.fromkeys("([{", 1), **dict.fromkeys(")]}", -1)}


def _limit_nesting(compiling: Any) -> None:
    """Refuse cells with too deeply nested brackets before the parser sees them."""
    compile_cell = compiling.compile_cell

    def compile_shallow(source: str, filename: str) -> Any:
        if _depth(source) > MAX_BRACKETS and _depth_outside_strings(source) > MAX_BRACKETS:
            raise SyntaxError("too many nested parentheses")
        return compile_cell(source, filename)

    compiling.compile_cell = compile_shallow


def _depth(brackets: Any) -> int:
    return max(itertools.accumulate(_STEPS.get(each, 0) for each in brackets), default=0)


def _depth_outside_strings(source: str) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    try:
        return _depth([token.string for token in tokens if token.type == tokenize.OP])
    except (SyntaxError, tokenize.TokenError):
        return _depth(source)  # It is not valid Python anyway.
