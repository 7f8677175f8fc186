"""Signals in an event loop, on loops that can listen for them and on those that can't."""

import asyncio
import os
import signal

import pytest

from rlm._util.signals import listen, stop_listening
from tests.other_systems import WindowsLoop


@pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, WindowsLoop])
def test_signals_are_received_until_listening_stops(loop: type[asyncio.AbstractEventLoop]) -> None:
    async def count() -> int:
        heard = asyncio.Event()
        times = 0

        def note() -> None:
            nonlocal times
            times += 1
            heard.set()

        listen((signal.SIGTERM, signal.SIGINT), note)
        for number in (signal.SIGTERM, signal.SIGINT):
            heard.clear()
            os.kill(os.getpid(), number)
            await heard.wait()
        stop_listening((signal.SIGTERM, signal.SIGINT))
        return times

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(count()) == 2
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
