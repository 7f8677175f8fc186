"""What holds for all tools of a gateway, without anything that carries the requests."""

import asyncio
from pathlib import Path

import anyio
import pytest

pytest.importorskip("mcp")

from rlm.gateway import gateway as gateway_module
from rlm.gateway.errors import BudgetSpent, Refused
from rlm.gateway.sessions import MAX_SESSIONS_EACH
from tests.gateway.places import HERE, asked, opened, session_of
from tests.gateway.recipes import Recipe
from tests.processes import running_below

ME = "ada"


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    for root in ("repo", "other"):
        (tmp_path / root).mkdir()
        for name in ("a.txt", "b.txt", "c.txt"):
            (tmp_path / root / name).write_text(f"word in {name}\n" * 3)
    return Recipe(tmp_path, roots=("repo", "other"))


async def test_pages_of_a_search_do_not_depend_on_the_order_of_handles(recipe: Recipe) -> None:
    gateway = recipe.gateway()
    try:
        session = gateway.create_session(ME)["session"]
        files = (await gateway.list_files(ME, session))["files"]
        handles = [file["handle"] for file in files][::-1]
        seen: list[tuple[str, int]] = []
        cursor = None
        while not seen or cursor is not None:
            found = await gateway.search(
                ME, session, "word", "regex", handles=handles, limit=2, cursor=cursor
            )
            seen += [(hit["name"], hit["line"]) for hit in found["hits"]]
            cursor = found["next_cursor"]
        assert seen == [(name, n) for name in ("a.txt", "b.txt", "c.txt") for n in (1, 2, 3)]
    finally:
        await gateway.close()


async def test_an_interrupted_search_can_be_continued(recipe: Recipe) -> None:
    (recipe.root / "b.txt").write_text("a" * 5_000 + "!\n")
    recipe.options = {"search_seconds": 0.5}
    gateway = recipe.gateway()
    try:
        session = gateway.create_session(ME)["session"]
        found = await gateway.search(ME, session, "word in a|(a+)+$", "regex")
        assert ([hit["line"] for hit in found["hits"]], found["complete"]) == ([1, 2, 3], False)
        assert found["next_cursor"] is not None
    finally:
        await gateway.close()


async def test_handles_of_different_roots_cannot_be_searched_together(recipe: Recipe) -> None:
    gateway = recipe.gateway()
    try:
        session = gateway.create_session(ME)["session"]
        handles = [
            (await gateway.open(ME, session, "a.txt", root=root))["handle"] for root in recipe.roots
        ]
        with pytest.raises(Refused, match="one root at a time"):
            await gateway.search(ME, session, "word", handles=handles)
    finally:
        await gateway.close()


async def test_a_search_without_any_bytes_left_says_so(recipe: Recipe) -> None:
    gateway = recipe.gateway()
    try:
        session = gateway.create_session(ME, limits={"bytes": 0})["session"]
        with pytest.raises(BudgetSpent, match="has 0 bytes left"):
            await gateway.search(ME, session, "word")
    finally:
        await gateway.close()


async def test_a_session_without_roots_has_no_files(recipe: Recipe) -> None:
    gateway = recipe.gateway()
    try:
        session = gateway.create_session(ME, roots=[])["session"]
        with pytest.raises(Refused, match="has no root"):
            await gateway.list_files(ME, session)
    finally:
        await gateway.close()


async def test_one_principal_cannot_use_up_the_sessions_of_others(recipe: Recipe) -> None:
    gateway = recipe.gateway()
    try:
        for _ in range(MAX_SESSIONS_EACH):
            gateway.create_session(ME)
        with pytest.raises(Refused, match="too many sessions"):
            gateway.create_session(ME)
        assert gateway.create_session("ben")["session"]
    finally:
        await gateway.close()


async def test_idle_sessions_end_even_without_further_requests(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "SWEEP_SECONDS", 0.01)
    now = 0.0
    gateway = recipe.gateway(clock=lambda: now)
    try:
        session = gateway.sessions.get(gateway.create_session(ME)["session"], ME)
        await asyncio.sleep(0.03)
        assert not session.is_closed
        now = 3_601.0
        while not session.is_closed:
            await asyncio.sleep(0.01)
    finally:
        await gateway.close()


AT_REST = 2
"""The process that searches are forked from, and one that is ready for the next search."""


@pytest.mark.parametrize("place", HERE)
async def test_a_cancelled_search_leaves_no_process(place: str, recipe: Recipe) -> None:
    (recipe.root / "trap.txt").write_text("a" * 5_000 + "!\n")
    recipe.options = {"search_seconds": 600.0}
    async with opened(place, recipe) as house, house.client() as client:
        session = await session_of(client)
        arguments = {"session": session, "query": "(a+)+$", "mode": "regex"}
        assert house.gateway is not None
        await asked(client, "rlm_search", session=session, query="word")
        with anyio.move_on_after(1.0) as scope:
            await client.call_tool("rlm_search", arguments)
        assert scope.cancelled_caught
        while len(running_below("search_worker")) > AT_REST:
            await asyncio.sleep(0.01)
        assert (await asked(client, "rlm_search", session=session, query="word"))["hits"]
    while running_below("search_worker"):
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("place", HERE)
async def test_cancelled_code_of_a_client_is_killed(place: str, recipe: Recipe) -> None:
    recipe.options = {"exec_seconds": 600.0}
    async with opened(place, recipe) as house, house.client() as client:
        session = await session_of(client)
        assert house.gateway is not None
        await asked(client, "rlm_exec", session=session, code="x = 1")
        with anyio.move_on_after(0.5) as scope:
            await client.call_tool("rlm_exec", {"session": session, "code": "while True: pass"})
        assert scope.cancelled_caught
        while house.gateway.executor._open:
            await asyncio.sleep(0.01)
        done = await asked(client, "rlm_exec", session=session, code="print('x' in globals())")
        assert (done["output"], done["fresh"]) == ("False\n", True)


async def test_an_internal_error_is_shown_only_in_the_log(
    recipe: Recipe, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened("memory", recipe) as house, house.client() as client:
        session = await session_of(client)
        assert house.gateway is not None

        def fails(*_: object) -> None:
            raise KeyError("/secret/path")

        monkeypatch.setattr(house.gateway.ledger, "begin", fails)
        result = await client.call_tool("rlm_list", {"session": session})
        assert result.is_error
        assert "secret" not in repr(result.content)
        assert "/secret/path" in caplog.text
