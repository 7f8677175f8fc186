"""`rlm_complete` and `rlm_continue` through real clients: runs, progress, pauses, cancellation."""

import asyncio
import json
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp")

from rlm.errors import ModelError
from rlm.gateway.models import Models
from rlm.gateway.runs import MAX_AT_ONCE
from rlm.limits import Limits
from rlm.messages import PICODOLLARS, Price
from rlm.testing.scripted import ScriptedClient
from tests.gateway.places import HERE, NEAR, House, asked, opened, refused, session_of
from tests.gateway.recipes import Recipe

STEP = '```repl\nprint(llm_query_batched(["one?", "two?"]))\n```'
DONE = '```repl\nFINAL({"answer": "done", "citations": []})\n```'


@pytest.fixture(params=NEAR)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "a.txt").write_text("alpha\nbeta\n")
    return Recipe(tmp_path)


class Gate(ScriptedClient):
    """Replies only when the gate is open, so that a test decides what comes first."""

    def __init__(self, script: list[str]) -> None:
        super().__init__(script, price=Price(1.0, 2.0))
        self.open = asyncio.Event()
        self.waiting = self.cancelled = 0

    async def complete(self, request: Any, *, timeout_seconds: float) -> Any:
        self.waiting += 1
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return await super().complete(request, timeout_seconds=timeout_seconds)


async def test_progress_is_reported_during_a_run(place: str, recipe: Recipe) -> None:
    recipe.script = [STEP, "1", "2", DONE]
    heard: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    async with opened(place, recipe) as house, house.client() as client:
        session = await session_of(client)
        arguments = {"session": session, "query": "?", "path": ""}
        result = await client.call_tool("rlm_complete", arguments, progress_callback=hear)
        assert result.structured_content is not None
        run = result.structured_content
        assert (run["status"], run["cited"]) == ("done", False)
        assert run["usage"]["calls"] == 4
        assert run["usage"]["cost_usd"] > 0
    assert len(heard) >= 2
    assert [number for number, _ in heard] == sorted({number for number, _ in heard})
    assert all(message and message.startswith("step ") for _, message in heard)


async def test_a_long_run_continues_and_can_be_awaited_later(recipe: Recipe) -> None:
    model = Gate([DONE])
    async with (
        opened("memory", recipe, models=Models(model), run_seconds=0.0) as house,
        house.client() as client,
    ):
        session = await session_of(client)
        first = await asked(client, "rlm_complete", session=session, query="?", path="")
        assert (first["status"], first["left"]["runs"]) == ("running", 49)
        again = await asked(client, "rlm_continue", session=session, run_id=first["run_id"])
        assert again["status"] == "running"
        model.open.set()
        run = again
        while run["status"] == "running":
            run = await asked(client, "rlm_continue", session=session, run_id=first["run_id"])
        assert (run["status"], run["answer"], run["run_id"]) == ("done", "done", first["run_id"])


@pytest.mark.parametrize("place", HERE)
async def test_runs_end_with_their_session(place: str, recipe: Recipe) -> None:
    model = Gate([DONE])
    async with (
        opened(place, recipe, models=Models(model), run_seconds=0.0) as house,
        house.client() as client,
    ):
        session = await session_of(client)
        for _ in range(MAX_AT_ONCE):
            await asked(client, "rlm_complete", session=session, query="?", path="")
        text = await refused(client, "rlm_complete", session=session, query="?", path="")
        assert f"this session has {MAX_AT_ONCE} runs in progress" in text
        while model.waiting < MAX_AT_ONCE:
            await asyncio.sleep(0.01)
        await asked(client, "rlm_session_close", session=session)
        while model.cancelled < MAX_AT_ONCE:
            await asyncio.sleep(0.01)
    assert model.requests == []


async def test_cancelling_the_request_cancels_the_run(place: str, recipe: Recipe) -> None:
    recipe.script, recipe.delay_seconds = [DONE], 600.0
    async with opened(place, recipe) as house, house.client() as client:
        session = await session_of(client)

        async def give_up(scope: anyio.CancelScope) -> None:
            while _last(await asked(client, "rlm_provenance", session=session)).get("run") is None:
                await asyncio.sleep(0.01)
            scope.cancel()

        arguments = {"session": session, "query": "?", "path": "a.txt"}
        async with anyio.create_task_group() as group:
            group.start_soon(give_up, group.cancel_scope)
            await client.call_tool("rlm_complete", arguments)
        ended: dict[str, Any] = {}
        while "ended" not in ended:
            ended = _last(await asked(client, "rlm_provenance", session=session))
        assert (ended["ended"], ended["usage"]["calls"]) == ("cancelled", 0)
        text = await refused(client, "rlm_continue", session=session, run_id=ended["run"])
        assert text == "this run was cancelled"


def _last(report: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = report["entries"][-1]
    return found


async def test_two_clients_cannot_see_each_others_sessions(place: str, recipe: Recipe) -> None:
    recipe.script = [DONE, DONE]
    if place.startswith("stdio"):
        async with opened(place, recipe) as house, house.client() as ada, house.client() as ben:
            await _are_strangers(ada, ben)
        return
    async with (
        opened(place, recipe) as house,
        house.client("ada") as ada,
        house.client("ben") as ben,
    ):
        await _are_strangers(ada, ben)


async def _are_strangers(ada: Any, ben: Any) -> None:
    hers, his = await session_of(ada), await session_of(ben)
    handle = (await asked(ada, "rlm_open", session=hers, path="a.txt"))["handle"]
    run = await asked(ada, "rlm_complete", session=hers, query="?", handles=[handle])
    own = (await asked(ben, "rlm_open", session=his, path="a.txt"))["handle"]
    assert own != handle
    for tool, arguments in (
        ("rlm_list", {}),
        ("rlm_read", {"handle": handle}),
        ("rlm_provenance", {}),
        ("rlm_exec", {"code": "1"}),
        ("rlm_continue", {"run_id": run["run_id"]}),
        ("rlm_session_close", {}),
    ):
        text = await refused(ben, tool, session=hers, **arguments)
        assert "unknown, or has ended" in text, tool
    assert "no such handle" in await refused(ben, "rlm_read", session=his, handle=handle)
    text = await refused(ben, "rlm_continue", session=his, run_id=run["run_id"])
    assert "no such run" in text
    report = await asked(ben, "rlm_provenance", session=his)
    assert report["of"] == 2
    assert (await asked(ben, "rlm_list", session=his))["left"]["runs"] == 50
    assert (await asked(ada, "rlm_list", session=hers))["left"]["runs"] == 49


async def test_money_for_a_run_is_reserved_spent_and_released(recipe: Recipe) -> None:
    recipe.ceilings = {"cost_usd": 1.0}
    model = Gate([DONE, DONE])
    async with (
        opened("memory", recipe, models=Models(model), run_seconds=0.0) as house,
        house.client() as client,
    ):
        session = await session_of(client)
        first = await asked(client, "rlm_complete", session=session, query="?", path="")
        text = await refused(client, "rlm_complete", session=session, query="?", path="")
        assert "reserved by a run in progress" in text
        model.open.set()
        run = first
        while run["status"] == "running":
            run = await asked(client, "rlm_continue", session=session, run_id=first["run_id"])
        left = run["left"]["cost_usd"]
        assert 0 < 1.0 - left == pytest.approx(run["usage"]["cost_usd"])


PRICE = Price(100.0, 200.0)


class CutOff(ScriptedClient):
    """Requests fail after they were sent; the provider may have billed them."""

    def __init__(self) -> None:
        super().__init__([], price=PRICE)
        self.bounds = list[int]()

    async def complete(self, request: Any, *, timeout_seconds: float) -> Any:
        self.bounds.append(PRICE.bound(request.bound_tokens, request.max_output_tokens))
        raise ModelError("the connection broke", ambiguous=True)


async def test_money_that_failed_requests_may_have_cost_counts_in_the_session(
    recipe: Recipe,
) -> None:
    recipe.ceilings = {"cost_usd": 6.0}
    model = CutOff()
    async with opened("memory", recipe, models=Models(model)) as house, house.client() as client:
        session = await session_of(client)
        for number in (1, 2, 3):
            text = await refused(client, "rlm_complete", session=session, query="?", path="")
            assert text == "the run failed; the operator's log says why"
            listed = await asked(client, "rlm_list", session=session)
            may_have_cost = sum(model.bounds) / PICODOLLARS
            assert 6.0 - listed["left"]["cost_usd"] == pytest.approx(may_have_cost)
            assert (len(model.bounds), may_have_cost < 6.0) == (number, True)


async def test_a_failed_run_reveals_nothing_of_the_operators_model(
    recipe: Recipe, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedClient([ModelError("https://key:hunter2@example.org said no")])
    async with opened("memory", recipe, models=Models(model)) as house, house.client() as client:
        session = await session_of(client)
        text = await refused(client, "rlm_complete", session=session, query="?", path="")
        assert text == "the run failed; the operator's log says why"
        assert "hunter2" in caplog.text
        report = json.dumps(await asked(client, "rlm_provenance", session=session))
        assert "hunter2" not in report
        assert '"ended": "error"' in report


async def test_an_answer_in_any_form_is_returned(recipe: Recipe) -> None:
    forms = [
        'FINAL("plain words")',
        'FINAL({"answer": 42})',
        'FINAL({"answer": "x", "citations": "none"})',
        'FINAL({"answer": "y", "citations": [{"file": 3}, "alpha", {"quote": "alpha"}]})',
        "FINAL('z' * 100_000)",
    ]
    recipe.script = [f"```repl\n{form}\n```" for form in forms]
    async with opened("memory", recipe) as house, house.client() as client:
        session = await session_of(client)
        runs = [
            await asked(client, "rlm_complete", session=session, query="?", path="a.txt")
            for _ in forms
        ]
    assert [run["answer"][:20] for run in runs] == ["plain words", "42", "x", "y", "z" * 20]
    assert [run["cited"] for run in runs] == [False, False, False, True, False]
    assert [run["dropped_citations"] for run in runs] == [0, 0, 0, 2, 0]
    assert (len(runs[4]["answer"]), runs[4]["answer_cut"]) == (32_768, True)


async def test_citations_made_by_cells_are_returned_in_the_same_form(recipe: Recipe) -> None:
    recipe.script = ["```repl\ncite(6, 10, 'a.txt')\ncite('never there')\nFINAL('beta')\n```"]
    async with opened("memory", recipe) as house, house.client() as client:
        session = await session_of(client)
        run = await asked(client, "rlm_complete", session=session, query="?", path="a.txt")
    assert (run["answer"], run["dropped_citations"]) == ("beta", 0)
    assert [(each["quote"], each["start_line"]) for each in run["citations"]] == [("beta", 2)]


async def test_the_operators_limits_apply_to_runs(recipe: Recipe) -> None:
    (recipe.root / "b.txt").write_text("more")
    recipe.ceilings = {"run_files": 1, "run_bytes": 12}
    model = ScriptedClient(["no cell here"] * 9)
    models = Models(model, limits=Limits(max_steps=2))
    async with opened("memory", recipe, models=models) as house, house.client() as client:
        session = await session_of(client)
        text = await refused(client, "rlm_complete", session=session, query="?", path="")
        assert "at most 1 file " in text
        (recipe.root / "b.txt").write_text("much more than is allowed")
        text = await refused(client, "rlm_complete", session=session, query="?", path="b.txt")
        assert "more than 12 bytes" in text
        run = await asked(client, "rlm_complete", session=session, query="?", path="a.txt")
        assert (run["usage"]["steps"] <= 2, run["left"]["runs"]) == (True, 49)


async def test_no_file_content_appears_in_progress_or_the_record(recipe: Recipe) -> None:
    recipe.script = [STEP, "alpha", "beta", '```repl\nFINAL(context["a.txt"][:5])\n```']
    heard: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    async with opened("memory", recipe) as house, house.client() as client:
        session = await session_of(client)
        arguments = {"session": session, "query": "secret question", "path": ""}
        result = await client.call_tool("rlm_complete", arguments, progress_callback=hear)
        assert result.structured_content is not None
        assert result.structured_content["answer"] == "alpha"
        assert isinstance(house, House)
        assert house.gateway is not None
        record = house.gateway.provenance.path.read_text()
        for text in ("alpha", "beta", "secret question"):
            assert text not in record
            assert text not in "".join(heard)
