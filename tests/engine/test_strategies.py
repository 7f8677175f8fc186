"""The default strategy of a run: it depends on the interface and on the model's profile."""

from typing import Any

import pytest

from rlm import RLM, RunResult, ScriptedClient
from rlm.config import Profile
from rlm.errors import ConfigError
from rlm.events import Planned, RunStarted

TEXT = "The access code is 4821.\n" * 10
QUERY = "What is the access code?"
DONE = "```repl\nFINAL(ctx.grep('4821')[0])\n```"


def model(profile: Profile) -> ScriptedClient:
    reads = profile in ("small", "tiny")
    return ScriptedClient(["4821" if reads else DONE], profile=profile)


def strategy_of(result: RunResult) -> str:
    return next(event.strategy for event in result.events if isinstance(event, RunStarted))


@pytest.mark.parametrize(
    ("profile", "strategy"),
    [("frontier", "rlm"), ("standard", "rlm"), ("small", "direct"), ("tiny", "direct")],
)
async def test_ask_uses_the_direct_strategy_for_weak_models_if_the_context_fits(
    profile: Profile, strategy: str
) -> None:
    client = model(profile)
    async with RLM(client) as one:
        result = await one.aask(QUERY, TEXT)
    assert (strategy_of(result), len(client.requests)) == (strategy, 1)
    planned = [event for event in result.events if isinstance(event, Planned)]
    assert bool(planned) is (strategy == "direct")


async def test_an_explicit_profile_decides_the_strategy() -> None:
    async with RLM(ScriptedClient(["4821"]), profile="tiny") as one:
        assert strategy_of(await one.aask(QUERY, TEXT)) == "direct"


@pytest.mark.parametrize("profile", ["small", "tiny"])
async def test_an_explicit_strategy_wins(profile: Profile) -> None:
    async with RLM(ScriptedClient([DONE], profile=profile), strategy="rlm") as one:
        result = await one.aask(QUERY, TEXT)
    assert (strategy_of(result), result.answer) == ("rlm", "1: The access code is 4821.")


@pytest.mark.parametrize("profile", ["standard", "small", "tiny"])
async def test_completion_runs_the_loop(profile: Profile) -> None:
    async with RLM(ScriptedClient([DONE], profile=profile)) as one:
        assert strategy_of((await one.acompletion(TEXT, QUERY)).result) == "rlm"


async def test_the_chosen_strategy_is_recorded_with_the_run() -> None:
    settings: dict[str, Any]
    async with RLM(ScriptedClient(["4821"], profile="tiny")) as one:
        asked = (await one.aask(QUERY, TEXT)).events[0]
    async with RLM(ScriptedClient([DONE])) as one:
        completed = (await one.acompletion(TEXT, QUERY)).result.events[0]
    chosen = []
    for event in (asked, completed):
        assert isinstance(event, RunStarted)
        settings = event.settings["config"]
        chosen.append((settings["strategy"], settings["preview_chars"]))
    assert chosen == [("auto", 400), ("rlm", 0)]


@pytest.mark.parametrize("context", [None, ""])
async def test_map_reduce_needs_a_context(context: str | None) -> None:
    client = ScriptedClient(["4821"])
    async with RLM(client, strategy="mapreduce") as one:
        with pytest.raises(ConfigError, match="there is none: use strategy='direct'"):
            await one.aask(QUERY, context)
    assert not client.requests
