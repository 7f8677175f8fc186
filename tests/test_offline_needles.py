"""The offline model in the whole engine: it finds needles, and says when there is none.

A key that looks like one is required in a passage; one of ordinary words, such as "red maple", is
not, and then similar passages are listed. Nothing is ever presented as an answer.

The haystacks here are not those of examples/haystack.py, which the search was written against:
other filler (the English of Python's own manual), other keys, other phrasings.
"""

import random
import re
from pydoc_data import topics

import pytest

from examples.haystack import make_haystack
from rlm.api import RLM
from rlm.clients.offline import NO_PASSAGES, search_query

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


async def passages(haystacks: list[tuple[str, str, str]]) -> list[tuple[str, str]]:
    """What a run submits and the value wanted, for each haystack."""
    found = []
    async with RLM("offline/extractive") as engine:
        for text, question, value in haystacks:
            result = await engine.aask(question, text)
            assert result.stop_reason == "passages"
            found.append((str(result.answer), value))
    return found


def is_required(question: str) -> bool:
    """Whether the question has a key that a passage must hold."""
    return '"' in search_query(question)


@pytest.mark.heavy
async def test_needles_in_a_megabyte_of_english_are_found() -> None:
    found = await passages([manual_haystack(10**6, seed, absent=False) for seed in range(10)])
    assert sum(value in text for text, value in found) >= 9


@pytest.mark.heavy
async def test_absent_needles_in_a_megabyte_of_english_are_not_found() -> None:
    haystacks = [manual_haystack(10**6, seed, absent=True) for seed in range(10)]
    required = [is_required(question) for _, question, _ in haystacks]
    assert required.count(True) == 7
    found = await passages(haystacks)
    assert [text == NO_PASSAGES for text, _ in found] == required


async def test_needles_in_ten_megabytes_are_found() -> None:
    (text, value), (other, _) = await passages(
        [make_haystack(10**7, seed=1), make_haystack(10**7, seed=2, absent=True)]
    )
    assert value in text
    assert other == NO_PASSAGES


@pytest.mark.heavy
async def test_fifty_needles_in_ten_megabytes_each() -> None:
    right = 0
    for seed in range(50):
        ((text, value),) = await passages([manual_haystack(10**7, seed, absent=False)])
        right += value in text
    assert right >= 45


@pytest.mark.heavy
async def test_twenty_absent_needles_in_ten_megabytes_each() -> None:
    wrong = []
    for seed in range(100, 120):
        haystack = manual_haystack(10**7, seed, absent=True)
        ((text, _),) = await passages([haystack])
        if is_required(haystack[1]) and text != NO_PASSAGES:
            wrong.append(text)
    assert wrong == []
