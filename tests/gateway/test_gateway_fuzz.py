"""Arguments of any shape and paths of any kind: always a clean answer, never a file outside."""

import asyncio
import json
import logging
import string
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from mcp import Client

from rlm.gateway.server import make_server
from rlm.gateway.tools import TOOLS
from tests.gateway.recipes import Recipe

CASES, MANY_CASES = 500, 10_000
AT_ONCE = 50
"""Cases are drawn in lists: one gateway and one client serve them all."""

OUTSIDE = "OUTSIDE-OF-THE-ROOT"
DENIED = "DENIED-IN-THE-ROOT"
NAMES = sorted({name for tool in TOOLS for name in tool.request.__struct_fields__})

WORDS = st.sampled_from(
    [
        *("", ".", "..", "../", "a.txt", "sub/b.txt", ".env", "SESSION", "HANDLE", "RUN", "CURSOR"),
        *("(a+)+$", "[", "\\", "(?P<x>", "x{1000000}", "repo", "ranked", "regex", "alpha beta"),
        *("print(files)", "\0", "9" * 400, "\u202e", "h_", "s_"),
    ]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-3, 300)
    | st.floats()
    | WORDS
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
LIKELY = {
    "session": st.just("SESSION"),
    "handle": st.just("HANDLE"),
    "handles": st.just(["HANDLE"]),
    "cursor": st.just("CURSOR"),
    "run_id": st.just("RUN"),
    "mode": st.sampled_from(["ranked", "regex"]),
}


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A tool with random arguments, most of the right type."""
    tool = draw(st.sampled_from(TOOLS))
    arguments: dict[str, Any] = {}
    for name in tool.request.__struct_fields__:
        chance = draw(st.integers(0, 9))
        if chance < 6 and name in LIKELY:
            arguments[name] = draw(LIKELY[name])
        elif chance < 9:
            arguments[name] = draw(WORDS | JSON)
    if draw(st.integers(0, 9)) == 0:
        arguments[draw(st.sampled_from(NAMES) | st.text(max_size=5))] = draw(JSON)
    return tool.name, arguments


PART = st.one_of(
    st.sampled_from(["..", ".", "", "sub", "a.txt", "outside.txt", "out", "loop", ".env", ".ENV"]),
    st.sampled_from(
        ["a.txt\0", "..\\", "\u2025", "\uff0e\uff0e", "%2e%2e", "A.TXT", "~", "C:", "x" * 300]
    ),
    st.text(st.sampled_from(string.ascii_lowercase + "./\\\0 \u0301é"), max_size=6),
)
PATHS = st.builds(
    lambda start, parts: start + "/".join(parts),
    st.sampled_from(["", "/", "./", "../", "//", "FOLDER/", "~/"]),
    st.lists(PART, max_size=5) | PART.map(lambda part: [part] * 150),
)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    root = tmp_path / "repo"
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_text("alpha\nbeta\n" * 300)
    (root / "sub" / "b.txt").write_text("beta\n")
    (root / ".env").write_text(DENIED)
    (root / "sub" / "id_rsa").write_text(DENIED)
    (tmp_path / "outside.txt").write_text(OUTSIDE)
    (tmp_path / "repo-evil").mkdir()
    (tmp_path / "repo-evil" / "a.txt").write_text(OUTSIDE)
    (root / "outside.txt").symlink_to(tmp_path / "outside.txt")
    (root / "out").symlink_to(tmp_path)
    (root / "loop").symlink_to(root / "loop")
    (root / "sub" / "up").symlink_to(root)
    options = {"search_seconds": 2.0, "exec_seconds": 2.0, "run_seconds": 0.0}
    return Recipe(tmp_path, script=["no cell"] * 10**6, options=options)


@pytest.mark.heavy
def test_any_arguments_get_a_clean_answer(recipe: Recipe, caplog: pytest.LogCaptureFixture) -> None:
    _any_arguments(recipe, caplog, CASES)


@pytest.mark.heavy
def test_ten_thousand_arguments_get_clean_answers(
    recipe: Recipe, caplog: pytest.LogCaptureFixture
) -> None:
    _any_arguments(recipe, caplog, MANY_CASES)


def _any_arguments(recipe: Recipe, caplog: pytest.LogCaptureFixture, cases: int) -> None:
    done = 0

    @_cases(cases)
    @given(st.lists(calls(), min_size=AT_ONCE, max_size=AT_ONCE))
    def check(asked: list[tuple[str, dict[str, Any]]]) -> None:
        nonlocal done
        caplog.clear()
        asyncio.run(_ask_all(recipe, asked))
        assert not [each for each in caplog.records if each.exc_info], caplog.text
        done += len(asked)

    check()
    assert done >= cases


async def _ask_all(recipe: Recipe, asked: list[tuple[str, dict[str, Any]]]) -> None:
    gateway = recipe.gateway()
    try:
        async with Client(make_server(gateway, lambda _: "ada")) as client:
            known = await _known(client)
            for tool, arguments in asked:
                given = _filled(arguments, known)
                await _clean(client, recipe, tool, given)
                if tool in ("rlm_session_close", "rlm_session_create"):
                    known = await _known(client)
    finally:
        await gateway.close()
        gateway.provenance.path.unlink()


async def _known(client: Client) -> dict[str, str]:
    made = (await client.call_tool("rlm_session_create", {})).structured_content or {}
    session = made.get("session", "none left")
    opened = await client.call_tool("rlm_open", {"session": session, "path": "a.txt"})
    handle = (opened.structured_content or {}).get("handle", "h")
    read = await client.call_tool("rlm_read", {"session": session, "handle": handle})
    cursor = (read.structured_content or {}).get("next_cursor", "c")
    return {"SESSION": session, "HANDLE": handle, "CURSOR": cursor, "RUN": "r_0"}


def _filled(value: Any, known: dict[str, str]) -> Any:
    """The same arguments with what this session really has in place of the words for it."""
    if isinstance(value, str):
        return known.get(value, value)
    if isinstance(value, list):
        return [_filled(each, known) for each in value]
    if isinstance(value, dict):
        return {name: _filled(each, known) for name, each in value.items()}
    return value


async def _clean(client: Client, recipe: Recipe, tool: str, arguments: dict[str, Any]) -> None:
    result = await client.call_tool(tool, arguments)
    told = json.dumps(result.model_dump(mode="json"))
    for hidden in (
        OUTSIDE,
        DENIED,
        str(recipe.folder),
        'Traceback (most recent call last):\\n  File \\"/',
    ):
        assert hidden not in told, (tool, arguments, told)
    assert result.is_error == (result.structured_content is None)
    if result.is_error:
        assert "operator's log" not in told, (tool, arguments)


def _cases(number: int) -> settings:
    return settings(
        max_examples=max(1, number // AT_ONCE),
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],  # shrinking lists of calls takes too long
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.heavy
def test_no_path_leads_outside_the_roots(recipe: Recipe) -> None:
    _any_paths(recipe, CASES)


@pytest.mark.heavy
def test_none_of_ten_thousand_paths_leads_outside_the_roots(recipe: Recipe) -> None:
    _any_paths(recipe, MANY_CASES)


def _any_paths(recipe: Recipe, cases: int) -> None:
    found = 0

    @_cases(cases)
    @given(st.lists(PATHS, min_size=AT_ONCE, max_size=AT_ONCE))
    def check(paths: list[str]) -> None:
        nonlocal found
        found += asyncio.run(_open_all(recipe, paths))

    check()
    assert found


async def _open_all(recipe: Recipe, paths: list[str]) -> int:
    """How many could be opened; each that could is inside, and reads as what is there."""
    gateway = recipe.gateway()
    found = 0
    try:
        async with Client(make_server(gateway, lambda _: "ada")) as client:
            session = (await _known(client))["SESSION"]
            for path in ["a.txt", *paths]:
                given = path.replace("FOLDER", str(recipe.root))
                opened = await client.call_tool("rlm_open", {"session": session, "path": given})
                await _clean(client, recipe, "rlm_list", {"session": session, "path": given})
                if opened.is_error or opened.structured_content is None:
                    continue
                found += 1
                handle = opened.structured_content["handle"]
                read = await client.call_tool("rlm_read", {"session": session, "handle": handle})
                assert read.structured_content is not None
                assert set(read.structured_content["text"].split()) <= {"alpha", "beta"}
    finally:
        await gateway.close()
        gateway.provenance.path.unlink()
    return found


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*b", "(a|aa)+$", "([a-z]+)*1", "^(([a-z])+.)+[A-Z]([a-z])+$"]
)
async def test_patterns_that_never_end_do_not_delay_others(
    recipe: Recipe, pattern: str, caplog: pytest.LogCaptureFixture
) -> None:
    (recipe.root / "trap.txt").write_text("a" * 5_000 + "!\n")
    recipe.options = {"search_seconds": 0.5}
    gateway = recipe.gateway()
    caplog.set_level(logging.WARNING)
    try:
        async with Client(make_server(gateway, lambda _: "ada")) as client:
            session = (await _known(client))["SESSION"]
            opened = await client.call_tool("rlm_open", {"session": session, "path": "trap.txt"})
            assert opened.structured_content is not None
            trap = [opened.structured_content["handle"]]
            search = {"session": session, "query": pattern, "mode": "regex", "handles": trap}
            searching = asyncio.create_task(client.call_tool("rlm_search", search))
            reads = 0
            while not searching.done() and reads < 20:  # A session has a number of requests.
                listed = await client.call_tool("rlm_list", {"session": session})
                assert not listed.is_error
                reads += 1
            result = await searching
            assert result.structured_content is not None
            assert result.structured_content["hits"] == []
            assert not result.structured_content["complete"]
            assert reads > 0
    finally:
        await gateway.close()
