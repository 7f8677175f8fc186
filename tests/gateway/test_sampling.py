"""The client's own model, in both eras of the protocol: no key is needed anywhere."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from mcp import types

from rlm.gateway.models import Models
from rlm.gateway.runs import MAX_ROUNDS
from rlm.limits import Limits
from tests.gateway.places import EVERYWHERE, NEAR, asked, opened, refused, session_of
from tests.gateway.recipes import Recipe

PARTS = 8
BATCH = '```repl\nprint(llm_query_batched([f"part {n}?" for n in range(8)]))\n```'
DONE = """```repl
FINAL({"answer": "two words", "citations": [{"file": "a.txt", "start_line": 1, "quote": "alpha"}]})
```"""


@pytest.fixture(params=NEAR)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "a.txt").write_text("alpha\nbeta\n")
    return Recipe(tmp_path)


class Person:
    """The model of a client: replies by a function, and remembers who asked what, and when."""

    def __init__(self, reply: Callable[[str], str | types.ErrorData]) -> None:
        self.reply = reply
        self.asked: list[str] = []
        self.all_parts = asyncio.Event()

    async def __call__(self, _context: Any, params: Any) -> Any:
        content = params.messages[-1].content
        assert isinstance(content, types.TextContent)
        self.asked.append(content.text)
        if content.text.startswith("part "):
            if sum(each.startswith("part ") for each in self.asked) == PARTS:
                self.all_parts.set()
            async with asyncio.timeout(60):  # passes only if all are asked at once
                await self.all_parts.wait()
        text = self.reply(content.text)
        if isinstance(text, types.ErrorData):
            return text
        return types.CreateMessageResult(
            role="assistant",
            content=types.TextContent(type="text", text=text),
            model="theirs",
            stop_reason="endTurn",
        )


def scripted(*steps: str) -> Callable[[str], str]:
    left = list(steps)
    return lambda text: "a part" if text.startswith("part ") else left.pop(0)


@pytest.mark.parametrize("place", EVERYWHERE)
async def test_a_run_can_be_answered_by_the_clients_model(place: str, recipe: Recipe) -> None:
    person = Person(scripted(BATCH, DONE))
    async with opened(place, recipe) as house, house.client(sampling_callback=person) as client:
        session = await session_of(client)
        run = await asked(client, "rlm_complete", session=session, query="?", path="")
        assert (run["status"], run["answer"], run["cited"]) == ("done", "two words", True)
        assert run["usage"] == {"steps": 2, "calls": 10, "known": False}
        assert len(person.asked) == PARTS + 2
        report = await asked(client, "rlm_provenance", session=session)
        sampled = [entry for entry in report["entries"] if entry["tool"] == "sampling"]
        assert len(sampled) == 10
        shown = sum(entry["bytes"] for entry in sampled) + len("two words") + len("alpha")
        assert report["left"]["bytes"] == 20_000_000 - shown


async def test_all_calls_of_a_batch_are_sent_in_one_round(recipe: Recipe) -> None:
    person = Person(scripted(BATCH, DONE))
    async with opened("memory", recipe) as house, house.client(sampling_callback=person) as client:
        session = await session_of(client)
        arguments = {"session": session, "query": "?", "path": ""}
        sizes: list[int] = []
        result: Any = await client.session.call_tool(
            "rlm_complete", arguments, allow_input_required=True
        )
        while isinstance(result, types.InputRequiredResult):
            assert result.input_requests is not None
            sizes.append(len(result.input_requests))
            names = list(result.input_requests)
            asking = [person(None, result.input_requests[name].params) for name in names]
            replies: dict[str, Any] = dict(zip(names, await asyncio.gather(*asking), strict=True))
            result = await client.session.call_tool(
                "rlm_complete",
                arguments,
                input_responses=replies,
                request_state=result.request_state,
                allow_input_required=True,
            )
        assert result.structured_content["answer"] == "two words"
        assert sizes == [1, 8, 1]


async def test_a_run_pauses_after_eight_rounds_and_can_continue(place: str, recipe: Recipe) -> None:
    steps = [f"```repl\nx = {number}\n```" for number in range(MAX_ROUNDS + 2)]
    person = Person(scripted(*steps, DONE))
    async with opened(place, recipe) as house, house.client(sampling_callback=person) as client:
        session = await session_of(client)
        run = await asked(client, "rlm_complete", session=session, query="?", path="")
        if place.endswith("legacy"):  # no rounds there: each call is a separate request
            assert run["status"] == "done"
            return
        assert (run["status"], len(person.asked)) == ("paused", MAX_ROUNDS)
        run = await asked(client, "rlm_continue", session=session, run_id=run["run_id"])
        assert (run["status"], len(person.asked)) == ("done", MAX_ROUNDS + 3)


@pytest.mark.parametrize("place", ["memory-legacy", "http-legacy"])
async def test_a_reply_that_arrives_after_the_request_ended_is_not_lost(
    place: str, recipe: Recipe
) -> None:
    person, may_reply = Person(scripted(DONE)), asyncio.Event()

    async def slowly(context: Any, params: Any) -> Any:
        await may_reply.wait()
        return await person(context, params)

    async with (
        opened(place, recipe, run_seconds=0.5) as house,
        house.client(sampling_callback=slowly) as client,
    ):
        session = await session_of(client)
        run = await asked(client, "rlm_complete", session=session, query="?", path="")
        assert run["status"] == "paused"
        may_reply.set()
        while run["status"] != "done":
            run = await asked(client, "rlm_continue", session=session, run_id=run["run_id"])
        assert len(person.asked) == 1


async def test_calls_wait_until_a_client_offers_a_model_again(recipe: Recipe) -> None:
    person = Person(scripted(DONE))
    async with opened("memory-legacy", recipe, run_seconds=0.0) as house:
        async with house.client(sampling_callback=person) as client:
            session = await session_of(client)
            run = await asked(client, "rlm_complete", session=session, query="?", path="")
        async with house.client() as client:
            while run["status"] == "running":
                run = await asked(client, "rlm_continue", session=session, run_id=run["run_id"])
            assert (run["status"], person.asked) == ("paused", [])
        assert house.gateway is not None
        house.gateway.completer._waiter.seconds = 45.0
        async with house.client(sampling_callback=person) as client:
            run = await asked(client, "rlm_continue", session=session, run_id=run["run_id"])
            assert (run["status"], len(person.asked)) == ("done", 1)


async def test_a_run_fails_if_the_client_declines_to_sample(place: str, recipe: Recipe) -> None:
    person = Person(lambda _: types.ErrorData(code=-1, message="the user said no"))
    async with opened(place, recipe) as house, house.client(sampling_callback=person) as client:
        session = await session_of(client)
        arguments = {"session": session, "query": "?", "path": ""}
        if place.endswith("legacy"):
            text = await refused(client, "rlm_complete", **arguments)
            assert "the user said no" in text
        else:  # the SDK's client gives up by itself
            with pytest.raises(Exception, match="the user said no"):
                await client.call_tool("rlm_complete", arguments)
        assert (await asked(client, "rlm_list", session=session))["files"]


async def test_unrequested_replies_are_ignored(recipe: Recipe) -> None:
    person = Person(scripted(DONE))
    async with opened("memory", recipe) as house, house.client(sampling_callback=person) as client:
        session = await session_of(client)
        arguments = {"session": session, "query": "?", "path": ""}
        first: Any = await client.session.call_tool(
            "rlm_complete", arguments, allow_input_required=True
        )
        wrong: dict[str, Any] = {
            "call-99": await person(None, next(iter(first.input_requests.values())).params)
        }
        again: Any = await client.session.call_tool(
            "rlm_complete",
            arguments,
            input_responses=wrong,
            request_state=first.request_state,
            allow_input_required=True,
        )
        assert list(again.input_requests) == list(first.input_requests)
        odd: dict[str, Any] = {"call-1": types.ElicitResult(action="decline")}
        ended: Any = await client.session.call_tool(
            "rlm_complete",
            arguments,
            input_responses=odd,
            request_state=again.request_state,
            allow_input_required=True,
        )
        assert ended.is_error
        assert "not the reply of a model" in ended.content[0].text


async def test_a_state_of_another_request_is_refused(recipe: Recipe) -> None:
    person = Person(scripted(DONE, DONE))
    async with opened("memory", recipe) as house, house.client(sampling_callback=person) as client:
        session, other = await session_of(client), await session_of(client)
        arguments = {"session": session, "query": "?", "path": ""}
        first: Any = await client.session.call_tool(
            "rlm_complete", arguments, allow_input_required=True
        )
        for changed in ({**arguments, "session": other}, {**arguments, "query": "!"}):
            with pytest.raises(Exception, match="requestState"):
                await client.session.call_tool(
                    "rlm_complete",
                    changed,
                    request_state=first.request_state,
                    allow_input_required=True,
                )


async def test_without_a_model_the_client_is_told_to_do_the_work_itself(
    place: str, recipe: Recipe
) -> None:
    async with opened(place, recipe) as house, house.client() as client:
        session = await session_of(client)
        told = await asked(client, "rlm_complete", session=session, query="?", path="")
        assert told["status"] == "host"
        for tool in ("rlm_search", "rlm_read", "rlm_exec"):
            assert tool in told["instruction"]
        assert told["left"]["runs"] == 50


async def test_the_operator_can_disable_sampling(recipe: Recipe) -> None:
    person = Person(scripted(DONE))
    async with (
        opened("memory", recipe, samples=False) as house,
        house.client(sampling_callback=person) as client,
    ):
        session = await session_of(client)
        told = await asked(client, "rlm_complete", session=session, query="?", path="")
        assert (told["status"], person.asked) == ("host", [])


async def test_text_shown_to_the_clients_model_counts_towards_the_byte_ceiling(
    recipe: Recipe,
) -> None:
    recipe.ceilings = {"bytes": 1_000}
    person = Person(scripted(DONE))
    models = Models(limits=Limits(max_steps=2))
    async with (
        opened("memory-legacy", recipe, models=models) as house,
        house.client(sampling_callback=person) as client,
    ):
        session = await session_of(client)
        text = await refused(client, "rlm_complete", session=session, query="?", path="")
        assert "has 1,000 bytes left" in text
        assert person.asked == []
