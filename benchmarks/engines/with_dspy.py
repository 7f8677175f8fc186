"""Scenarios of `dspy.RLM` with its local interpreter, for `benchmarks/engine.py`.

Its default interpreter needs Deno and starts far slower; this is its faster setting. Its cache and
its history, which help to inspect prompts afterwards, are off.
"""

import importlib
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: its folder is on the path, but not the one of benchmarks
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks.engines.contender import (
    CantDo,
    Meter,
    Peak,
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

warnings.simplefilter("ignore")
dspy: Any = importlib.import_module("dspy")
lm15: Any = importlib.import_module("dspy.lm15")
locals_: Any = importlib.import_module("dspy.primitives.local_interpreter")

SUBMIT = "SUBMIT(answer=str({}))"
CHILDREN = """\
import dspy
from concurrent.futures import ThreadPoolExecutor
def ask(task):
    return dspy.RLM("context, query -> answer")(context=task, query="?").answer
with ThreadPoolExecutor(len(tasks)) as pool:
    replies = list(pool.map(ask, tasks))"""
QUERY = "How long is it?"
PLENTY = 1_000_000
Think = Callable[[str], str]


def _shown(cell: str) -> str:
    return f"[[ ## reasoning ## ]]\nx\n\n[[ ## code ## ]]\n{cell}\n\n[[ ## completed ## ]]"


class Stub:
    """A model in this process, as a model of dspy."""

    def __init__(self, think: str | Think, seconds: float = 0.0) -> None:
        self._think = think
        self._seconds = seconds
        self.asked_at: list[float] = []
        self.peak: Peak | None = None

    def complete(self, request: Any) -> Any:
        self.asked_at.append(time.perf_counter())
        if self.peak is not None and len(self.asked_at) == 3:
            self.peak.look()
        if self._seconds:
            time.sleep(self._seconds)
        think = self._think
        if not isinstance(think, str):
            think = think("\n".join(each.text or "" for each in request.messages))
        return lm15.Response(
            id=None,
            model="stub",
            message=lm15.Message.assistant([lm15.TextPart(numbered(think))]),
            finish_reason="stop",
            usage=lm15.Usage(input_tokens=12, output_tokens=2, total_tokens=14),
        )


def _lm(think: str | Think, seconds: float = 0.0) -> tuple[Any, Stub]:
    stub = Stub(think, seconds)
    return dspy.LM("stub/stub", engine=stub, cache=False), stub


def _over_http(url: str) -> Any:
    return dspy.LM("openai/m", api_base=url, api_key="k", cache=False)


def _engine(port: int, cell: str, http: bool, delay_ms: float = 0, **options: Any) -> Any:
    if http:
        root = _over_http(address(port, _shown(cell)))
        sub = _over_http(address(port, "Paris", delay_ms))
    else:
        root, sub = _lm(_shown(cell))[0], _lm("Paris", delay_ms / 1_000)[0]
    return _with(root, sub, **options)


def _with(root: Any, sub: Any, **options: Any) -> Any:
    dspy.configure(lm=root, disable_history=True)
    return dspy.RLM(
        "context, query -> answer",
        sub_lm=sub,
        interpreter_factory=locals_.LocalInterpreter,
        **{"max_llm_calls": PLENTY, **options},
    )


def _timed(engine: Any, rounds: int) -> tuple[Meter, list[float]]:
    engine(context="nothing", query=QUERY)
    meter, answers = Meter(), []
    for _ in range(rounds):
        with meter():
            result = engine(context="nothing", query=QUERY)
        answers.append(float(result.answer))
    return meter, answers


# -- scenarios ------------------------------------------------------------------------------------


def first_run(port: int) -> dict[str, Any]:
    engine, meter = _engine(port, once(SUBMIT), http=False), Meter()
    with meter():
        engine(context="nothing", query=QUERY)
    return {**meter.each(), "start_seconds": [since_start()]}


def further_runs(port: int, rounds: int, kept_ready: bool) -> dict[str, Any]:
    """Measure further runs; dspy shuts down every interpreter, so none can be kept ready."""
    meter, _ = _timed(_engine(port, once(SUBMIT), http=False), rounds)
    return meter.each()


def steps(port: int, rounds: int, http: bool, steps: int) -> dict[str, Any]:
    least, _ = _timed(_engine(port, count_steps(SUBMIT, 1), http), rounds)
    engine = _engine(port, count_steps(SUBMIT, steps), http, max_iters=steps + 1)
    meter, seconds = _timed(engine, rounds)
    return {"wall_seconds": seconds, "cpu_seconds": meter.above(least, steps - 1)}


def calls(port: int, rounds: int, http: bool, calls: int) -> dict[str, Any]:
    least, _ = _timed(_engine(port, count_steps(SUBMIT, 1), http), rounds)
    meter, seconds = _timed(_engine(port, ask_each(SUBMIT, calls), http), rounds)
    return {"wall_seconds": seconds, "cpu_seconds": meter.above(least, calls)}


def batch(
    port: int, rounds: int, http: bool, calls: int, at_once: int, delay_ms: float
) -> dict[str, Any]:
    """Measure its default of 8 concurrent calls, then the width of the others."""
    engine = _engine(port, ask_batch(SUBMIT, calls), http, delay_ms)
    meter, seconds = _timed(engine, rounds)
    shipped = {"wall_seconds": seconds, "cpu_seconds": meter.cpus}
    made = type(engine)._make_llm_tools
    type(engine)._make_llm_tools = lambda self, budget=None: made(self, budget, at_once)
    meter, seconds = _timed(engine, rounds)
    return faster(shipped, {"wall_seconds": seconds, "cpu_seconds": meter.cpus})


def context(port: int, size: int, steps: int, memory: bool) -> dict[str, Any]:
    if size >= 1 << 30:
        raise CantDo("a context travels to the interpreter as JSON with every step")
    model, stub = _lm(_shown(count_steps(SUBMIT, steps)))
    engine = _with(model, model)
    engine(context="nothing", query=QUERY)
    text = context_of(size)
    stub.asked_at.clear()
    peak, meter = Peak(), Meter()
    stub.peak = peak if memory else None
    began = time.perf_counter()
    with meter():
        result = engine(context=text, query=QUERY)
    return {
        "wall_seconds": [stub.asked_at[1] - began],
        "cpu_seconds": meter.cpus,
        "step_seconds": [float(result.answer)],
        "peak_bytes": [peak.look()],
        "copies": [peak.highest / size],
    }


def children(port: int, rounds: int, count: int) -> dict[str, Any]:
    model, _ = _lm(_shown(ask_children(SUBMIT, CHILDREN, count)))
    meter, seconds = _timed(_with(model, model), rounds)
    return {"wall_seconds": seconds, "cpu_seconds": meter.cpus}


def log(port: int, size: int, steps: int) -> dict[str, Any]:
    raise CantDo("it writes no log")


def crowd(port: int, runs: int, replies: int, delay_ms: float) -> dict[str, Any]:
    """Use `dspy.Parallel`: in an event loop its runs would wait for each other's cells."""
    seconds = delay_ms / 1_000
    model, _ = _lm(lambda shown: _shown(crowd_cell(SUBMIT, shown, replies)), seconds)
    engine = _with(model, _lm("Paris", seconds)[0], max_iters=replies + 2)
    engine(context="0", query=QUERY)
    examples = [
        dspy.Example(context=str(number), query=QUERY).with_inputs("context", "query")
        for number in range(runs)
    ]
    parallel = dspy.Parallel(num_threads=runs, disable_progress_bar=True, max_errors=runs)
    meter = Meter()
    with meter():
        found = parallel([(engine, each) for each in examples])
    answers = [getattr(each, "answer", None) for each in found]
    wanted = [token_of(number) for number in range(runs)]
    return crowd_outcome(meter, answers, wanted, crowd_ideal(replies, delay_ms))


SCENARIOS = (first_run, further_runs, steps, calls, batch, context, children, log, crowd)

if __name__ == "__main__":
    serve({each.__name__: each for each in SCENARIOS})
