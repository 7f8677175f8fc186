"""Function tools called from a real worker: how arguments arrive and what comes back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pydantic
import pytest

from rlm.environments.local import LocalEnvironment
from rlm.errors import CallRefused
from rlm.tools import as_tools
from rlm.worker import tagged
from tests.environments.conftest import FakeHost, Repl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


class Book(pydantic.BaseModel):
    title: str
    year: int = 0


def search(q: str, limit: int = 2) -> list[str]:
    """Search for a word."""
    return [f"{q} {number}" for number in range(limit)]


def echo(*args: Any, **kwargs: Any) -> Any:
    return [args, kwargs]


def shelve(book: Book) -> Book:
    return book


async def odd(what: str) -> Any:
    return {"nan": math.nan, "lone": "\ud800", "set": {1}}[what]


def save(record: dict[str, int]) -> int:
    return len(record)


class ToolHost:
    """Answers tool calls as the bridge does, and nothing else."""

    def __init__(self) -> None:
        made, _ = as_tools([search, echo, shelve, odd, save])
        self.tools = {tool.name: tool for tool in made}

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        if kind != "tool":
            raise CallRefused(kind, limit="kind")
        given = {name: tagged.unmarked(each) for name, each in arguments["arguments"].items()}
        result = await self.tools[arguments["name"]].call(given)
        return {"json": tagged.dumps(result)}, ()


@pytest.fixture
async def repl() -> AsyncIterator[Repl]:
    environment, host = LocalEnvironment(), ToolHost()
    listed = [{"name": t.name, "description": t.description} for t in host.tools.values()]
    session = await environment.open(host, {"tools": listed})
    yield Repl(session, FakeHost())
    await environment.close()


async def test_every_way_to_call_a_tool(repl: Repl) -> None:
    for spelling in (
        "search('a')",
        "search('a', 2)",
        "search(q='a', limit=2)",
        "search('a', limit='2')",
        "search({'q': 'a'})",
        "call_tool('search', 'a')",
        "call_tool('search', q='a')",
        "await search('a')",
    ):
        assert await repl.show(spelling) == "['a 0', 'a 1']"
    assert await repl.show("echo(1, {'a': 2}, x=3)") == "[(1, {'a': 2}), {'x': 3}]"
    assert await repl.show("echo(*'ab', **{'two words': 1})") == "[('a', 'b'), {'two words': 1}]"
    line = await repl.show("search.__doc__")
    assert line == "'`search(q: str, limit: int = 2) -> list[str]`: Search for a word.'"


async def test_many_tool_calls_run_at_once(repl: Repl) -> None:
    code = "import asyncio\nr = await asyncio.gather(*(search(str(i), 1) for i in range(100)))\n"
    assert await repl.show(code + "r == [[f'{i} 0'] for i in range(100)]") == "True"


async def test_values_in_both_directions(repl: Repl) -> None:
    assert await repl.show("shelve({'title': 'T', 'year': '1984'})['year']") == "1984"
    assert await repl.show("shelve(book={'title': 'T'})") == "{'title': 'T', 'year': 0}"
    assert await repl.show("odd('nan') != odd('nan'), odd('lone') == '\\ud800', odd('set')") == (
        "(True, True, {1})"
    )
    assert await repl.show(
        "x = echo(float('inf'), '\\ud800')[0]; x == (float('inf'), '\\ud800')"
    ) == ("True")


async def test_tool_failures_are_errors_in_the_cell(repl: Repl) -> None:
    usage = "usage: search(q: str, limit: int = 2) -> list[str]"
    text = f"search: missing a required argument: 'q'; {usage}"
    assert await repl.fail("search()") == ("ToolFailed", text)
    assert await repl.fail("odd('else')") == ("ToolFailed", "odd failed: KeyError: 'else'")
    assert await repl.show("save(record={'a': 1}), save({'a b': 1}), save({'a': 1})") == "(1, 1, 1)"
    assert (await repl.fail("search(object())"))[0] == "TypeError"
