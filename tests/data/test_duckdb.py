"""Tables with the real DuckDB and PyArrow: Parquet, CSV, frames, DuckDB files, and the attacks."""

import contextlib
import json
import os
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, ScriptedClient
from rlm.data import DataRefused, DataSource, QueryLimits, table, tables
from rlm.data.given import GivenTables, given_data
from rlm.data.table_source import open_tables
from rlm.errors import ConfigError
from tests.data.attacking import ALL, attack

EXTRA = "DuckDB and PyArrow are an extra: pip install 'recursivelm[tables]'"
duckdb = pytest.importorskip("duckdb", reason=EXTRA)
pa = pytest.importorskip("pyarrow", reason=EXTRA)
pq = pytest.importorskip("pyarrow.parquet")

LIMITS = QueryLimits(seconds=4.0, memory_bytes=256 << 20)


async def asked(source: DataSource, query: str, *parameters: Any) -> Any:
    return json.loads(await source.answer("sql", {"query": query, "parameters": list(parameters)}))


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    path = tmp_path / "orders.parquet"
    columns = {"id": [1, 2, 3], "text": ["a", "b", None], "price": [0.5, 1.5, 2.5]}
    pq.write_table(pa.table(columns), path)
    return path


async def test_parquet_is_a_table(orders: Path) -> None:
    source = open_tables(table(orders))
    assert source.manifest["tables"][0]["columns"] == ["id", "text", "price"]
    assert source.manifest["tables"][0]["rows"] == 3
    assert "`orders`: 3 rows, 3 columns" in source.description
    assert "id: BIGINT, 1 to 3" in source.description
    assert "text: VARCHAR, about 2 distinct values, 33.33 % null" in source.description
    assert "'a'" in source.preview(1_000)
    assert (await asked(source, "select sum(price) from orders where id > ?", 1))["rows"] == [[4.0]]
    assert (await asked(source, "describe orders"))["rows"][0][0] == "id"
    assert str(orders.parent) not in json.dumps(source.manifest) + source.description
    source.close()


@pytest.fixture
def months(tmp_path: Path) -> Path:
    folder = tmp_path / "months"
    for year, month in ((2024, "04"), (2024, "05"), (2025, "04")):
        part = folder / f"year={year}" / f"month={month}"
        part.mkdir(parents=True)
        pq.write_table(pa.table({"id": [year], "text": [month]}), part / "0.parquet")
    (folder / "_SUCCESS").touch()
    return folder


async def test_parquet_files_in_a_folder_are_one_table(months: Path) -> None:
    query = "select id, year, month from months where month = '04' order by id"
    for given in (given_data(months), table(months), table(months / "year=*" / "**" / "*.parquet")):
        assert isinstance(given, GivenTables)
        source = open_tables(given)
        rows = [[2024, "2024", "04"], [2025, "2025", "04"]]
        assert (await asked(source, query))["rows"] == rows
        source.close()


async def test_a_folder_name_does_not_replace_a_column_of_the_files(months: Path) -> None:
    for part in table(months).by_name["months"]:
        pq.write_table(pa.table({"month": ["own"]}), part)
    source = open_tables(table(months))
    assert (await asked(source, "select distinct month from months"))["rows"] == [["own"]]
    assert source.manifest["tables"][0]["columns"] == ["month"]
    source.close()


def test_a_folder_with_other_files_is_not_a_table(months: Path) -> None:
    (months / "year=2024" / "notes.txt").write_text("text")
    assert given_data(months) is None
    assert len(table(months).by_name["months"]) == 3


def test_an_unreadable_folder_is_named(months: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.scandir

    def refuse(path: str) -> Any:
        if path.endswith("year=2025"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert given_data(months) is None
    with pytest.raises(ConfigError, match="the folder 'year=2025' can't be read: Permission"):
        table(months)


def test_a_folder_or_pattern_without_parquet_files_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "*.parquet"):
        with pytest.raises(ConfigError, match="contains no Parquet files"):
            table(path)


async def test_several_tables_can_be_joined(orders: Path, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text('id,name\n1,"Ann, of \n Bath"\n2,Bob\n', "utf-8")
    source = open_tables(tables(orders, customers=tmp_path / "people.csv"))
    joined = "select name, price from orders join customers using (id) order by id"
    assert (await asked(source, joined))["rows"] == [["Ann, of \n Bath", 0.5], ["Bob", 1.5]]
    source.close()


async def test_values_of_every_kind_are_json(tmp_path: Path) -> None:
    path = tmp_path / "odd.parquet"
    moment = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    columns = {
        'quo"te': pa.array([Decimal("1.10")], pa.decimal128(10, 2)),
        "new\nline": pa.array([moment], pa.timestamp("us", "UTC")),
        "Ünïcode 名": pa.array([{"a": [1, None]}]),
        "select": pa.array([b"\x00\xff"]),
        "day": pa.array([date(2025, 1, 2)]),
        "": pa.array([float("nan")]),
    }
    pq.write_table(pa.table(columns), path)
    source = open_tables(table(path))
    assert "new\\nline" in source.description
    found = await asked(source, "select * from odd")
    assert found["rows"][0][0] == 1.1
    assert found["rows"][0][1].startswith("2025-01-02 ")
    assert found["rows"][0][2:5] == [{"a": [1, None]}, "\\x00ff", "2025-01-02"]
    assert (await asked(source, 'select "quo""te" from odd'))["rows"] == [[1.1]]
    source.close()


def test_a_wide_and_an_empty_table(tmp_path: Path) -> None:
    wide = tmp_path / "wide.parquet"
    pq.write_table(pa.table({f"c{n}": [n] for n in range(10_000)}), wide)
    source = open_tables(table(wide))
    assert "1 row, 10,000 columns" in source.description
    assert "and 9,960 more: see `.columns`" in source.description
    assert len(source.description) < 5_000
    source.close()
    empty = tmp_path / "empty.parquet"
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), empty)
    source = open_tables(table(empty))
    assert "`empty`: 0 rows, 1 column" in source.description
    source.close()


@pytest.mark.parametrize("cut", [20, 200, 4])
def test_a_truncated_file_is_reported_in_one_line(orders: Path, cut: int) -> None:
    orders.write_bytes(orders.read_bytes()[:-cut])
    with pytest.raises(ConfigError, match=r"'orders.parquet' can't be read: ") as caught:
        open_tables(table(orders))
    assert "\n" not in str(caught.value)
    assert str(orders.parent) not in str(caught.value)


def test_a_csv_with_varying_columns_is_reported_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "1,2\n" * 50 + "1,2,3,4\n" + "1,2\n" * 50, "utf-8")
    with pytest.raises(ConfigError, match=r"'a.csv' can't be read: .*") as caught:
        open_tables(table(path))
    assert "\n" not in str(caught.value)


async def test_a_duckdb_file_is_a_database(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute("create table orders as select 1 as id; create schema s")
        connection.execute("create table s.people as select 'Ann' as name")
    before = path.read_bytes()
    source = open_tables(table(path))
    assert [each["name"] for each in source.manifest["tables"]] == ["orders", "s.people"]
    assert (await asked(source, "select name, id from s.people, orders"))["rows"] == [["Ann", 1]]
    with pytest.raises(DataRefused):
        await asked(source, "with x as (insert into orders values (2) returning *) from x")
    source.close()
    assert path.read_bytes() == before


def frames() -> list[Any]:
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    columns = {"id": [1, 2], "text": ["a", None]}
    indexed = pandas.DataFrame(columns, index=["x", "y"])
    return [pandas.DataFrame(columns), polars.DataFrame(columns), pa.table(columns), indexed]


async def test_frames_are_tables() -> None:
    ids = []
    for frame in frames():
        given = given_data(frame)
        assert isinstance(given, GivenTables)
        source = open_tables(given)
        assert source.spec is None
        found = await asked(source, "select id, text from data")
        assert found["rows"] == [[1, "a"], [2, None]]
        ids.append(source.id)
        source.close()
    assert source.manifest["tables"][0]["columns"] == ["id", "text", "index"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
async def test_durations_are_returned_in_seconds(unit: str) -> None:
    column = pa.array([timedelta(days=2, seconds=3), None], pa.duration(unit))
    source = open_tables(GivenTables({"t": pa.table({"wait": column})}))
    assert (await asked(source, "select wait from t"))["rows"] == [[172_803.0], [None]]
    source.close()


async def test_frames_and_files_can_be_combined_in_a_dict(orders: Path) -> None:
    plain = frames()[0]
    given = given_data({"orders": orders, "people": plain})
    assert isinstance(given, GivenTables)
    source = open_tables(given)
    assert [each["name"] for each in source.manifest["tables"]] == ["orders", "people"]
    source.close()
    with pytest.raises(ConfigError, match="'note' is not a table"):
        given_data({"people": plain, "note": "x"})
    with pytest.raises(ConfigError, match="frames in a list have no names: pass a dict"):
        given_data([plain, plain])


def test_text_files_by_name_are_not_tables(tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("one, two\nthree, four\n")
    with pytest.raises(ConfigError, match=r"'note' is not a table: 'note.txt' is read as text"):
        given_data({"note": note})
    given = tables(note=note)
    assert list(given.by_name) == ["note"]


def test_any_sql_keyword_may_name_a_table() -> None:
    with duckdb.connect() as connection:
        found = connection.execute("select keyword_name from duckdb_keywords()").fetchall()
        words = [word for (word,) in found]
        assert "pivot" in words
        for name in tables(**dict.fromkeys(words, "some.csv")).by_name:
            connection.execute(f'create table "{name}" as select 1 as a')
            query = f"select {name}.a from {name} where {name}.a = 1"
            assert connection.execute(query).fetchall() == [(1,)]


def test_a_run_can_query_frames() -> None:
    code = (
        "print(list(context))\nFINAL(ctx.sql('select max(l.id + r.id) as n from a l, b r')[0]['n'])"
    )
    given = dict(zip(("a", "b"), frames(), strict=False))
    with RLM(ScriptedClient([f"```repl\n{code}\n```"]), journal=None) as engine:
        assert engine.ask("What is the sum?", given).answer == "4"


def test_the_copy_of_a_frame_is_removed() -> None:
    source = open_tables(table(frames()[2]))
    path = Path(next(iter(source._files.values())).path)
    assert path.exists()
    source.close()
    del source
    assert not path.parent.exists()


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> DataSource:
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "t.csv").write_text("id,text\n1,a\n2,b\n3,c\n", "utf-8")
    return open_tables(table(folder / "t.csv"), LIMITS)


@pytest.mark.parametrize("each", ALL, ids=lambda each: each["name"])
async def test_duckdb_resists_every_attack(
    attacked: DataSource, each: dict[str, Any], tmp_path: Path
) -> None:
    await attack(attacked, each, tmp_path)


# -- what looks right and is not ------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "id,name\n" + "".join(f"{n},name{n}\n" for n in range(1_000)) + "1000,Smith, John\n",
        "region,amount\nnorth,1\nsouth,2\nTotal,3,checked\n",
    ],
)
def test_a_longer_row_is_an_error_and_hides_no_other_rows(tmp_path: Path, text: str) -> None:
    path = tmp_path / "people.csv"
    path.write_text(text)
    line = text.count("\n")
    with pytest.raises(ConfigError, match=f"line {line:,} has 3 columns, the header has 2"):
        open_tables(table(path))


async def test_title_lines_and_quoted_delimiters(tmp_path: Path) -> None:
    (tmp_path / "titled.csv").write_text("Sales of 2025\n\nid,name\n1,a\n2,b\n")
    (tmp_path / "quoted.csv").write_text('"Name, first, last";age\n"Ann, A, B";31\n')
    source = open_tables(tables(tmp_path / "titled.csv", tmp_path / "quoted.csv"))
    assert (await asked(source, "select * from titled"))["rows"] == [[1, "a"], [2, "b"]]
    assert (await asked(source, "select * from quoted"))["rows"] == [["Ann, A, B", 31]]
    source.close()


@pytest.mark.parametrize("name", ["own.parquet", "own.csv"])
async def test_a_folder_does_not_change_a_column(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "month=04"
    folder.mkdir()
    if name.endswith("csv"):
        (folder / name).write_text("id,month\n1,2025-01\n2,x\n")
    else:
        pq.write_table(pa.table({"id": [1, 2], "month": ["2025-01", "x"]}), folder / name)
    source = open_tables(table(folder / name))
    assert (await asked(source, "select * from own"))["rows"] == [[1, "2025-01"], [2, "x"]]
    source.close()


async def test_explain_does_not_change_anything(orders: Path) -> None:
    source = open_tables(table(orders))
    for query in (
        "explain analyze create or replace view orders as select 42 as id",
        "explain analyze create temp table orders as select 42 as id",
        "explain analyze create macro sum(a) as 42",
        "explain analyze drop view orders",
    ):
        with contextlib.suppress(DataRefused):
            await asked(source, query)
    assert (await asked(source, "select count(*), sum(id) from orders"))["rows"] == [[3, 6]]
    assert "Projection" in str(await asked(source, "explain select * from orders"))
    source.close()


def test_lists_and_structs_are_described_without_content(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    people = [{"id": 1, "name": "Alice Secret"}, {"id": 2, "name": "Bob Hidden"}]
    columns = {"person": people, "numbers": [[77_001], [77_002]], "id": [5, 6]}
    pq.write_table(pa.table(columns), path)
    source = open_tables(table(path))
    assert "id: BIGINT, 5 to 6" in source.description
    for secret in ("Alice", "Bob", "77001", "77002"):
        assert secret not in source.description
    source.close()


async def test_polars_categories_are_read_as_text(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(
        {
            "a": polars.Series(["u", None, "v"], dtype=polars.Categorical),
            "b": polars.Series(["x", "y", "x"], dtype=polars.Enum(["x", "y"])),
        }
    )
    source = open_tables(GivenTables({"t": frame}))
    assert (await asked(source, "select * from t"))["rows"] == [["u", "x"], [None, "y"], ["v", "x"]]
    source.close()


async def test_a_view_of_a_missing_file_is_omitted(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("create table t as select 7 as n")
        connection.execute("create table gone as select 1 as n")
        connection.execute("create view stale as select * from gone")
        connection.execute("drop table gone")
    source = open_tables(table(path))
    assert [each["name"] for each in source.manifest["tables"]] == ["t"]
    assert "`stale` can't be read: Catalog Error" in source.description
    assert (await asked(source, "select n from t"))["rows"] == [[7]]
    source.close()


def test_a_chat_about_a_frame_says_early_that_it_cannot_be_saved(tmp_path: Path) -> None:
    cell = "```repl\nFINAL(len(context))\n```"
    with RLM(ScriptedClient([cell]), journal=None).chat(pa.table({"id": [1, 2]})) as chat:
        assert chat.ask("How many?").answer == "2"
        with pytest.raises(ConfigError, match="Start it with a Parquet file"):
            chat.save(tmp_path / "saved.rlm")
    assert list(tmp_path.iterdir()) == []
