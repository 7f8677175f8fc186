"""Sampling options of one call are added to those of the object, in every method."""

import asyncio
from typing import Any

import pytest

import rlm
from rlm import RLM, ScriptedClient
from rlm.errors import ConfigError
from rlm.testing.fake_server import FakeServer
from tests.fakes import PlanEnvironment, cell

CONFIGURED = {"temperature": 0.7, "top_p": 0.9}
SUB_CONFIGURED = {"temperature": 0.5}
GIVEN = {"temperature": 0, "stop": ["END"], "top_p": None}
SUB_GIVEN = {"seed": 3}
MERGED = {"temperature": 0, "stop": ["END"]}
SUB_MERGED = {"temperature": 0.5, "seed": 3}


class Models:
    """A root model that calls the other one once in every run, and an `RLM` over both."""

    def __init__(self, runs: int, **options: Any) -> None:
        self.root = ScriptedClient([cell(["llm", 1], ["final", "done"])] * runs)
        self.sub = ScriptedClient(["fine"] * runs)
        self.rlm = RLM(
            self.root,
            sub_model=self.sub,
            environment=PlanEnvironment(),
            sampling=CONFIGURED,
            sub_sampling=SUB_CONFIGURED,
            **options,
        )

    @property
    def sampled(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """The options of each run: those of its own request, and those of its call."""
        pairs = zip(self.root.requests, self.sub.requests, strict=True)
        return [(own.sampling, call.sampling) for own, call in pairs]


async def drained(stream: Any) -> None:
    async for _ in stream:
        pass


async def test_every_async_method_accepts_sampling() -> None:
    given: dict[str, Any] = {"sampling": GIVEN, "sub_sampling": SUB_GIVEN}
    models = Models(6)
    async with models.rlm as one:
        await one.aask("What?", "text", **given)
        await drained(one.stream("What?", "text", **given))
        await one.acompletion("text", **given)
        chat = one.chat("text")
        await chat.aask("What?", **given)
        await drained(chat.stream("And?", **given))
        await chat.aclose()
        await one.aask("What?", "text")
    assert models.sampled == [*[(MERGED, SUB_MERGED)] * 5, (CONFIGURED, SUB_CONFIGURED)]
    assert models.rlm.config.sampling == CONFIGURED, "the next call starts from the same"


def test_every_blocking_method_accepts_sampling() -> None:
    given: dict[str, Any] = {"sampling": GIVEN, "sub_sampling": SUB_GIVEN}
    models = Models(3)
    with models.rlm as one:
        one.ask("What?", "text", **given)
        one.completion("text", "What?", **given)
        with one.chat("text") as chat:
            chat.ask("What?", **given)
    assert models.sampled == [(MERGED, SUB_MERGED)] * 3


async def test_sampling_applies_to_one_turn_of_a_persistent_conversation() -> None:
    models = Models(2, persistent=True)
    async with models.rlm as one:
        await one.acompletion("text", "What?", sampling=GIVEN)
        await one.acompletion("text", "And?")
    assert models.sampled == [(MERGED, SUB_CONFIGURED), (CONFIGURED, SUB_CONFIGURED)]


async def test_sampling_of_concurrent_runs_is_kept_separate() -> None:
    models = Models(8)
    async with models.rlm as one:
        await asyncio.gather(
            *(one.aask("What?", "text", sampling={"temperature": n / 10}) for n in range(8))
        )
    found = sorted(request.sampling["temperature"] for request in models.root.requests)
    assert found == [n / 10 for n in range(8)]


@pytest.mark.parametrize("wrong", [3, "temperature=0", [("temperature", 0)]])
@pytest.mark.parametrize("name", ["sampling", "sub_sampling"])
async def test_sampling_must_be_a_dict(name: str, wrong: Any) -> None:
    models = Models(1)
    async with models.rlm as one:
        with pytest.raises(ConfigError, match=f"{name} must be a dict, not {type(wrong).__name__}"):
            await one.aask("What?", "text", **{name: wrong})
    assert models.root.requests == []


def test_sampling_is_sent_to_the_server() -> None:
    with FakeServer(["```final\nblue\n```", "```final\nblue\n```"]) as server:
        variables = {"MISTRAL_API_KEY": "sk-0123456789", "MISTRAL_BASE_URL": server.openai_url}
        options: dict[str, Any] = {"strategy": "direct", "variables": variables}
        with RLM("mistral/mistral-medium-3.5", sampling={"top_p": 0.5}, **options) as one:
            one.completion("sky", "What colour?", sampling={"temperature": 0, "max_tokens": 9})
        rlm.completion("sky", "mistral/mistral-medium-3.5", sampling={"stop": ["END"]}, **options)
        first, second = (each.asked.body for each in server.requests if each.asked is not None)
    assert (first["top_p"], first["temperature"], first["max_tokens"]) == (0.5, 0, 9)
    assert second["stop"] == ["END"]
    assert "temperature" not in second
