"""Parts of the standard library that would hang or fail in WebAssembly, done as well as can be."""

import concurrent.futures
import concurrent.futures.thread
import errno
import select
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlm.environments.wasm.guest.channel import Channel

__all__ = ["put_in_place"]


class ThreadPoolExecutor(concurrent.futures.Executor):
    """Does each piece of work when it is handed in, one after the other: there are no threads."""

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
        """Do it now; the future is done when this returns."""
        if not self._is_open:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever asks for the result
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing is pending."""
        self._is_open = False


class NoSocket(socket.socket):
    """Where there is no network, a socket is refused when it is made."""

    def __init__(self, *_: Any, **named: Any) -> None:
        raise PermissionError(errno.EPERM, "there is no network in this sandbox")


def put_in_place(channel: "Channel") -> None:
    """Give them to cells under their usual names."""
    real_select: Any = select.select

    def sleep(seconds: float, /) -> None:
        """Wait; an interrupt ends it."""
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            channel.wait(deadline)

    def select_files(rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None, /) -> Any:
        """The same; waiting for nothing is a sleep, which can be interrupted."""
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
