"""The event loop of cells: when it has nothing to do, it looks into the shared file."""

import asyncio
import functools
import time
from asyncio import base_events
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

from rlm.environments.wasm.guest.stand_ins import ThreadPoolExecutor

if TYPE_CHECKING:
    from rlm.environments.wasm.guest.channel import Channel

__all__ = ["make_default"]

_Given = TypeVarTuple("_Given")
_Result = TypeVar("_Result")


class _Selector:
    """What a loop waits with; nothing but the host can have anything to say."""

    def __init__(self, channel: "Channel") -> None:
        self._channel = channel

    def select(self, timeout_seconds: float | None) -> list[Any]:
        """Wait until something came, and no longer than that."""
        if timeout_seconds is None:
            self._channel.wait()
        else:
            self._channel.wait(time.monotonic() + timeout_seconds)
        return []

    def close(self) -> None:
        """Nothing is open."""


class _PollingLoop(base_events.BaseEventLoop):
    def __init__(self, channel: "Channel") -> None:
        super().__init__()
        self._selector = _Selector(channel)

    def _process_events(self, events: list[Any]) -> None:
        """None come from the selector: the channel settles futures itself."""

    def _write_to_self(self) -> None:
        """There is no other thread that could wake this one."""

    def add_reader(
        self, fd: Any, callback: Callable[[Unpack[_Given]], Any], *args: *_Given
    ) -> None:
        """Interrupts come by the shared file; nothing else can be read from."""
        if fd != -1:
            raise NotImplementedError("there are no files to wait for in WebAssembly")

    def run_in_executor(
        self, executor: Any, func: Callable[[Unpack[_Given]], _Result], *args: *_Given
    ) -> "asyncio.Future[_Result]":
        """Run it here and now: there are no threads."""
        return asyncio.wrap_future(ThreadPoolExecutor().submit(func, *args), loop=self)


def make_default(channel: "Channel") -> None:
    """Have `asyncio.run` and `asyncio.new_event_loop` make loops of this kind."""
    events: Any = asyncio.events
    events._set_running_loop(None)  # The runtime leaves one of its own there.
    type(events._get_event_loop_policy())._loop_factory = staticmethod(
        functools.partial(_PollingLoop, channel)
    )
