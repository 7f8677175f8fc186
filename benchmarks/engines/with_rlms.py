"""Scenarios of the reference engine, `rlms`, as installed, for `benchmarks/engine.py`.

Its client is replaced by a stub in scenarios without HTTP. The width of a batch, for which it has
no setting, is raised too, so that all engines do the same work.
"""

import importlib
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
    faster,
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

reference: Any = importlib.import_module("rlm")
core: Any = importlib.import_module("rlm.core.rlm")
handlers: Any = importlib.import_module("rlm.core.lm_handler")
loggers: Any = importlib.import_module("rlm.logger")
types: Any = importlib.import_module("rlm.core.types")
base: Any = importlib.import_module("rlm.clients.base_lm")

SUBMIT = 'answer["content"] = {}; answer["ready"] = True'
CHILDREN = "replies = rlm_query_batched(tasks)"
QUERY = "How long is it?"
Think = Callable[[str], str]


def _shown(cell: str) -> str:
    return f"```repl\n{cell}\n```"


class Stub(base.BaseLM):  # type: ignore[misc]
    """A model in this process, made for every run like the engine's own clients."""

    asked_at: list[float] = []  # noqa: RUF012 - of all of them, on purpose

    def __init__(self, think: str | Think, seconds: float) -> None:
        super().__init__(model_name="stub")
        self._think = think
        self._seconds = seconds

    def _answer(self, prompt: Any) -> str:
        if isinstance(self._think, str):
            return numbered(self._think)
        return self._think(str(prompt))

    def completion(self, prompt: Any) -> str:
        self.asked_at.append(time.perf_counter())
        if self._seconds:
            time.sleep(self._seconds)
        return self._answer(prompt)

    async def acompletion(self, prompt: Any) -> str:
        if self._seconds:
            import asyncio

            await asyncio.sleep(self._seconds)
        return self._answer(prompt)

    def get_usage_summary(self) -> Any:
        return types.UsageSummary(model_usage_summaries={"stub": self.get_last_usage()})

    def get_last_usage(self) -> Any:
        return types.ModelUsageSummary(1, 12, 2)


def _stubbed(root: str | Think, sub: str = "Paris", seconds: float = 0, delay: float = 0) -> None:
    def get_client(backend: str, given: dict[str, Any]) -> Stub:
        if given["model_name"] == "sub":
            return Stub(sub, delay)
        return Stub(root, seconds)

    core.get_client = get_client


def _engine(port: int, cell: str, http: bool, delay_ms: float = 0, **options: Any) -> Any:
    if not http:
        _stubbed(_shown(cell), delay=delay_ms / 1_000)
    urls = {"root": address(port, _shown(cell)), "sub": address(port, "Paris", delay_ms)}
    given = {
        name: {"model_name": name, "base_url": url, "api_key": "k"} for name, url in urls.items()
    }
    return reference.RLM(
        backend="openai",
        backend_kwargs=given["root"],
        other_backends=["openai"],
        other_backend_kwargs=[given["sub"]],
        **options,
    )


def _timed(engine: Any, rounds: int) -> tuple[Meter, list[float]]:
    engine.completion("nothing", root_prompt=QUERY)
    meter, answers = Meter(), []
    for _ in range(rounds):
        with meter():
            result = engine.completion("nothing", root_prompt=QUERY)
        answers.append(float(result.response))
    return meter, answers


# -- scenarios ------------------------------------------------------------------------------------


def first_run(port: int) -> dict[str, Any]:
    engine, meter = _engine(port, once(SUBMIT), http=False), Meter()
    with meter():
        engine.completion("nothing", root_prompt=QUERY)
    return {**meter.each(), "start_seconds": [since_start()]}


def further_runs(port: int, rounds: int, kept_ready: bool) -> dict[str, Any]:
    """Measure further runs; `persistent` keeps a conversation's variables, not a fresh REPL."""
    meter, _ = _timed(_engine(port, once(SUBMIT), http=False), rounds)
    return meter.each()


def steps(port: int, rounds: int, http: bool, steps: int) -> dict[str, Any]:
    least, _ = _timed(_engine(port, count_steps(SUBMIT, 1), http), rounds)
    engine = _engine(port, count_steps(SUBMIT, steps), http, max_iterations=steps + 1)
    meter, seconds = _timed(engine, rounds)
    return {"wall_seconds": seconds, "cpu_seconds": meter.above(least, steps - 1)}


def calls(port: int, rounds: int, http: bool, calls: int) -> dict[str, Any]:
    least, _ = _timed(_engine(port, count_steps(SUBMIT, 1), http), rounds)
    meter, seconds = _timed(_engine(port, ask_each(SUBMIT, calls), http), rounds)
    return {"wall_seconds": seconds, "cpu_seconds": meter.above(least, calls)}


def batch(
    port: int, rounds: int, http: bool, calls: int, at_once: int, delay_ms: float
) -> dict[str, Any]:
    """Measure its default of 16 concurrent calls, then the width of the others."""
    engine = _engine(port, ask_batch(SUBMIT, calls), http, delay_ms)
    meter, seconds = _timed(engine, rounds)
    shipped = {"wall_seconds": seconds, "cpu_seconds": meter.cpus}
    _widen(at_once)
    meter, seconds = _timed(engine, rounds)
    return faster(shipped, {"wall_seconds": seconds, "cpu_seconds": meter.cpus})


def _widen(at_once: int) -> None:
    made = handlers.LMHandler.__init__

    def wider(self: Any, *args: Any, **given: Any) -> None:
        made(self, *args, **{**given, "batch_max_concurrent": at_once})

    handlers.LMHandler.__init__ = wider


def context(port: int, size: int, steps: int, memory: bool) -> dict[str, Any]:
    engine = _engine(port, count_steps(SUBMIT, steps), http=False)
    engine.completion("nothing", root_prompt=QUERY)
    text = context_of(size)
    Stub.asked_at.clear()
    peak, meter = Peak(), Meter()
    began = time.perf_counter()
    with meter():
        result = engine.completion(text, root_prompt=QUERY)
    return {
        "wall_seconds": [Stub.asked_at[1] - began],
        "cpu_seconds": meter.cpus,
        "step_seconds": [float(result.response)],
        "peak_bytes": [peak.look()],
        "copies": [peak.highest / size],
    }


def children(port: int, rounds: int, count: int) -> dict[str, Any]:
    cell = ask_children(SUBMIT, CHILDREN, count)
    engine = _engine(port, cell, http=False, max_depth=2, max_concurrent_subcalls=count)
    meter, seconds = _timed(engine, rounds)
    return {"wall_seconds": seconds, "cpu_seconds": meter.cpus}


def log(port: int, size: int, steps: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        logger = loggers.RLMLogger(log_dir=folder)
        engine = _engine(port, count_steps(SUBMIT, steps), http=False, logger=logger)
        engine.completion(context_of(size), root_prompt=QUERY)
        return {"bytes": [bytes_in(folder)]}


def crowd(port: int, runs: int, replies: int, delay_ms: float) -> dict[str, Any]:
    """Use a thread and an engine for each run, because it has no asynchronous form."""
    seconds = delay_ms / 1_000
    _stubbed(
        lambda shown: _shown(crowd_cell(SUBMIT, shown, replies)), seconds=seconds, delay=seconds
    )

    def run(number: int) -> str:
        engine = reference.RLM(
            backend="openai",
            backend_kwargs={"model_name": "root"},
            other_backends=["openai"],
            other_backend_kwargs=[{"model_name": "sub"}],
            max_iterations=replies + 2,
        )
        try:
            return str(engine.completion(str(number), root_prompt=QUERY).response)
        except Exception as error:  # noqa: BLE001 - a run that fails is not right
            return repr(error)

    run(0)
    meter = Meter()
    with meter(), ThreadPoolExecutor(runs) as pool:
        answers = list(pool.map(run, range(runs)))
    wanted = [token_of(number) for number in range(runs)]
    return crowd_outcome(meter, answers, wanted, crowd_ideal(replies, delay_ms))


SCENARIOS = (first_run, further_runs, steps, calls, batch, context, children, log, crowd)

if __name__ == "__main__":
    serve({each.__name__: each for each in SCENARIOS})
