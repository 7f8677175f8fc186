"""How many files of the host one step of a run enters: a measure of what a reader has to follow."""

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator
from pathlib import Path
from types import FrameType
from typing import Any

import rlm
from rlm import RLM
from rlm.environments.local.zygotes import Zygote
from rlm.events import Event, StepStarted
from rlm.messages import ModelInfo, Reply, Request

PACKAGE = Path(rlm.__file__).parent
CELLS = ("print(len(context))", "found = context.find('ferry')\nprint(found)", "SUBMIT(str(found))")
MEASURED_STEP = 2
MAX_FILES = 20


class Model:
    """Replies with one cell per step. It is not a file of the package, so it is not counted."""

    def __init__(self) -> None:
        self._cells = iter(CELLS)

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        return Reply(text=f"```repl\n{next(self._cells)}\n```")

    async def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        yield await self.complete(request, timeout_seconds=timeout_seconds)

    def info(self, model: str) -> ModelInfo:
        return ModelInfo()

    async def close(self) -> None: ...


class Profile:
    """Counts the functions that are called from the start of one step to the start of the next.

    Functions that were waiting when the step began, such as `RLM.aask`, are not counted, nor is
    what runs in the background: after a session has opened, workers are prepared for the next.
    """

    def __init__(self) -> None:
        self.entered: dict[str, set[str]] = defaultdict(set)
        self._waiting: set[FrameType] | None = None
        self._others: set[asyncio.Task[Any] | None] = set()

    def record(self, event: Event) -> None:
        if isinstance(event, StepStarted):
            self._waiting = _stack() if event.step == MEASURED_STEP else None
            now = asyncio.current_task()
            self._others = {each for each in asyncio.all_tasks() if each is not now}

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        if self._waiting is None or event != "call" or frame in self._waiting:
            return
        if asyncio.current_task() in self._others or _is_background(frame):
            return
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            self.entered[str(path.relative_to(PACKAGE))].add(frame.f_code.co_qualname)


def _is_background(frame: FrameType | None) -> bool:
    """Whether a timer called it, which prepares workers for later sessions."""
    while frame is not None:
        if frame.f_code is Zygote.refill.__code__:
            return True
        frame = frame.f_back
    return False


def _stack() -> set[FrameType]:
    frames = set()
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        frames.add(frame)
        frame = frame.f_back
    return frames


async def test_one_step_in_the_local_environment() -> None:
    profile = Profile()
    async with RLM(Model(), environment="local") as engine:
        sys.setprofile(profile.note)
        try:
            result = await engine.aask("Where?", "The ferry left at noon.", recorders=(profile,))
        finally:
            sys.setprofile(None)
    assert result.answer == "4"
    assert {"engine/loop.py", "engine/sessions.py", "calls/calls.py"} <= profile.entered.keys()
    for file, functions in sorted(profile.entered.items()):
        print(f"{file}: {', '.join(sorted(functions))}")
    count = sum(map(len, profile.entered.values()))
    print(f"one step enters {len(profile.entered)} host files and {count} functions")
    assert len(profile.entered) <= MAX_FILES
