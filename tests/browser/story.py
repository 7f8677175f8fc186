"""Realistic runs, for lists, trees, timelines, maps and screenshots.

One of them has everything: 64 calls at once, a cell that fails, child runs down to depth 3, a long
output, markdown, and prints and prompts that hold exactly known parts of its context.
"""

import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rlm import Limits
from rlm.errors import RLMError
from rlm.results import RunResult
from rlm.testing.fake_server import Answer
from tests.browser.models import SMALL, Part, Steps, cell, play_once

__all__ = ["CALLS", "CHUNK_CHARS", "QUERY", "Story", "tell", "tickets"]

CALLS = 64
CHUNK_CHARS = 1_000
QUERY = "Which version of the app began to lose data, and how many tickets say so?"
CHILD = "In which version does it begin?"
GRANDCHILD = "Which of these tickets is the oldest?"
GREAT_GRANDCHILD = "Read the version out of this ticket."

PARTS = ("sync", "export", "login", "search", "billing", "offline mode", "attachments", "sharing")
TROUBLES = (
    "loses the last paragraph after saving twice",
    "shows an empty page until it is reloaded",
    "asks for the password again and again",
    "takes longer than a minute on the train",
    "prints the wrong year on every invoice",
    "forgets what was typed when the network is gone",
)


def tickets(chars: int = 96_000) -> str:
    """Return different support tickets, of this total length."""
    rnd = random.Random(7)
    lines = []
    for number in range(chars // 80):
        version = f"{rnd.randint(3, 5)}.{rnd.randint(0, 9)}.{rnd.randint(0, 20)}"
        lines.append(
            f"#{48_000 + number * 7} [{version}] {rnd.choice(PARTS)} {rnd.choice(TROUBLES)}; "
            f"customer {rnd.getrandbits(44):011x}"
        )
    return "\n".join(lines)[:chars]


LOOK = """\
print(f"{len(context):,} characters")
print(context[:1500])"""
SPREAD = f"""\
size = {CHUNK_CHARS}
chunks = [context[at:at + size] for at in range(12_000, 12_000 + {CALLS} * size, size)]
notes = llm_query_batched([
    f"Part {{number}}. Which of these tickets are about lost data?\\n\\n{{chunk}}"
    for number, chunk in enumerate(chunks)
])
found = [note for note in notes if note.startswith("yes")]
print(len(found), "of", len(notes), "parts")"""
FAIL = """\
counts = [int(note) for note in found]
print(sum(counts))"""
DESCEND = f"""\
counts = [int(note.split(":")[1]) for note in found]
total = sum(counts)
version = rlm_query({CHILD!r}, chunks[3] + chunks[9])
print(f"{{total}} tickets, since {{version}}")
print("\\n".join(f"part {{at}}: {{note}}" for at, note in enumerate(notes) for _ in range(12)))"""
FINISH = """\
FINAL(f'''**{total} tickets** report lost data, beginning with version **4.2.0**.

| version | tickets |
|---|---:|
| 4.2.0 | 11 |
| 4.2.1 | 19 |

- the first is `#48021`
- none of them is older than 4.2''')"""

STEPS: Steps = {
    QUERY: [
        cell(
            LOOK,
            "I look at the **shape** of the context:\n\n1. how long it is\n2. how a ticket looks",
        ),
        cell(
            SPREAD,
            f"The tickets are independent of each other, so `{CALLS}` parts can be asked at once.",
        ),
        cell(FAIL, "Now I add up what they found."),
        cell(
            DESCEND,
            "The notes say *yes: 3*, not numbers. I take them apart, and a child run looks on.",
        ),
        cell(FINISH, "Both parts of the question are settled."),
    ],
    CHILD: [
        cell("print(context[200:700])"),
        cell(f"oldest = rlm_query({GRANDCHILD!r}, context[:1200])\nFINAL(oldest)"),
    ],
    GRANDCHILD: [cell(f"FINAL(rlm_query({GREAT_GRANDCHILD!r}, context[:400]))")],
    GREAT_GRANDCHILD: [cell("print(context[100:300])"), cell("FINAL('4.2.0')")],
    "Who wrote the oldest ticket?": [cell("FINAL('nobody says so')")],
    "Summarize every ticket in one word.": [cell("print(1)"), cell("print(2)"), cell("print(3)")],
    "Translate the tickets.": [Answer(status=400, error="this model is asleep")] * 3,
    "Which customers wrote twice?": [cell("print(context[:300])"), cell("FINAL('none')")],
}


def _note(prompt: str) -> Answer:
    """Some parts take longer than others, and one needs a retry."""
    number = int(prompt.split("Part ")[1].split(".")[0])
    delay = 0.15 + ((number * 37) % 64) / 64
    text = f"yes: {number % 4 + 1}" if number % 5 == 3 else "no"
    return Answer(reply=text, delay_seconds=delay)


PART = Part(STEPS, _note)


class Story(NamedTuple):
    """The folder of the runs, the main run, and another run to compare it with."""

    state: Path
    main: RunResult
    short: RunResult


def tell(state: Path) -> Story:
    context = tickets()

    def ask(query: str, **options: Any) -> RunResult:
        return play_once(state, PART, query, context, **options)

    ask("Who wrote the oldest ticket?", model="openai/gpt-4.1-mini")
    ask("Summarize every ticket in one word.", limits=Limits(max_steps=2), model=SMALL)
    with pytest.raises(RLMError, match="asleep"):
        ask("Translate the tickets.")
    short = ask("Which customers wrote twice?", model=SMALL)
    main = ask(QUERY, limits=Limits(max_depth=4))
    return Story(state, main, short)
