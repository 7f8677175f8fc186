"""Scenarios of rlm in its default sandbox, for `benchmarks/engine.py`."""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: its folder is on the path, but not the one of benchmarks
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks.engines.contender import (
    Meter,
    Peak,
    bytes_in,
    context_of,
    crowd_outcome,
    serve,
    since_start,
)
from benchmarks.engines.endpoint import address
from benchmarks.engines.tasks import (
    ask_batch,
    ask_children,
    ask_each,
    count_steps,
    crowd_cell,
    crowd_ideal,
    numbered,
    once,
    token_of,
)
from benchmarks.processes import until_quiet
from rlm import RLM, Limits, RLMLogger
from rlm.messages import ModelInfo, Reply, Request, Usage

SUBMIT = "FINAL({})"
CHILDREN = "replies = rlm_query_batched(tasks)"
QUERY = "How long is it?"
PLENTY = 1_000_000
Think = Callable[[str], str]


def as_reply(cell: str) -> str:
    return f"```repl\n{cell}\n```"


class Stub:
    """A model in this process that answers with a given text, after a delay."""

    def __init__(self, think: str | Think, seconds: float = 0.0) -> None:
        self._think = think
        self._seconds = seconds
        self.asked_at: list[float] = []
        self.peak: Peak | None = None

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        self.asked_at.append(time.perf_counter())
        if self.peak is not None and len(self.asked_at) == 3:
            self.peak.look()
        if self._seconds:
            await asyncio.sleep(self._seconds)
        think = self._think
        if not isinstance(think, str):
            think = think("\n".join(str(each.content) for each in request.messages))
        return Reply(text=numbered(think), usage=Usage(12, 2), model="stub")

    async def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncIterator[str | Reply]:
        yield await self.complete(request, timeout_seconds=timeout_seconds)

    def info(self, model: str) -> ModelInfo:
        return ModelInfo()

    async def close(self) -> None:
        """Do nothing."""


def _engine(port: int, cell: str, http: bool, delay_ms: float = 0, **options: Any) -> RLM:
    """Make an engine: over HTTP both models are behind the endpoint, otherwise both are stubs."""
    if not http:
        return RLM(Stub(as_reply(cell)), sub_model=Stub("Paris", delay_ms / 1_000), **options)
    urls = {
        "openai-compatible/root": address(port, as_reply(cell)),
        "openai-compatible/sub": address(port, "Paris", delay_ms),
    }
    return RLM(
        "openai-compatible/root",
        sub_model="openai-compatible/sub",
        client_options={name: {"base_url": url, "api_key": "k"} for name, url in urls.items()},
        windows=dict.fromkeys(urls, 1_000_000),
        **options,
    )


async def _timed(engine: RLM, rounds: int, context: Any = "nothing") -> tuple[Meter, list[float]]:
    """Measure whole runs and the figures that they answered, after one that does not count."""
    await engine.aask(QUERY, context)
    meter, answers = Meter(), []
    for _ in range(rounds):
        await until_quiet()
        with meter():
            result = await engine.aask(QUERY, context)
        assert result.answer is not None, result.detail
        answers.append(float(result.answer))
    await engine.aclose()
    return meter, answers


# -- scenarios ------------------------------------------------------------------------------------


async def first_run(port: int) -> dict[str, Any]:
    engine, meter = RLM(Stub(as_reply(once(SUBMIT)))), Meter()
    with meter():
        await engine.aask(QUERY, "nothing")
    started = since_start()
    await engine.aclose()
    return {**meter.each(), "start_seconds": [started]}


async def further_runs(port: int, rounds: int, kept_ready: bool) -> dict[str, Any]:
    options: dict[str, Any] = {} if kept_ready else {"environment_kwargs": {"warm_sessions": 0}}
    meter, _ = await _timed(_engine(port, once(SUBMIT), http=False, **options), rounds)
    return meter.each()


async def steps(port: int, rounds: int, http: bool, steps: int) -> dict[str, Any]:
    limits = Limits(max_steps=steps + 1)
    base, _ = await _timed(_engine(port, count_steps(SUBMIT, 1), http), rounds)
    meter, seconds = await _timed(
        _engine(port, count_steps(SUBMIT, steps), http, limits=limits), rounds
    )
    return {"wall_seconds": seconds, "cpu_seconds": meter.above(base, steps - 1)}


async def calls(port: int, rounds: int, http: bool, calls: int) -> dict[str, Any]:
    limits = Limits(max_calls=PLENTY)
    base, _ = await _timed(_engine(port, count_steps(SUBMIT, 1), http), rounds)
    meter, seconds = await _timed(
        _engine(port, ask_each(SUBMIT, calls), http, limits=limits), rounds
    )
    return {"wall_seconds": seconds, "cpu_seconds": meter.above(base, calls)}


async def batch(
    port: int, rounds: int, http: bool, calls: int, at_once: int, delay_ms: float
) -> dict[str, Any]:
    limits = Limits(max_calls=PLENTY, max_concurrent_calls=at_once)
    engine = _engine(port, ask_batch(SUBMIT, calls), http, delay_ms, limits=limits)
    meter, seconds = await _timed(engine, rounds)
    return {"wall_seconds": seconds, "cpu_seconds": meter.cpus}


async def context(port: int, size: int, steps: int, memory: bool) -> dict[str, Any]:
    """Measure with a running zygote, as in a process that has already done something."""
    model = Stub(as_reply(count_steps(SUBMIT, steps)))
    engine = RLM(model)
    await engine.aask(QUERY, "nothing")
    await until_quiet()
    text = context_of(size)
    model.asked_at.clear()
    peak = Peak()
    model.peak = peak if memory else None
    meter, began = Meter(), time.perf_counter()
    with meter():
        result = await engine.aask(QUERY, text)
    await engine.aclose()
    return {
        "wall_seconds": [model.asked_at[1] - began],
        "cpu_seconds": meter.cpus,
        "step_seconds": [float(str(result.answer))],
        "peak_bytes": [peak.highest],
        "copies": [peak.highest / size],
    }


async def children(port: int, rounds: int, count: int) -> dict[str, Any]:
    cell = as_reply(ask_children(SUBMIT, CHILDREN, count))
    limits = Limits(max_depth=2, max_calls=PLENTY)
    engine = RLM(Stub(cell), limits=limits)
    meter, seconds = await _timed(engine, rounds)
    return {"wall_seconds": seconds, "cpu_seconds": meter.cpus}


async def log(port: int, size: int, steps: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        logger = RLMLogger(log_dir=folder)
        engine = RLM(Stub(as_reply(count_steps(SUBMIT, steps))), logger=logger)
        await engine.acompletion(context_of(size), QUERY)
        await engine.aclose()
        return {"bytes": [bytes_in(folder)]}


async def crowd(port: int, runs: int, replies: int, delay_ms: float) -> dict[str, Any]:
    seconds = delay_ms / 1_000
    engine = RLM(
        Stub(lambda shown: as_reply(crowd_cell(SUBMIT, shown, replies)), seconds),
        sub_model=Stub("Paris", seconds),
        limits=Limits(max_concurrent_calls=runs),
    )
    await engine.aask(QUERY, "0")
    await until_quiet()
    meter = Meter()
    with meter():
        asked = [engine.aask(QUERY, str(number)) for number in range(runs)]
        results = await asyncio.gather(*asked)
    await engine.aclose()
    wanted = [token_of(number) for number in range(runs)]
    answers = [each.answer for each in results]
    return crowd_outcome(meter, answers, wanted, crowd_ideal(replies, delay_ms))


def _in_a_loop(
    scenario: Callable[..., Coroutine[Any, Any, dict[str, Any]]],
) -> Callable[..., dict[str, Any]]:
    return lambda **options: asyncio.run(scenario(**options))


SCENARIOS = (first_run, further_runs, steps, calls, batch, context, children, log, crowd)

if __name__ == "__main__":
    serve({each.__name__: _in_a_loop(each) for each in SCENARIOS})
