"""Which faces show content of the context to the model before its code prints any, and which never.

The context has a canary at either end. The scripted model looks at its length and answers, so a
canary in a request came from the engine. A run that is stuck may fall back to map/reduce, which
sends content by design; no run here is stuck.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

import rlm_runtime
from examples.haystack import make_haystack
from rlm import RLM, AgentRLM, Limits, ScriptedClient, acompletion
from rlm.clients._estimate import request_text
from rlm.gateway.models import Models
from tests.cli.running import rlm
from tests.endpoint import Endpoint, endpoint
from tests.seeds.models import searcher
from tests.seeds.running import run_python
from tests.shape.tree import ROOT

HEAD, TAIL = "canary-at-the-head-5d1e", "canary-at-the-tail-77b0"
TEXT = f"{HEAD}\n" + "a line between the two\n" * 4_000 + f"{TAIL}\n"
QUESTION = "What does the text say about harbours and tides?"
LOOK = "```repl\nprint(len(context))\n```"
DONE = "```repl\nFINAL('harbours: ' + str(len(context)))\n```"
PROFILES = ("frontier", "small", "tiny")

Profile = Literal["frontier", "standard", "small", "tiny"]


def model(profile: Profile = "standard") -> ScriptedClient:
    return ScriptedClient([LOOK, DONE, DONE], profile=profile, window_tokens=128_000)


def sent(client: ScriptedClient) -> str:
    assert len(client.requests) >= 2
    return "\n".join(map(request_text, client.requests))


def canaries(text: str) -> tuple[bool, bool]:
    return HEAD in text, TAIL in text


# -- faces that show the ends of the context ------------------------------------------------------


async def test_ask_shows_both_ends_of_the_context() -> None:
    client = model()
    async with RLM(client) as one:
        await one.aask(QUESTION, TEXT)
    first = str(client.requests[0].messages[1].content)
    assert canaries(first) == (True, True)
    assert first.count("a line between the two") < 20


async def test_stream_shows_the_same_as_ask() -> None:
    client = model()
    async with RLM(client) as one:
        [_ async for _ in one.stream(QUESTION, TEXT)]
    assert canaries(sent(client)) == (True, True)


@pytest.mark.parametrize(("chars", "shown"), [(0, False), (200, True)])
async def test_preview_chars_sets_how_much_ask_shows(chars: int, shown: bool) -> None:
    client = model()
    async with RLM(client, preview_chars=chars) as one:
        await one.aask(QUESTION, TEXT)
    assert canaries(sent(client)) == (shown, shown)


async def test_a_short_context_is_shown_once() -> None:
    client = model()
    async with RLM(client) as one:
        await one.aask(QUESTION, "ab")
    first = str(client.requests[0].messages[1].content)
    assert "All of it:\nab\n" in first
    assert "last" not in first


@pytest.mark.parametrize("bytes_before", [0, 9 << 20])
async def test_ask_shows_both_ends_of_a_file(tmp_path: Path, bytes_before: int) -> None:
    path = tmp_path / "long.txt"
    path.write_text(TEXT[:-1] + "." * bytes_before + f"\n{TAIL}\n", "utf-8")
    client = model()
    async with RLM(client) as one:
        await one.aask(QUESTION, path)
    assert canaries(sent(client)) == (True, True)


# -- faces that never do --------------------------------------------------------------------------


async def by_ask_without_preview(client: ScriptedClient) -> None:
    async with RLM(client, preview_chars=0, strategy="rlm") as one:
        await one.aask(QUESTION, TEXT)


async def by_completion(client: ScriptedClient) -> None:
    async with RLM(client) as one:
        await one.acompletion(TEXT, QUESTION)


async def by_completion_of_the_module(client: ScriptedClient) -> None:
    await acompletion(TEXT, client, root_prompt=QUESTION)


async def by_a_persistent_conversation(client: ScriptedClient) -> None:
    async with RLM(client, persistent=True) as one:
        await one.acompletion(TEXT, QUESTION)


async def by_chat(client: ScriptedClient) -> None:
    async with RLM(client) as one:
        chat = one.chat(TEXT)
        await chat.aask(QUESTION)
        await chat.aclose()


async def by_an_agent(client: ScriptedClient) -> None:
    async with AgentRLM(client) as agent:
        assert [chunk async for chunk in agent.chat(QUESTION, context=TEXT)]


async def by_rlm_runtime(client: ScriptedClient) -> None:
    runtime = rlm_runtime.RLM(adapter=client)
    await runtime.arun(QUESTION, TEXT)
    await runtime._engine.aclose()


async def by_rlm_demo(client: ScriptedClient) -> None:
    async with RLM(model_name=client) as one:
        await one.aask(QUESTION, TEXT)


async def by_the_gateway(client: ScriptedClient) -> None:
    async with Models(client, limits=Limits()).for_run(None, 60.0) as one:
        await one.aask(QUESTION, TEXT)


FACES: tuple[Callable[[ScriptedClient], Any], ...] = (
    by_ask_without_preview,
    by_completion,
    by_completion_of_the_module,
    by_a_persistent_conversation,
    by_chat,
    by_an_agent,
    by_rlm_runtime,
    by_rlm_demo,
    by_the_gateway,
)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("profile", PROFILES)
async def test_no_request_contains_the_context(
    face: Callable[[ScriptedClient], Any], profile: Profile
) -> None:
    client = model(profile)
    await face(client)
    assert canaries(sent(client)) == (False, False)


@contextmanager
def served() -> Generator[Endpoint]:
    def reply(body: dict[str, Any]) -> str:
        return LOOK if len(body["messages"]) == 2 else DONE

    with endpoint(reply) as server:
        yield server


@pytest.mark.parametrize("name", ["gpt-5", "qwen2.5-1.5b"])
@pytest.mark.parametrize("call", ["ask", "completion"])
def test_the_references_spelling_is_isolated(name: str, call: str) -> None:
    with served() as server:
        kwargs = {"model_name": name, "base_url": server.url, "api_key": "k"}
        with RLM(backend="openai", backend_kwargs=kwargs) as one:
            if call == "ask":
                one.ask(QUESTION, TEXT)
            else:
                one.completion(TEXT, QUESTION)
    assert len(server.bodies) == 2
    assert canaries(json.dumps(server.bodies)) == (False, False)


def test_the_demo_is_isolated(tmp_path: Path) -> None:
    text = make_haystack(10_000_000, seed=7).text
    with endpoint(searcher) as server:
        given = {"RLM_MODEL": "gpt-4o", "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.url}
        assert run_python([str(ROOT / "demo.py")], tmp_path, **given).returncode == 0
    assert server.bodies
    asked = [str(body["messages"]) for body in server.bodies]
    assert not [each for each in asked if text[:40] in each or text[-40:].strip() in each]


@pytest.mark.parametrize(("options", "shown"), [((), True), (("--preview-chars", "0"), False)])
def test_the_command_shows_both_ends_unless_told_otherwise(
    tmp_path: Path, options: tuple[str, ...], shown: bool
) -> None:
    (tmp_path / "long.txt").write_text(TEXT)
    with served() as server:
        given = ("-m", "openai/gpt-5", "-f", str(tmp_path / "long.txt"), "--no-journal", *options)
        done = rlm("ask", QUESTION, *given, OPENAI_API_KEY="k", OPENAI_BASE_URL=server.url)
    assert done.returncode == 0, done.stderr
    assert canaries(json.dumps(server.bodies)) == (shown, shown)
