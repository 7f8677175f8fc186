"""Find one line in ten megabytes that no model ever reads whole.

The root model gets a short query; the ten megabytes are the variable `context` in its REPL. It
searches them with code, and a child run with a fresh REPL and a fresh history reads what it found.

`make demo` runs it with `--scripted`: a script plays the part of a model, so no key is used and
nothing is billed. Its replies were written in advance, and everything else is real.
`make demo MODEL=provider/model` uses that model.

`python demo.py` takes the model of `RLM_MODEL=provider/model` (also in a `.env` file). Without it,
it uses Groq if `GROQ_API_KEY` is set, else the first provider with a key, else the script.
"""

import argparse
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from examples.haystack import make_haystack
from rlm import RLM, Limits
from rlm._util.text import counted
from rlm.cli.dotenv import settings
from rlm.events import CallEnded, Event, RunEnded, RunStarted
from rlm.messages import Price
from rlm.records.recorders import ConsoleRecorder
from rlm.results import RunResult
from rlm.testing import ScriptedClient
from rlm.wiring.registry import OFFLINE_MODEL, PROVIDERS, default_model

SIZE_BYTES = 10_000_000
HINT = (
    "Find the passage with code, then let a child run read it: rlm_query(task, context=passage). "
    "Before you answer, cite the place: cite(start, end)."
)
REPLIES = (
    """I look at the context before I search it.

```repl
print(ctx.describe())
print(peek(200))
```""",
    """It is a log. I search it with code for the key that the question names.

```repl
key = {key!r}
hits = ctx.find(key)
print(hits)
```""",
    """One place. A child run reads the text around it, and I cite the line.

```repl
start, end, _ = hits[0]
passage = ctx.slice(start - 300, end + 300)
code = rlm_query({question!r}, context=passage)
first = context.rfind("\\n", 0, start) + 1
cite(first, context.find("\\n", end))
FINAL(code)
```""",
    """This is short enough to read at once.

```repl
import re
line = next(line for line in context.splitlines() if {key!r} in line)
FINAL(re.findall(r"\\d{{7}}", line)[-1])
```""",
)
"""What the script answers: three steps of the root run, and one of its child run."""


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


def script(question: str) -> ScriptedClient:
    """Return a client that replies as a model might."""
    key = re.split(r"\s", question.rstrip("?"))[-1]
    replies = [reply.format(key=key, question=question) for reply in REPLIES]
    return ScriptedClient(replies, price=Price(0.0, 0.0))


def report(result: RunResult, text: str) -> None:
    """Print what supports the answer, what it took, and how to look at the run."""
    for citation in result.citations:
        print(f"Source:   {citation.label}, characters {citation.start:,} to {citation.end:,}:")
        print(f"          {' '.join(citation.text.split())[:200]}")
    for line in children(result.events):
        print(f"Child:    {line}")
    calls = sum(isinstance(event, CallEnded) for event in result.events)
    cost = "" if result.cost_usd is None else f"${result.cost_usd:.4f}, "
    print(
        f"Used:     {counted(result.steps, 'step')}, {counted(calls, 'call')}, "
        f"{result.usage.total.input_tokens:,} tokens read of about {len(text) // 4:,}, "
        f"{cost}{result.seconds:.1f} s"
    )
    command = Path(sys.executable).with_name("rlm")
    rlm = os.path.relpath(command) if command.is_file() else "rlm"
    print(f"\nLook at it:             {rlm} show last")
    print(f"In a browser:           {rlm} view last --open")
    print(f'Ask about your files:   {rlm} ask "…" -f FOLDER')


def arguments() -> argparse.Namespace:
    """Return which model the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("--scripted", action="store_true", help="use no model, but a script")
    asked.add_argument("--model", metavar="PROVIDER/MODEL", help="use this model")
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    variables = settings(os.environ, Path.cwd()).variables
    model = OFFLINE_MODEL if asked.scripted else asked.model or demo_model(variables)
    haystack = make_haystack(SIZE_BYTES, seed=7)
    print(f"Context:  {len(haystack.text):,} characters")
    print(f"Question: {haystack.question}")
    if model == OFFLINE_MODEL:
        print("Model:    none: a script plays its part, with replies that were written in advance.")
        print("          The sandbox, the code, the child run and the citation are real.")
    else:
        print(f"Model:    {model}")
    sys.stdout.flush()
    limits = Limits(max_depth=2, max_calls=200, max_seconds=600)
    console = ConsoleRecorder(sys.stderr, verbose=True)
    with RLM(
        script(haystack.question) if model == OFFLINE_MODEL else model,
        variables=variables,
        limits=limits,
        prologue=HINT,
        recorders=[console],
        journal=True,
    ) as rlm:
        result = rlm.completion(haystack.text, root_prompt=haystack.question).result
    right = haystack.value in (result.answer or "")
    print(f"\nAnswer:   {result.answer}")
    print(f"          {'right' if right else 'WRONG'}: the needle says {haystack.value}")
    report(result, haystack.text)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
