"""Split → map → filter → merge without model-written code."""

import asyncio
import itertools
import re
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.api import RLM
from rlm.engine.mapreduce.pieces import OVERLAP_CHARS, split
from rlm.errors import ConfigError, ModelError
from rlm.events import CallEnded, RunEnded, RunStarted
from rlm.limits import Limits
from rlm.messages import Request
from rlm.testing.scripted import ScriptedClient
from tests.fakes import PlanEnvironment

FACT = "The vault opens with 4821."


@given(st.text(alphabet="ab .\n", max_size=3_000), st.integers(4, 500))
def test_spans_cover_the_text_in_order_within_the_size(text: str, size: int) -> None:
    covered = 0
    for start, end in split(text, size):
        assert 0 < end - start <= size
        assert covered - OVERLAP_CHARS <= start <= covered < end
        covered = end
    assert covered == len(text)


def test_spans_end_at_paragraphs_then_lines_then_words() -> None:
    for text, first in (
        ("aaa aaa\n\nbbb bbb bbb", "aaa aaa\n\n"),
        ("aaa aaa\nbbb bbb bbb", "aaa aaa\n"),
        ("aaaa aaaa bbbb bbbb", "aaaa aaaa "),
    ):
        start, end = split(text, 12)[0]
        assert text[start:end] == first


@given(st.lists(st.text("abc", min_size=1, max_size=40), min_size=2), st.integers(200, 900))
def test_line_spans_begin_and_end_at_whole_lines(lines: list[str], size: int) -> None:
    """Half a name at the beginning would be mistaken for a name."""
    text = "".join(f"{line} {number}\n" for number, line in enumerate(lines * 30))
    whole = text.splitlines()
    spans = split(text, size)
    for start, end in spans:
        assert set(text[start:end].splitlines()) <= set(whole)
    overlaps = [before > start for (_, before), (start, _) in itertools.pairwise(spans)]
    assert all(overlaps)


def reader(request: Request) -> str:
    """A weak model: it repeats the fact if it sees it, and nothing else."""
    text = str(request.messages[-1].content)
    found = re.findall(r"The vault opens with \d+\.", text)
    return found[0] if found else "NOT FOUND"


def engine(client: ScriptedClient, **more: Any) -> RLM:
    return RLM(client, environment=PlanEnvironment(), strategy="mapreduce", **more)


async def test_a_fact_is_found_at_any_position() -> None:
    filler = "Nothing to see here at all. " * 3_000
    for place in (0, len(filler) // 2, len(filler)):
        client = ScriptedClient(rules=[("", reader)], window_tokens=4_000)
        result = await engine(client).aask(
            "How does it open?", filler[:place] + FACT + filler[place:]
        )
        assert (result.answer, result.stop_reason, result.answer_source) == (
            FACT,
            "answer",
            "asked",
        )
        assert isinstance(result.events[0], RunStarted)
        assert isinstance(result.events[-1], RunEnded)
        calls = [e for e in result.events if isinstance(e, CallEnded)]
        assert len(calls) == len(client.requests) > 5


async def test_not_found_is_the_answer_if_no_piece_has_the_fact() -> None:
    client = ScriptedClient(rules=[("", reader)], window_tokens=4_000)
    result = await engine(client).aask("How does it open?", "Nothing. " * 5_000)
    assert result.answer == "NOT FOUND"


@pytest.mark.parametrize("length", [600, 5_000])
async def test_many_notes_are_merged_in_rounds(length: int) -> None:
    client = ScriptedClient(rules=[("", lambda r: "x" * length)], window_tokens=1_000)
    result = await engine(client).aask("q", "word " * 5_000)
    assert result.answer == "x" * length
    merges = [r for r in client.requests if "Notes:" in str(r.messages[-1].content)]
    assert len(merges) > 1


async def test_a_failed_piece_does_not_lose_the_others() -> None:
    def sometimes(request: Request) -> str | ModelError:
        text = str(request.messages[-1].content)
        return ModelError("bad piece") if "part 2 of" in text else reader(request)

    client = ScriptedClient(rules=[("", sometimes)], window_tokens=4_000)
    result = await engine(client).aask("How?", "Nothing. " * 3_000 + FACT)
    assert result.answer == FACT


async def test_when_every_piece_fails_the_run_raises() -> None:
    client = ScriptedClient(rules=[("", ModelError("no key"))], window_tokens=4_000)
    with pytest.raises(ModelError, match="no key"):
        await engine(client).aask("How?", "Nothing. " * 3_000)


async def test_more_pieces_than_calls_left_are_refused_before_any_is_paid() -> None:
    client = ScriptedClient(rules=[("", reader)], window_tokens=4_000)
    result = await engine(client, limits=Limits(max_calls=3)).aask("How?", "Nothing. " * 5_000)
    assert (result.stop_reason, result.limit, result.answer) == ("limit", "calls", None)
    assert client.requests == []


async def test_time_limits_hold_without_a_repl_too() -> None:
    client = ScriptedClient(rules=[("", "late")], delay_seconds=3_600)
    strategies: tuple[Literal["direct", "mapreduce"], ...] = ("direct", "mapreduce")
    for strategy in strategies:
        limits = Limits(max_seconds=0.2)
        one = RLM(client, environment=PlanEnvironment(), strategy=strategy, limits=limits)
        result = await one.aask("q", "some text")
        assert (result.stop_reason, result.limit) == ("limit", "seconds")


async def test_direct_is_one_call_and_refuses_contexts_beyond_the_window() -> None:
    client = ScriptedClient(["<think>hm</think>42"], window_tokens=1_000)
    direct = RLM(client, environment=PlanEnvironment(), strategy="direct")
    assert (await direct.aask("How many?", "some text")).answer == "42"
    assert "some text" in str(client.requests[0].messages[-1].content)
    with pytest.raises(ConfigError, match="strategy='rlm'"):
        await direct.aask("How many?", "x" * 10_000)


async def test_a_stopped_run_ends_without_an_answer() -> None:
    client = ScriptedClient(rules=[("", "late")], delay_seconds=3_600)
    one = engine(client)
    task = asyncio.create_task(one.aask("How?", "Nothing."))
    while not client.in_flight:
        await asyncio.sleep(0)
    one.stop()
    result = await task
    assert (result.stop_reason, result.answer_source, client.in_flight) == ("cancelled", "none", 0)


@pytest.mark.parametrize(
    ("profile", "size", "strategy"),
    [("standard", 100, "direct"), ("standard", 100_000, "rlm"), ("tiny", 100_000, "mapreduce")],
)
async def test_auto_chooses_by_size_and_model(profile: Any, size: int, strategy: str) -> None:
    rules = [("", "FINAL(done)")]
    client = ScriptedClient(rules=rules, window_tokens=4_000, profile=profile)
    auto = RLM(client, environment=PlanEnvironment(), strategy="auto")
    result = await auto.aask("q", "w " * (size // 2))
    started = result.events[0]
    assert isinstance(started, RunStarted)
    assert started.strategy == strategy
