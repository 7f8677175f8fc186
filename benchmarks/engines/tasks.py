"""Replies of models in the scenarios, the same for every engine except how each submits.

`submit` is an engine's own template: `FINAL({})`, `SUBMIT(answer={})` and so on. A repeated cell
counts for itself, so one reply of a model serves a whole run.
"""

import itertools
import re

__all__ = [
    "PROMPT",
    "SERIAL",
    "ask_batch",
    "ask_children",
    "ask_each",
    "count_steps",
    "crowd_cell",
    "crowd_ideal",
    "numbered",
    "once",
    "token_of",
]

PROMPT = "What is the capital of France? Answer in one word."
SERIAL = "SERIAL"
"""In a reply, replaced by another number each time; engines may object to repeated cells."""

_numbers = itertools.count(100_000_000)
_TOKEN = re.compile(r"token-(\d+)")


def numbered(reply: str) -> str:
    """Fill the number into a reply of a stub, as the endpoint does."""
    return reply.replace(SERIAL, str(next(_numbers)))


def once(submit: str) -> str:
    """Return a reply that answers in the first step."""
    return submit.format("len(context)")


def count_steps(submit: str, steps: int) -> str:
    """Return a cell whose answer is the mean of seconds between steps; 0 for one step."""
    return f"""\
import time
now, size = time.perf_counter(), len(context) + {SERIAL}
try:
    number += 1
except NameError:
    number, began = 1, now
print(number)
if number == {steps}:
    {submit.format(f"(now - began) / {max(1, steps - 1)}")}"""


def ask_each(submit: str, calls: int) -> str:
    """Return a cell whose answer is the mean seconds per call, without the first one."""
    return f"""\
import time
llm_query({PROMPT!r})
began = time.perf_counter()
for _ in range({calls}):
    reply = llm_query({PROMPT!r})
assert reply == "Paris", reply
{submit.format(f"(time.perf_counter() - began) / {calls}")}"""


def ask_batch(submit: str, calls: int) -> str:
    """Return a cell whose answer is the seconds that all calls took."""
    return f"""\
import time
prompts = [{PROMPT!r}] * {calls}
began = time.perf_counter()
replies = llm_query_batched(prompts)
seconds = time.perf_counter() - began
assert replies == ["Paris"] * {calls}, replies[:3]
{submit.format("seconds")}"""


def ask_children(submit: str, ask: str, count: int) -> str:
    """Return a cell for parent and children; children recognise themselves by their context.

    `ask` is how an engine starts one child for each of `tasks` and binds `replies`.
    """
    inner = "\n".join("    " + line for line in ask.splitlines())
    return f"""\
import time
if "you are a child" in str(context):
    {submit.format("'done'")}
else:
    tasks = ["you are a child, number %d" % n for n in range({count})]
    began = time.perf_counter()
{inner}
    seconds = time.perf_counter() - began
    assert replies == ["done"] * {count}, replies[:3]
    {submit.format("seconds")}"""


def token_of(number: int) -> str:
    """Return the answer of a run whose context is this number."""
    return f"token-{number * 7_919 + 104_729}"


def crowd_cell(submit: str, shown: str, replies: int) -> str:
    """Return a cell that prints the token, calls another model, and uses what it is shown.

    Only the output of cells contains the token, so mixed-up outputs are detected.
    """
    seen = [f"token-{digits}" for digits in _TOKEN.findall(shown)]
    if len(seen) < replies - 1:
        return f"""\
reply = llm_query({PROMPT!r})
print("token-%d" % (int(context) * 7_919 + 104_729))"""
    return submit.format(repr(seen[0] if len(set(seen)) == 1 else "mixed up"))


def crowd_ideal(replies: int, delay_ms: float) -> float:
    """Return the seconds that a run has to wait for models: its own, and one for each cell."""
    return (2 * replies - 1) * delay_ms / 1_000
