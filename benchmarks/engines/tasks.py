"""What models answer in the scenarios, the same for every engine but for how each submits.

`submit` is a template of an engine's own: `FINAL({})`, `SUBMIT(answer={})` and so on. A cell that
is told over and over counts for itself, so that one answer of a model serves a whole run.
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
"""In a reply: becomes another number each time. Whoever repeats a cell may be told off for it."""

_numbers = itertools.count(100_000_000)
_TOKEN = re.compile(r"token-(\d+)")


def numbered(reply: str) -> str:
    """A reply of a stub, its number filled in; the endpoint does the same."""
    return reply.replace(SERIAL, str(next(_numbers)))


def once(submit: str) -> str:
    """Answer in the first step."""
    return submit.format("len(context)")


def count_steps(submit: str, steps: int) -> str:
    """The answer is the mean of seconds from one step to the next; one step's answer is 0."""
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
    """The answer is the mean of seconds for a call; the first one, which connects, is left out."""
    return f"""\
import time
llm_query({PROMPT!r})
began = time.perf_counter()
for _ in range({calls}):
    reply = llm_query({PROMPT!r})
assert reply == "Paris", reply
{submit.format(f"(time.perf_counter() - began) / {calls}")}"""


def ask_batch(submit: str, calls: int) -> str:
    """The answer is how many seconds all of them took."""
    return f"""\
import time
prompts = [{PROMPT!r}] * {calls}
began = time.perf_counter()
replies = llm_query_batched(prompts)
seconds = time.perf_counter() - began
assert replies == ["Paris"] * {calls}, replies[:3]
{submit.format("seconds")}"""


def ask_children(submit: str, ask: str, count: int) -> str:
    """Children get this same cell: they see by their context that they are children.

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
    """What a run whose context is this number must answer."""
    return f"token-{number * 7_919 + 104_729}"


def crowd_cell(submit: str, told: str, replies: int) -> str:
    """What a model writes that prints the token, asks another model, and goes by what it is shown.

    Nothing but the output of cells tells it the token, so whoever mixes outputs up is found out.
    """
    seen = [f"token-{digits}" for digits in _TOKEN.findall(told)]
    if len(seen) < replies - 1:
        return f"""\
reply = llm_query({PROMPT!r})
print("token-%d" % (int(context) * 7_919 + 104_729))"""
    return submit.format(repr(seen[0] if len(set(seen)) == 1 else "mixed up"))


def crowd_ideal(replies: int, delay_ms: float) -> float:
    """Seconds that a run waits for models at least: its own, and the one that each cell asks."""
    return (2 * replies - 1) * delay_ms / 1_000
