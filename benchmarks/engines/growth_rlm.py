"""Measure how the cost of rlm grows: one scenario, five axes, for `benchmarks/engine.py`."""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: its folder is on the path, but not the one of benchmarks
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks.engines.contender import context_of, cpu_below, serve
from benchmarks.engines.tasks import ask_batch, ask_children, count_steps, once
from benchmarks.engines.with_rlm import CHILDREN, PLENTY, QUERY, SUBMIT, Stub, as_reply
from benchmarks.processes import until_quiet
from rlm import RLM, Limits

_SETTLE_SECONDS = 0.3
"""Time for sandboxes to end: their processor time counts when they have."""


def _engine(axis: str, size: int) -> RLM:
    cell = {
        "steps": lambda: count_steps(SUBMIT, size),
        "batch": lambda: ask_batch(SUBMIT, size),
        "children": lambda: ask_children(SUBMIT, CHILDREN, size),
    }.get(axis, lambda: once(SUBMIT))()
    limits = Limits(
        max_steps=size + 1 if axis == "steps" else 30,
        max_depth=2 if axis == "children" else 1,
        max_calls=PLENTY,
        max_concurrent_calls=128,
    )
    sub = Stub("Paris") if axis == "batch" else None
    return RLM(Stub(as_reply(cell)), sub_model=sub, limits=limits)


async def _grown(axis: str, size: int, rounds: int) -> dict[str, Any]:
    engine = _engine(axis, size)
    text = context_of(size) if axis == "context" else "nothing"
    warm = RLM(Stub(as_reply(once(SUBMIT))))
    await warm.aask(QUERY, "nothing")
    walls, cpus = [], []
    for _ in range(rounds):
        await until_quiet()
        below, own, began = cpu_below(), time.process_time(), time.perf_counter()
        runs = size if axis == "runs" else 1
        results = await asyncio.gather(*(engine.aask(QUERY, text) for _ in range(runs)))
        walls.append(time.perf_counter() - began)
        own = time.process_time() - own
        await asyncio.sleep(_SETTLE_SECONDS)
        cpus.append(own + cpu_below() - below)
        assert all(each.stop_reason == "answer" for each in results), results[0]
    await engine.aclose()
    await warm.aclose()
    return {"wall_seconds": walls, "cpu_seconds": cpus}


def grown(axis: str, size: int, rounds: int) -> dict[str, Any]:
    """Return the cost of whole runs of a size, for this process and its sandboxes together."""
    return asyncio.run(_grown(axis, size, rounds))


if __name__ == "__main__":
    serve({"grown": grown})
