"""The whole engine on a real model of half a billion parameters, as root and as sub-model."""

import time
from typing import Any

import pytest

from examples.haystack import make_haystack
from rlm.api import RLM
from rlm.clients.gguf import GGUFClient
from rlm.events import CallEnded, RunStarted
from rlm.limits import Limits
from rlm.testing.scripted import ScriptedClient

pytestmark = pytest.mark.heavy
CASES = ((2, 0.0), (11, 0.1), (40, 0.25), (21, 0.4), (17, 0.5), (33, 0.6), (5, 0.75), (28, 1.0))
"""Seeds, and the depth of the needle in the text."""

SIZE_BYTES = 200_000
MAX_TOKENS = 60_000
SAME_EVERY_TIME = {"temperature": 0, "seed": 1}


def needle_at(seed: int, depth: float) -> tuple[str, str, str]:
    """A text with its needle moved to a depth, the question, and the value that answers it."""
    haystack = make_haystack(SIZE_BYTES, seed, shape="prose")
    lines = haystack.text.splitlines()
    needle = next(line for line in lines if haystack.value in line)
    lines.remove(needle)
    lines.insert(round(depth * len(lines)), needle)
    return "\n".join(lines), haystack.question, haystack.value


@pytest.fixture
def tiny(client: GGUFClient) -> RLM:
    return RLM(
        client,
        strategy="auto",
        sampling=SAME_EVERY_TIME,
        sub_sampling=SAME_EVERY_TIME,
        limits=Limits(max_tokens=MAX_TOKENS, max_calls=200),
    )


async def test_needles_in_200_kilobytes_are_found_with_a_local_model(
    tiny: RLM, capsys: pytest.CaptureFixture[str]
) -> None:
    found = 0
    for seed, depth in CASES:
        text, question, value = needle_at(seed, depth)
        started = time.monotonic()
        result = await tiny.aask(question, text)
        first = result.events[0]
        assert isinstance(first, RunStarted)
        assert first.strategy == "mapreduce"
        assert result.usage.total.total_tokens <= MAX_TOKENS
        assert result.cost_usd == 0
        right = value in str(result.answer)
        found += right
        calls = sum(isinstance(event, CallEnded) for event in result.events)
        with capsys.disabled():
            print(
                f"\ndepth {depth:.0%}: {'found' if right else 'MISSED'} {result.answer!r} "
                f"({value}), {calls} calls, {result.usage.total.total_tokens} tokens, "
                f"{time.monotonic() - started:.0f} s",
                end="",
            )
    assert found >= len(CASES) - 1


async def test_a_local_model_answers_calls_from_cells(client: GGUFClient) -> None:
    code = (
        "line = ctx.grep('magic')[0]\n"
        "FINAL(llm_query('Copy the number in this sentence: ' + str(line)))"
    )
    root = ScriptedClient([f"```repl\n{code}\n```"])
    text = "Nothing here.\n" * 500 + "The magic number is 48213.\n" + "Nothing here.\n" * 500
    rlm = RLM(root, sub_model=client, sub_sampling=SAME_EVERY_TIME, limits=Limits(max_steps=2))
    result = await rlm.aask("What is the magic number?", text)
    await rlm.aclose()
    assert "48213" in str(result.answer)


@pytest.mark.parametrize("protocol", ["fences", "tools"])
async def test_any_reply_of_a_tiny_model_to_a_code_prompt_is_handled(
    client: GGUFClient, protocol: Any
) -> None:
    limits = Limits(max_steps=2, max_calls=3, max_tokens=30_000, step_output_tokens=150)
    rlm = RLM(client, protocol=protocol, sampling=SAME_EVERY_TIME, limits=limits)
    result = await rlm.aask("Which number is named?", "The number is 417.\n" * 20)
    await rlm.aclose()
    assert result.stop_reason in {"answer", "steps", "limit"}
    assert result.steps <= 2
    assert result.usage.total.total_tokens <= 30_000


async def test_a_query_without_distinctive_words_reads_everything(tiny: RLM) -> None:
    text = "\n\n".join(f"Paragraph {n}. The dog sleeps in the sun all day long." for n in range(95))
    result = await tiny.aask("Who barks?", text)
    calls = sum(isinstance(event, CallEnded) for event in result.events)
    assert result.stop_reason == "answer"
    assert calls >= len(text) // 1_500
