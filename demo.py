"""Find one line in ten megabytes that no model ever reads whole.

The root model gets a short query; the ten megabytes are the variable `context` in its REPL. It
searches them with code, and a child run with a fresh REPL and a fresh history reads what it found.

Set `RLM_MODEL=provider/model` (also in a `.env` file) to use that model. Without it, the demo uses
Groq if `GROQ_API_KEY` is set, else the first provider with a key, else the built-in offline model.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from examples.haystack import make_haystack
from rlm import RLM, Limits
from rlm.cli.dotenv import settings
from rlm.events import CallEnded, Event, RunEnded, RunStarted
from rlm.records.recorders import ConsoleRecorder
from rlm.wiring.registry import OFFLINE_MODEL, PROVIDERS, default_model

SIZE_BYTES = 10_000_000
HINT = "Find the passage with code, then let a child run read it: rlm_query(task, context=passage)."


def children(events: tuple[Event, ...]) -> list[str]:
    """Return one line per child run: its query and its answer."""
    asked = {e.run_id: e.query for e in events if isinstance(e, RunStarted) and e.depth}
    return [
        f"{asked[e.run_id]!r} → {e.answer!r}"
        for e in events
        if isinstance(e, RunEnded) and e.run_id in asked
    ]


def demo_model(variables: Mapping[str, str]) -> str:
    """Return RLM_MODEL, else Groq's model, which is free, else that of any key there is."""
    groq = PROVIDERS["groq"]
    if not variables.get("RLM_MODEL") and any(map(variables.get, groq.key_variables)):
        return f"groq/{groq.default_model}"
    return default_model(variables) or OFFLINE_MODEL


def main() -> int:
    variables = settings(os.environ, Path.cwd()).variables
    model = demo_model(variables)
    haystack = make_haystack(SIZE_BYTES, seed=7)
    print(f"Context:  {len(haystack.text):,} characters")
    print(f"Question: {haystack.question}")
    print(f"Model:    {model}")
    if model == OFFLINE_MODEL:
        print("          (no model is configured; this one only finds passages)")
    sys.stdout.flush()
    limits = Limits(max_depth=2, max_calls=200, max_seconds=600)
    console = ConsoleRecorder(sys.stderr)
    with RLM(model, variables=variables, limits=limits, prologue=HINT, recorders=[console]) as rlm:
        result = rlm.completion(haystack.text, root_prompt=haystack.question).result
    right = haystack.value in (result.answer or "")
    print(f"\nAnswer:   {result.answer}")
    print(f"          {'right' if right else 'WRONG'}: the needle says {haystack.value}")
    for line in children(result.events):
        print(f"Child:    {line}")
    calls = sum(isinstance(event, CallEnded) for event in result.events)
    print(
        f"Used:     {result.steps} steps, {calls} calls, "
        f"{result.usage.total.input_tokens:,} tokens read of about {len(haystack.text) // 4:,}, "
        f"{result.seconds:.1f} s"
    )
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
