"""Parameters of a query may be long: they are counted first, and then handled in a thread."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, ScriptedClient
from rlm.data.requests import read_request
from rlm.data.source import DataRefused, QueryLimits
from rlm.events import ToolCalled
from tests.loop_thread import LoopThread

LONG = "'é' * 900_000"


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("create table people (name text)")
        database.execute("insert into people values ('Ada')")
    database.close()
    return path


async def run_of(cell: str, path: Path) -> tuple[Any, LoopThread]:
    async with RLM(ScriptedClient([f"```repl\n{cell}\n```"])) as rlm:
        with LoopThread() as thread:
            result = await rlm.aask("Who?", path)
    return result, thread


async def test_long_parameters_are_encoded_and_checked_in_threads(people: Path) -> None:
    query = "select length(?) from people"
    result, thread = await run_of(f"FINAL(ctx.sql({query!r}, {LONG})[0])", people)
    assert "900000" in str(result.answer)
    assert thread.work == []


@pytest.mark.parametrize("value", ["n", "'é' * 100"], ids=["numbers", "texts"])
async def test_too_many_parameters_are_refused_before_they_are_encoded(
    people: Path, value: str
) -> None:
    values = f"*[{value} for n in range(10_000)]"
    cell = (
        f"try: ctx.sql('select 1', {values})\n"
        "except Exception as error: found = str(error)\nFINAL(found)"
    )
    result, thread = await run_of(cell, people)
    assert "a query can have at most 1,000 parameters" in str(result.answer)
    assert thread.work == []
    assert not [event for event in result.events if isinstance(event, ToolCalled)]


def test_a_list_of_columns_is_not_longer_than_that_of_the_table() -> None:
    class Names(list[str]):
        def __contains__(self, name: object) -> bool:
            raise AssertionError("all names were compared with all names")

    table = {"name": "t", "reference": '"t"', "columns": Names(["a", "b"])}
    arguments: dict[str, Any] = {"table": "t", "columns": ["b", "a"]}
    sql, _ = read_request("rows", arguments, [table], QueryLimits())
    assert sql.startswith('select "b", "a" from "t"')
    for columns in (["a"] * 3, [["a"]], [1], []):
        with pytest.raises(DataRefused, match="no such column"):
            read_request("rows", {"table": "t", "columns": columns}, [table], QueryLimits())
