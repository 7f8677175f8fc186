"""The noisy oracle: its rates, its determinism, and what it may reply."""

import asyncio
import math
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.engine.operators.reading import Codes, labels_in
from rlm.errors import ConfigError, ModelError
from rlm.messages import Message, Request
from rlm.testing import NoisyOracle
from rlm.testing.label_prompts import DRIFTS, Prompt, Verdict, plain_prompt, written
from rlm.testing.noisy_oracle import Noise

LABELS = ("bug report", "feature request", "praise", "question")
GOLD: dict[str, str | bool] = {
    f"ticket {number} about something": LABELS[number % 4] for number in range(3_000)
}
ITEMS = list(GOLD)


def listed(items: Sequence[str], labels: Sequence[str] = LABELS, *, extra: str = "") -> str:
    """A prompt of `classify` for several items."""
    codes = "\n".join(f"{chr(65 + place)} = {label}" for place, label in enumerate(labels))
    numbered = "\n".join(
        f"{place}. " + "\n   ".join(text.splitlines()) for place, text in enumerate(items, 1)
    )
    ask = "Give each of the items the label that fits best. Write one line per item."
    return f"Labels:\n{codes}\n\n{extra}Items:\n{numbered}\n\n{ask}"


def single(text: str, labels: Sequence[str] = LABELS) -> str:
    codes = "\n".join(f"{chr(65 + place)} = {label}" for place, label in enumerate(labels))
    return f"Labels:\n{codes}\n\nItem:\n{text}\n\nWhich label fits best? Reply with its code only."


def condition(items: Sequence[str]) -> str:
    numbered = "\n".join(f"{place}. {text}" for place, text in enumerate(items, 1))
    return f"Condition: it is polite\n\nItems:\n{numbered}\n\nSay for each whether it does."


async def ask(oracle: NoisyOracle, prompt: str, cap: int = 100_000) -> str:
    messages = (Message("system", "You label."), Message("user", prompt))
    request = Request(model="m", messages=messages, max_output_tokens=cap)
    return (await oracle.complete(request, timeout_seconds=1)).text


def read(reply: str, labels: Sequence[str] = LABELS) -> dict[int, Verdict]:
    """What a lenient reader finds in a reply, whatever its form."""
    names = {chr(97 + place): label for place, label in enumerate(labels)}
    names |= {label: label for label in labels} | {"yes": "yes", "no": "no"}
    names |= {f"{code} ({label})": label for code, label in names.items()}
    found = {}
    for line in reply.splitlines():
        if match := re.fullmatch(r"\**(\d+)\**(?::|\)| -) (.+?)(\??)", line):
            assert int(match[1]) not in found
            found[int(match[1])] = Verdict(names[match[2].lower()], bool(match[3]))
    return found


async def looked(oracle: NoisyOracle, items: Sequence[str] = ITEMS) -> list[Verdict]:
    found = read(await ask(oracle, listed(items)))
    return [found[place] for place in range(1, len(items) + 1)]


def errors_of(verdicts: Sequence[Verdict]) -> set[str]:
    return {text for text, each in zip(ITEMS, verdicts, strict=True) if each.label != GOLD[text]}


def near(count: int, share: float, of: int) -> bool:
    """Whether a count is within four standard deviations of what is expected."""
    return abs(count - share * of) <= 4 * math.sqrt(of * share * (1 - share)) + 1


# -- rates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["independent", "concentrated"])
@pytest.mark.parametrize("rate", [0.0, 0.02, 0.1, 0.2])
async def test_the_error_rate_is_as_configured(noise: Noise, rate: float) -> None:
    oracle = NoisyOracle(GOLD, error_rate=rate, noise=noise)
    first, second = await looked(oracle), await looked(oracle)
    for verdicts in (first, second):
        assert near(len(errors_of(verdicts)), rate, len(ITEMS))


async def test_independent_errors_differ_between_looks() -> None:
    oracle = NoisyOracle(GOLD, error_rate=0.2)
    first, second = errors_of(await looked(oracle)), errors_of(await looked(oracle))
    assert near(len(first & second), 0.2 * 0.2, len(ITEMS))
    assert not any(each.unsure for each in await looked(oracle))


async def test_concentrated_errors_repeat_and_half_are_marked_unsure() -> None:
    oracle = NoisyOracle(GOLD, error_rate=0.1, noise="concentrated")
    looks = [await looked(oracle) for _ in range(4)]
    errors = [errors_of(verdicts) for verdicts in looks]
    assert len(errors[0] & errors[1]) > 0.8 * len(errors[0])
    assert len(set.union(*errors)) < 0.25 * len(ITEMS)  # A fifth is ambiguous.
    marked = {text for text, each in zip(ITEMS, looks[0], strict=True) if each.unsure}
    assert marked == {text for text, each in zip(ITEMS, looks[3], strict=True) if each.unsure}
    assert near(len(marked), 0.2 * 0.5 + 0.8 * 0.05, len(ITEMS))
    assert near(len(marked & errors[0]), 0.95 * 0.5 + 0.05 * 0.05, len(errors[0]))


async def test_an_ambiguous_item_has_one_alternative_label() -> None:
    oracle = NoisyOracle(GOLD, error_rate=0.2, noise="concentrated")
    looks = [await looked(oracle) for _ in range(3)]
    named = [
        {each.label for each in verdicts} - {GOLD[text]}
        for text, verdicts in zip(ITEMS, zip(*looks, strict=True), strict=True)
    ]
    assert {len(others) for others in named} <= {0, 1, 2}
    assert sum(len(others) == 2 for others in named) < 0.01 * len(ITEMS)


async def test_omissions_leave_out_items_and_codes_of_single_replies() -> None:
    oracle = NoisyOracle(GOLD, omission_rate=0.2)
    found = read(await ask(oracle, listed(ITEMS)))
    assert near(len(found), 0.8, len(ITEMS))
    alone = [await ask(oracle, single(text)) for text in ITEMS[:500]]
    assert near(sum(reply == "I cannot tell." for reply in alone), 0.2, 500)


async def test_candidates_in_the_prompt_do_not_improve_labels() -> None:
    plain, helped = (NoisyOracle(GOLD, error_rate=0.2) for _ in range(2))
    candidates = "Candidates:\n" + "\n".join(f"{n}: A or B" for n in range(1, 101)) + "\n\n"
    one = await ask(plain, listed(ITEMS[:100]))
    assert one == await ask(helped, listed(ITEMS[:100], extra=candidates))


# -- determinism -----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["independent", "concentrated"])
async def test_order_packing_and_concurrency_do_not_affect_labels(noise: Noise) -> None:
    items = ITEMS[:120]

    async def labels(groups: Sequence[Sequence[str]]) -> dict[str, Verdict]:
        oracle = NoisyOracle(GOLD, error_rate=0.2, noise=noise, seed=7)
        replies = await asyncio.gather(*(ask(oracle, listed(group)) for group in groups))
        return {
            group[number - 1]: verdict
            for group, reply in zip(groups, replies, strict=True)
            for number, verdict in read(reply).items()
        }

    once = await labels([items])
    assert once == await labels([items[place : place + 7] for place in range(0, 120, 7)])
    assert once == await labels([items[place::11][::-1] for place in range(11)][::-1])


async def test_another_seed_gives_other_errors() -> None:
    one, same, other = (NoisyOracle(GOLD, error_rate=0.2, seed=seed) for seed in (1, 1, 2))
    replies = [await ask(each, listed(ITEMS[:200])) for each in (one, same, other)]
    assert replies[0] == replies[1] != replies[2]


# -- forms -----------------------------------------------------------------------------------------


async def test_every_form_of_prompt_is_answered() -> None:
    gold = {"first\n\nline": "praise", "2. looks like a number": "question", "third": "praise"}
    oracle = NoisyOracle(gold)
    items = list(gold)
    assert await ask(oracle, listed(items, extra="Guide: be kind\n\n")) == "1: C\n2: D\n3: C"
    assert await ask(oracle, single(items[0])) == "C"
    assert await ask(oracle, plain_prompt(items, LABELS)) == "1: praise\n2: question\n3: praise"
    yes = NoisyOracle({"thank you": True, "go away": False})
    assert await ask(yes, condition(["go away", "thank you"])) == "1: no\n2: yes"
    alone = "Condition: it is polite\n\nItem:\nthank you\n\nDoes it? Reply yes or no."
    assert await ask(yes, alone) == "yes"
    assert oracle.looks == {"first line": 3, "2. looks like a number": 2, "third": 2}


async def test_usage_is_one_token_per_four_bytes() -> None:
    oracle = NoisyOracle(GOLD)
    prompt = listed(ITEMS[:50])
    request = Request(model="m", messages=(Message("user", prompt),), max_output_tokens=999)
    reply = await oracle.complete(request, timeout_seconds=1)
    assert reply.usage is not None
    assert reply.usage.input_tokens == len(prompt) // 4 + 1
    assert reply.usage.output_tokens == len(reply.text) // 4 + 1
    pieces = [part async for part in oracle.stream(request, timeout_seconds=1)]
    assert "".join(part for part in pieces if isinstance(part, str)) == reply.text


async def test_a_reply_is_cut_at_its_cap() -> None:
    oracle = NoisyOracle(GOLD)
    assert len(await ask(oracle, listed(ITEMS[:50]), cap=10)) == 39


async def test_drifting_replies_take_every_form_at_the_configured_rate() -> None:
    straight, oracle = NoisyOracle(GOLD), NoisyOracle(GOLD, drift_rate=0.4)
    groups = [ITEMS[place : place + 5] for place in range(0, len(ITEMS), 5)]
    replies = [await ask(oracle, listed(group)) for group in groups]
    plain = [await ask(straight, listed(group)) for group in groups]
    drifted = [one for one, other in zip(replies, plain, strict=True) if one != other]
    assert near(len(drifted), 0.4, len(groups))
    marks = ("1) ", "1 - ", "**1**", "1: a", "(bug report)", "Here is", "Let me know", "```")
    assert all(any(mark in reply for reply in drifted) for mark in marks)
    assert [read(each) for each in replies] == [read(each) for each in plain]


words = st.text(st.characters(categories=("L", "N", "P", "Zs")), min_size=1).filter(str.strip)


@given(
    texts=st.lists(words.map(lambda text: " ".join(text.split())), unique=True, max_size=20),
    rates=st.tuples(*[st.floats(0, 0.2)] * 3),
    noise=st.sampled_from(["independent", "concentrated"]),
    seed=st.integers(),
)
def test_the_oracle_invents_no_labels_or_items(
    texts: list[str], rates: tuple[float, float, float], noise: Noise, seed: int
) -> None:
    error, omission, drift = rates
    gold = {text: LABELS[len(text) % 4] for text in texts}
    oracle = NoisyOracle(
        gold, error_rate=error, noise=noise, omission_rate=omission, drift_rate=drift, seed=seed
    )
    if len(texts) < 2:
        return
    found = read(asyncio.run(ask(oracle, listed(texts))))
    assert set(found) <= set(range(1, len(texts) + 1))
    assert {each.label for each in found.values()} <= set(LABELS)
    assert oracle.looks.total() == len(texts)


@given(
    labels=st.lists(st.sampled_from(LABELS), min_size=2, max_size=30),
    unsure=st.booleans(),
    drift=st.sampled_from(["", *DRIFTS]),
)
def test_every_drifting_reply_can_be_parsed(labels: list[str], unsure: bool, drift: str) -> None:
    prompt = Prompt.read(listed([f"item {place}" for place in range(len(labels))]))
    assert prompt is not None
    verdicts: dict[int | None, Verdict] = {
        number: Verdict(label, unsure) for number, label in enumerate(labels, 1)
    }
    reply = written(prompt, verdicts, drift)
    assert read(reply) == verdicts
    found = labels_in(reply, len(labels), Codes(prompt.codes))  # as the operators read it
    assert {number: Verdict(each.text, each.unsure) for number, each in found.items()} == verdicts


# -- what it refuses -------------------------------------------------------------------------------


async def test_an_item_without_a_gold_label_is_an_error() -> None:
    oracle = NoisyOracle(GOLD)
    with pytest.raises(ModelError, match="no gold label for the item 'something new'"):
        await ask(oracle, listed([ITEMS[0], "something new"]))
    with pytest.raises(ModelError, match="answers only labelling prompts, not 'Hello'"):
        await ask(oracle, "Hello")
    assert oracle.looks.total() == 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"error_rate": 0.3, "noise": "concentrated"}, "error_rate must be from 0 to 0.21"),
        ({"error_rate": -1}, "error_rate must be from 0 to 1.00"),
        ({"omission_rate": 1.0}, "omission_rate must be at least 0"),
        ({"noise": "loud"}, "'independent' or 'concentrated'"),
    ],
)
def test_invalid_rates_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        NoisyOracle(GOLD, **given)


async def test_a_label_that_the_prompt_does_not_offer_is_not_given() -> None:
    oracle = NoisyOracle({"x": "praise", "y": "question"})
    found = read(await ask(oracle, listed(["x", "y"], LABELS[:2])), LABELS[:2])
    assert {each.label for each in found.values()} <= set(LABELS[:2])
