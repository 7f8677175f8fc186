"""The model of the crash test: a scripted one behind real HTTP that remembers who asked what.

Its cells use threads, sets, `random` and `time` on purpose: nothing that a resumed run does may
depend on any of them. Every reply carries the number of the request it answers, so the journal
itself tells which requests it holds.
"""

import asyncio
import os
import random
import re
import signal
from collections import Counter
from typing import Any

from msgspec import Struct

from rlm.testing.fake_server import Answer, Asked, FakeServer
from rlm.testing.fake_server.script import Counts
from tests.records.journal.crashing import QUERY

__all__ = ["BATCH", "CountingModel", "Request"]

BATCH = 200
EQUAL_PROMPTS = 20
CHILD_QUERY = re.compile(r"What comes first in (word\d+) and what follows\?")

THREADS = """
import random, threading, time
words = set(context.split())
print("it is", time.time(), "and the first of them is", next(iter(words)))
notes = {}
def ask(word):
    time.sleep(random.random() / 100)
    notes[word] = llm_query(f"Describe {word}.")
threads = [threading.Thread(target=ask, args=(word,)) for word in words]
for each in threads: each.start()
for each in threads: each.join()
print(random.random(), len(notes))
"""
ASK_BATCH = f"""
prompts = [f"Rate line {{number % {BATCH - EQUAL_PROMPTS}}}." for number in range({BATCH})]
random.shuffle(prompts)
replies = llm_query_batched(prompts)
for prompt, reply in zip(prompts, replies):
    assert reply == "rated " + prompt.split()[2], (prompt, reply)
print(time.time_ns(), hash(prompts[0]), replies[:3])
"""
ASK_CHILDREN = """
found = {}
def ask_child(part):
    query = f"What comes first in {part[0]} and what follows?"
    found[part[0]] = rlm_query(query, " ".join(part))
parts = [sorted(words)[:12], sorted(words)[12:]]
random.shuffle(parts)
threads = [threading.Thread(target=ask_child, args=(part,)) for part in parts]
for each in threads: each.start()
weights = {word: weigh(word=word) for word in words if word.endswith("3")}
try: refuse(word="word00")
except ToolFailed as error: weights["refused"] = str(error)
for each in threads: each.join()
print(time.perf_counter(), found, weights)
"""
SUBMIT = """
lines = [f"{word}: {notes[word]}" for word in sorted(notes)]
lines += sorted(set(replies)) + sorted(found.values()) + [str(sorted(map(str, weights.items())))]
FINAL("; ".join(lines))
"""
CHILD_ASKS = """
import random, time
mine = list(set(context.split()))
random.shuffle(mine)
told = dict(zip(mine, llm_query_batched([f"Measure {word}." for word in mine])))
print(time.time(), random.random(), weigh(word=min(mine)), len(told))
"""
CHILD_SUBMITS = "FINAL(min(told) + ' ' + told[min(told)])"

ROOT_STEPS = (THREADS, ASK_BATCH, ASK_CHILDREN, SUBMIT)
CHILD_STEPS = (CHILD_ASKS, CHILD_SUBMITS)


class Request(Struct, frozen=True):
    """One that arrived. `label` is what it is for, however often it is asked."""

    number: int
    attempt: int
    label: str
    body: str
    connection: int


class CountingModel:
    """Serves, counts, and kills who asks too much."""

    def __init__(self, seed: int) -> None:
        self.server = FakeServer(rules=[("", self._answer)])
        self.attempt = 0
        self._random = random.Random(seed)
        self._labels: list[tuple[int, str, str]] = []
        self._victim: tuple[int, int, float] | None = None

    def requests(self) -> list[Request]:
        """All that arrived, in order."""
        return [
            Request(number, *self._labels[number], received.connection)
            for number, received in enumerate(self.server.requests)
        ]

    def labels(self, attempt: int | None = None) -> Counter[str]:
        """Return how often each request was received."""
        return Counter(
            label for number, label, _ in self._labels if attempt is None or attempt == number
        )

    def begin_attempt(self) -> None:
        self.attempt += 1
        self._victim = None

    def kill(self, process: int, after_requests: int, delay_seconds: float) -> None:
        """Kill a process this long after this number of further requests."""
        self._victim = (process, len(self._labels) + after_requests, delay_seconds)

    def _answer(self, asked: Asked) -> Answer:
        number = len(self._labels)
        label, text = _label_and_reply(asked.body["messages"])
        self._labels.append((self.attempt, label, repr(asked.body)))
        if self._victim is not None and len(self._labels) >= self._victim[1]:
            process, _, delay_seconds = self._victim
            self._victim = None
            asyncio.get_running_loop().call_later(delay_seconds, _kill, process)
        return Answer(
            reply=text,
            reasoning=str(number),
            usage=Counts(input_tokens=100 + len(label), output_tokens=10 + len(text) % 7),
            delay_seconds=self._random.random() / 60,
        )


def _kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)


def _label_and_reply(messages: list[dict[str, Any]]) -> tuple[str, str]:
    """What a request is for, and what the script says to it."""
    last = messages[-1]["content"]
    if found := re.fullmatch(r"(Describe|Rate line|Measure) (\w+)\.", last):
        done = {"Describe": "described", "Rate line": "rated", "Measure": "measured"}
        return last, f"{done[found[1]]} {found[2]}"
    task, step = messages[1]["content"], len(messages) // 2
    if QUERY in task:
        return f"step {step} of the root", f"```repl\n{ROOT_STEPS[step - 1]}\n```"
    child = CHILD_QUERY.search(task)
    assert child is not None, task
    return f"step {step} of child {child[1]}", f"```repl\n{CHILD_STEPS[step - 1]}\n```"
