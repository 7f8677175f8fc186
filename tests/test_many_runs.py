"""Two hundred runs at once in one process: none touches another, or the host."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from rlm import RLM, ScriptedClient
from rlm.environments.local import zygotes
from rlm.events import SessionOpened
from rlm.messages import Request
from tests.environments.footprint import descendants

RUNS = 200
KEPT_READY = 2
"""Sessions that may be kept ready after the first run, for the next ones."""

CELL = """```repl
import os, sys, random
os.environ["MINE"] = context
os.chdir("/")
os.umask(0o777)
print(context, random.random())
sys.stdout = None
FINAL(f"{context} {os.environ['MINE']} {llm_query(context)}")
```"""


def answer(request: Request) -> str:
    last = str(request.messages[-1].content)
    return CELL if "REPL" in str(request.messages[0].content) else f"re:{last}"


async def test_two_hundred_runs_at_once() -> None:
    before = (Path.cwd(), sys.stdout, dict(os.environ), signal.getsignal(signal.SIGINT))
    umask = os.umask(0)
    os.umask(umask)
    zygotes.close_all()  # One that reaches its thousandth session here would get a successor.
    engine = RLM(ScriptedClient(rules=[("", answer)]), environment="local")
    await engine.aask("Which one are you?", "the first, which starts what is kept")
    processes = len(descendants(os.getpid()))
    asked = [engine.aask("Which one are you?", f"run-{n}") for n in range(RUNS)]
    results = await asyncio.gather(*asked)
    await engine.aclose()
    assert [r.answer for r in results] == [f"run-{n} run-{n} re:run-{n}" for n in range(RUNS)]
    assert len({r.run_id for r in results}) == RUNS
    for n, result in enumerate(results):
        assert {event.run_id for event in result.events} == {result.run_id}
        assert result.usage.total.requests == 2
        assert f"run-{n} " in str(result.events)
        (opened,) = [event for event in result.events if isinstance(event, SessionOpened)]
        assert "seccomp" in opened.layers
    after = (Path.cwd(), sys.stdout, dict(os.environ), signal.getsignal(signal.SIGINT))
    assert after == before
    assert os.umask(umask) == umask
    async with asyncio.timeout(30):  # what has ended may take a moment to be gone
        while len(descendants(os.getpid())) > processes + KEPT_READY:
            await asyncio.sleep(0.05)
