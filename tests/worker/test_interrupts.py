"""A SIGINT at any moment around a cell: it ends the cell or is ignored, never the worker."""

import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from rlm.worker import interrupts as interrupts_module
from rlm.worker import memory, runner
from rlm.worker.interrupts import Interrupts
from rlm.worker.namespace import Namespace
from rlm.worker.runner import CellRunner, Outcome
from rlm.worker.turns import Turns

FILES = {module.__file__ for module in (interrupts_module, memory, runner)}


class Repeated(Interrupts):
    """Another signal arrives whenever a cell is about to be ended."""

    def end_cell(self) -> None:
        self._on_signal(signal.SIGINT, sys._getframe().f_back)
        super().end_cell()


@pytest.fixture(params=[Interrupts, Repeated])
def interrupts(request: pytest.FixtureRequest) -> Iterator[Interrupts]:
    made: Interrupts = request.param()
    made.open_pipes()
    yield made
    made.close_pipes()


def signalled_at(
    moment: int, interrupts: Interrupts, work: Callable[[], Any]
) -> tuple[Outcome, bool]:
    """Run work as a cell, with a signal before an instruction of ours, counted from the start.

    Also return whether there were as many instructions.
    """
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename not in FILES:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            count += 1
            if count == moment:
                interrupts._on_signal(signal.SIGINT, frame)
        return trace

    cells = CellRunner(Namespace({}), interrupts, lambda function: function, Turns())
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        outcome = cells.guard(work)
    except KeyboardInterrupt:
        raise AssertionError(f"the signal at instruction {moment} ends the worker") from None
    finally:
        sys.settrace(before)
    return outcome, count >= moment


def fails() -> None:
    raise ValueError


@pytest.mark.parametrize("how", ["ends", "fails", "is interrupted"])
def test_a_signal_at_any_moment_leaves_the_worker_alive(interrupts: Interrupts, how: str) -> None:
    def is_interrupted() -> None:
        interrupts._on_signal(signal.SIGINT, sys._getframe())

    work = {"ends": lambda: 1, "fails": fails, "is interrupted": is_interrupted}[how]
    moment = 1
    while True:
        outcome, was_sent = signalled_at(moment, interrupts, work)
        if not was_sent:
            break
        assert outcome.error is None or outcome.error["type"] in ("KeyboardInterrupt", "ValueError")
        assert not interrupts._cell_is_running
        assert not interrupts.pending
        moment += 1
    assert moment > 50


def test_a_signal_during_the_work_interrupts_it(interrupts: Interrupts) -> None:
    cells = CellRunner(Namespace({}), interrupts, lambda function: function, Turns())
    outcome = cells.guard(lambda: interrupts._on_signal(signal.SIGINT, sys._getframe()))
    assert outcome.interrupted
    assert outcome.error is not None
    assert outcome.error["type"] == "KeyboardInterrupt"


def test_a_signal_just_before_the_work_interrupts_the_cell(interrupts: Interrupts) -> None:
    variables: dict[str, Any] = {}
    cells = CellRunner(Namespace(variables), interrupts, lambda function: function, Turns())
    begin = interrupts.begin_cell

    def begin_and_signal() -> None:
        begin()
        frame = sys._getframe().f_back
        assert frame is not None
        interrupts._on_signal(signal.SIGINT, frame)

    interrupts.begin_cell = begin_and_signal  # type: ignore[method-assign]
    outcome = cells.guard(lambda: cells._run("ran = True", "<cell 1>"))
    assert outcome.interrupted
    assert "ran" not in variables


def test_a_signal_without_a_frame_interrupts_the_work(interrupts: Interrupts) -> None:
    """WebAssembly has no signals: its host calls the handler, without a frame."""
    cells = CellRunner(Namespace({}), interrupts, lambda function: function, Turns())
    assert cells.guard(lambda: interrupts._on_signal(signal.SIGINT, None)).error is not None
