"""The offline model through the whole engine: it finds what is there, and says what is not.

The haystacks here are not those of examples/haystack.py, which the search was written against:
other filler (the English of Python's own manual), other keys, other phrasings.
"""

import random
import re
from pydoc_data import topics

import pytest

from examples.haystack import make_haystack
from rlm.api import RLM

PHRASINGS = (
    ("The secret passphrase of {key} is {value}.", "What is the secret passphrase of {key}?"),
    ("{key}: {value}", "What value is listed for {key}?"),
    ("Operators must enter {value} to unlock {key}.", "Which code unlocks {key}?"),
    ("By the ledger, account {key} holds {value} crowns.", "How much does account {key} hold?"),
    ("Dr. Meyer stored the sample {key} in drawer {value}.", "Where is sample {key} stored?"),
)
FIRST = ("red", "green", "blue", "iron", "lazy", "tiny", "vast", "odd", "grim", "keen")
SECOND = ("otter", "maple", "bridge", "lamp", "stone", "crow", "fig", "drum", "kite", "moth")
SENTENCES = [
    sentence.replace("\n", " ")
    for topic in topics.topics.values()
    for sentence in re.split(r"(?<=\.)\s+", topic)
    if 20 < len(sentence) < 300
]


def random_key(rng: random.Random) -> str:
    one, two = rng.choice(FIRST), rng.choice(SECOND)
    kinds = (
        f"{one}-{two}",
        f"{one} {two}",
        f"QX{rng.randint(100, 999)}",
        f"{rng.choice(SECOND).title()} {two.title()} Ltd",
        f"{rng.getrandbits(32):08x}",
    )
    return rng.choice(kinds)


def manual_haystack(size: int, seed: int, *, absent: bool) -> tuple[str, str, str]:
    """Sentences of the manual, ten needles for other keys, and one for the key asked about."""
    rng = random.Random(seed)
    needle, question = PHRASINGS[seed % len(PHRASINGS)]
    key, value = random_key(rng), str(rng.randint(10**5, 10**7))
    lines = [" ".join(rng.choices(SENTENCES, k=3)) for _ in range(size // 300)]
    others = {random_key(rng) for _ in range(10)}
    others -= {key, key.replace("-", " "), key.replace(" ", "-")}  # the same key to a reader
    said = [needle.format(key=other, value=rng.randint(10**5, 10**7)) for other in sorted(others)]
    said += [] if absent else [needle.format(key=key, value=value)]
    for sentence in said:
        lines.insert(rng.randrange(len(lines)), sentence)
    return "\n".join(lines), question.format(key=key), value


async def answers(haystacks: list[tuple[str, str, str]]) -> list[tuple[str, str]]:
    """The answer and the value wanted, for each haystack."""
    engine = RLM("offline/extractive")
    try:
        return [
            (str((await engine.aask(question, text)).answer), value)
            for text, question, value in haystacks
        ]
    finally:
        await engine.aclose()


async def test_needles_in_a_megabyte_of_english() -> None:
    found = await answers([manual_haystack(10**6, seed, absent=False) for seed in range(10)])
    assert sum(value in answer for answer, value in found) >= 9


async def test_absent_needles_in_a_megabyte_of_english() -> None:
    found = await answers([manual_haystack(10**6, seed, absent=True) for seed in range(10)])
    assert ["not found" in answer.lower() for answer, _ in found] == [True] * 10


async def test_ten_megabytes() -> None:
    (answer, value), (other, _) = await answers(
        [make_haystack(10**7, seed=1), make_haystack(10**7, seed=2, absent=True)]
    )
    assert value in answer
    assert "not found" in other.lower()


@pytest.mark.heavy
async def test_fifty_needles_in_ten_megabytes_each() -> None:
    right = 0
    for seed in range(50):
        ((answer, value),) = await answers([manual_haystack(10**7, seed, absent=False)])
        right += value in answer
    assert right >= 45


@pytest.mark.heavy
async def test_twenty_absent_needles_in_ten_megabytes_each() -> None:
    wrong = []
    for seed in range(100, 120):
        ((answer, _),) = await answers([manual_haystack(10**7, seed, absent=True)])
        if "not found" not in answer.lower():
            wrong.append(answer)
    assert wrong == []
