"""A log of 200 MB, as a run over a very large context leaves it."""

import random
from pathlib import Path
from typing import Any

from rlm.events import CallEnded, CallStarted, CellEnded, CellOutput, CellStarted, StepStarted
from rlm.logger import encoded
from tests.records.trajectories.samples import USAGE, ended, replied, started

__all__ = ["BUSY_CALLS", "BYTES", "NEEDLE", "QUERY", "write_large_log"]

BYTES = 200_000_000
BUSY_CALLS = 5_000
"""Calls of the first step, which are listed in one place."""

CALLS = 400
PROMPT_CHARS = 4_000
QUERY = "What do all of these say?"
NEEDLE = "the purple heron has landed"


def write_large_log(path: Path, max_bytes: int = BYTES) -> int:
    """How many steps the log has. One prompt near its end has a unique text."""
    rnd = random.Random(1)
    words = [f"word{number}" for number in range(5_000)]
    text = " ".join(rnd.choices(words, k=100_000))
    written, step, now = 0, 0, 1_790_000_000.0
    with path.open("wb") as file:

        def put(event: Any) -> None:
            nonlocal written
            written += file.write(encoded(event) + b"\n")

        put(started("large", query=QUERY, wall_time=now))
        while written < max_bytes:
            step += 1
            now += 1
            at: dict[str, Any] = {"run_id": "large", "step": step, "wall_time": now}
            put(StepStarted(**at))
            put(replied("large", step, f"Step {step}.", wall_time=now))
            put(CellStarted(**at, cell=1, code="notes = llm_query_batched(prompts)"))
            is_last = written + CALLS * PROMPT_CHARS > max_bytes
            for number in range(BUSY_CALLS if step == 1 else CALLS):
                now += 0.002
                place = rnd.randrange(len(text) - PROMPT_CHARS)
                prompt = f"Part {number}: {text[place : place + PROMPT_CHARS]}"
                if is_last and number == 7:
                    prompt = f"Part 7: {NEEDLE}"
                call: dict[str, Any] = {"call_id": f"large.{step}.{number}", "kind": "llm"}
                call |= {"model": "s", "run_id": "large", "step": step}
                put(CallStarted(**call, prompt=prompt, wall_time=now))
                put(CallEnded(**call, reply="noted", usage=USAGE, seconds=0.5, wall_time=now + 0.5))
            put(
                CellOutput(
                    **at, cell=1, stream="stdout", text=f"output of step {step}", written_chars=20
                )
            )
            put(CellEnded(**at, cell=1, seconds=1.0, calls=CALLS))
        put(ended("large", step=step, steps=step, wall_time=now))
    return step
