"""Tables without DuckDB: CSV files and SQLite files, and the attacks on them."""

import importlib.util
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rlm.data import DataRefused, DataSource, QueryLimits, table, tables
from rlm.data.table_source import open_tables
from rlm.errors import ConfigError
from tests.data.attacking import ALL, attack

LIMITS = QueryLimits(seconds=2.0, memory_bytes=256 << 20)


@pytest.fixture
def without_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "duckdb" else find(name, *a)
    )


@pytest.fixture
def sqlite_file(tmp_path: Path) -> Path:
    path = tmp_path / "t.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table t (id integer, text text)")
        connection.executemany("insert into t values (?, ?)", [(1, "a"), (2, "b"), (3, "c")])
    connection.close()
    return path


async def asked(source: DataSource, query: str, *parameters: Any) -> Any:
    return json.loads(await source.answer("sql", {"query": query, "parameters": list(parameters)}))


async def test_a_sqlite_file_is_a_database(sqlite_file: Path) -> None:
    with sqlite3.connect(sqlite_file) as connection:
        connection.execute('create table "order details" (x blob, "odd ""name" real)')
        connection.execute("insert into \"order details\" values (x'00ff', 0.5)")
    connection.close()
    source = open_tables(table(sqlite_file))
    assert [each["name"] for each in source.manifest["tables"]] == ["order details", "t"]
    assert "`t`: 3 rows, 2 columns" in source.description
    found = await asked(source, 'select * from "order details"')
    assert found["columns"] == ["x", 'odd "name']
    assert found["rows"] == [["\\x00ff", 0.5]]
    assert (await asked(source, "select text from t where id > ?", 1))["rows"] == [["b"], ["c"]]
    rows = json.loads(await source.answer("rows", {"table": "t", "start": 1, "count": 1}))
    assert rows["rows"] == [[2, "b"]]
    source.close()


@pytest.mark.usefixtures("without_duckdb")
async def test_csv_files_are_tables_without_duckdb_too(tmp_path: Path) -> None:
    (tmp_path / "sales 2025.csv").write_text("id;price\n1;2.5\n2;\n3;4\n", "utf-8")
    (tmp_path / "order.tsv").write_text('id\tid\t\n1\t"a\tb"\t\n', "utf-8")
    source = open_tables(tables(tmp_path / "sales 2025.csv", tmp_path / "order.tsv"))
    assert [each["name"] for each in source.manifest["tables"]] == ["order_", "sales_2025"]
    assert "SQLite" in source.description
    assert "[tables]'" in source.description
    assert (await asked(source, "select sum(price) from sales_2025"))["rows"] == [[6.5]]
    assert (await asked(source, "select * from order_"))["rows"] == [[1, "a\tb", None]]
    source.close()


@pytest.mark.usefixtures("without_duckdb")
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"a,b\n1,2\n3\n", "line 3 has 1 column, the header has 2"),
        ("a.csv", b"", "is empty"),
        ("a.parquet", b"PAR1 and no end", r"to query 'a.parquet', pip install"),
        ("a.parquet", b"text", "is not a Parquet file"),
        ("a.db", b"SQLite format 3\0" + b"x" * 5000, "a.db"),
        ("a.bin", b"\0\1\2", "is not Parquet, CSV, or"),
        ("a.csv", (",".join(f"c{n}" for n in range(10_000)) + "\n").encode(), "10,000 columns"),
    ],
)
def test_bad_files_are_reported_in_one_line(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=words) as caught:
        open_tables(table(tmp_path / name))
    assert "\n" not in str(caught.value)


async def test_a_changed_file_is_noticed(sqlite_file: Path) -> None:
    source = open_tables(table(sqlite_file))
    with sqlite3.connect(sqlite_file) as connection:
        connection.execute("insert into t values (4, 'd')")
    connection.close()
    with pytest.raises(DataRefused, match="changed after you passed it"):
        await asked(source, "select 1")
    source.close()


async def test_large_results_are_cut(sqlite_file: Path) -> None:
    source = open_tables(table(sqlite_file), QueryLimits(rows=2, bytes=2_000))
    assert (await asked(source, "select * from t"))["is_cut"] is True
    assert len((await asked(source, "select * from t"))["rows"]) == 2
    assert (await asked(source, "select * from t limit 2"))["is_cut"] is False
    with pytest.raises(DataRefused, match="one row has more than 2,000 bytes"):
        await asked(source, "select hex(zeroblob(5000)) from t")
    source.close()


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> DataSource:
    folder = tmp_path_factory.mktemp("attacked")
    with sqlite3.connect(folder / "t.db") as connection:
        connection.execute("create table t (id integer, text text)")
        connection.executemany("insert into t values (?, ?)", [(1, "a"), (2, "b"), (3, "c")])
    connection.close()
    return open_tables(table(folder / "t.db"), LIMITS)


@pytest.mark.parametrize("each", ALL, ids=lambda each: each["name"])
async def test_sqlite_resists_every_attack(
    attacked: DataSource, each: dict[str, Any], tmp_path: Path
) -> None:
    await attack(attacked, each, tmp_path)


# -- what looks right and is not ------------------------------------------------------------------


@pytest.mark.usefixtures("without_duckdb")
async def test_csv_values_are_not_altered_by_type_detection(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "zip,phone,sku,big,n,x,town\n"
        "01234,+4912,1e5,12345678901234567890123,7,0.5,'s-Hertogenbosch\n"
        "98765,4912,2,1,8,-2.25,'t Harde\n"
    )
    source = open_tables(table(tmp_path / "t.csv"))
    assert (await asked(source, "select * from t"))["rows"] == [
        ["01234", "+4912", "1e5", "12345678901234567890123", 7, 0.5, "'s-Hertogenbosch"],
        ["98765", "4912", "2", "1", 8, -2.25, "'t Harde"],
    ]
    source.close()


@pytest.mark.usefixtures("without_duckdb")
async def test_a_quote_late_in_a_csv_file_is_handled(tmp_path: Path) -> None:
    rows = "".join(f"{number},plain text of some length\n" for number in range(4_000))
    (tmp_path / "t.csv").write_text(f'id,text\n{rows}4000,"a ""quoted"", one"\n')
    source = open_tables(table(tmp_path / "t.csv"))
    found = await asked(source, "select text from t where id = 4000")
    assert found["rows"] == [['a "quoted", one']]
    source.close()


async def test_odd_tables_in_a_database_do_not_hide_others(sqlite_file: Path) -> None:
    with sqlite3.connect(sqlite_file) as connection:
        connection.execute("create table made (a int, b int generated always as (a * 2) virtual)")
        connection.execute("insert into made (a) values (21)")
        connection.execute("create virtual table words using fts5(text)")
        connection.execute("create table gone (a)")
        connection.execute("create view stale as select * from gone")
        connection.execute("drop table gone")
        connection.execute("create table bytes (b text)")
        connection.execute("insert into bytes values (cast(x'636166e9' as text))")
    connection.close()
    source = open_tables(table(sqlite_file))
    names = {each["name"]: each["columns"] for each in source.manifest["tables"]}
    assert names["made"] == ["a", "b"]
    assert not {"words", "stale"} & names.keys()
    assert "`stale` can't be read: no such table: main.gone" in source.description
    assert "`words` can't be read" in source.description
    assert (await asked(source, "select a, b from made"))["rows"] == [[21, 42]]
    assert (await asked(source, "select * from bytes"))["rows"] == [["caf\ufffd"]]
    source.close()


async def test_an_uncommitted_transaction_is_not_read(sqlite_file: Path) -> None:
    """The process that reads sees no locks, so it must see the journal."""
    writer = sqlite3.connect(sqlite_file, isolation_level=None)
    writer.executemany("insert into t values (4, ?)", [("x" * 500,)] * 500)
    source = open_tables(table(sqlite_file))
    writer.execute("pragma cache_size = 1")  # It writes before the end of the transaction.
    writer.execute("begin immediate")
    writer.execute("update t set text = 'half'")
    with pytest.raises(DataRefused, match=r"changed after|another program is writing"):
        await asked(source, "select * from t")
    source.close()
    with pytest.raises(ConfigError, match=r"another program is writing to 't\.db'"):
        open_tables(table(sqlite_file))
    writer.execute("rollback")
    writer.close()
    source = open_tables(table(sqlite_file))
    assert (await asked(source, "select text from t where id = 1"))["rows"] == [["a"]]
    source.close()


async def test_changes_in_files_beside_the_database_are_noticed(sqlite_file: Path) -> None:
    with sqlite3.connect(sqlite_file) as connection:
        connection.execute("pragma journal_mode = wal")
    connection.close()
    source = open_tables(table(sqlite_file))
    writer = sqlite3.connect(sqlite_file)
    writer.execute("insert into t values (4, 'd')")
    writer.commit()
    with pytest.raises(DataRefused, match="changed after you passed it"):
        await asked(source, "select count(*) from t")
    writer.close()
    source.close()


def test_utf_16_is_reported(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,name\n1,a\n", "utf-16")
    with pytest.raises(ConfigError, match="is encoded in UTF-16"):
        open_tables(table(tmp_path / "t.csv"))


@pytest.mark.parametrize(
    ("declared", "shown"),
    [
        ("ENUM('a', 'b''c')", "ENUM"),
        ("ENUM(" + "'" * 5_000, "ENUM"),
        ("ENUM('" + "a" * 50_000, "ENUM"),
        ("VARCHAR(10)", "VARCHAR(10)"),
        ("ENUM('" * 2_000, "ENUM('ENUM("),
    ],
    ids=["values", "quotes", "one value", "another type", "many"],
)
def test_the_values_of_an_enumeration_are_not_shown(
    tmp_path: Path, declared: str, shown: str
) -> None:
    """Whatever a file declares: it is read in a limited process, but described in ours."""
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f'create table t (a "{declared}")')
        connection.execute("insert into t values (1)")
        connection.commit()
    source = open_tables(table(path))
    described = source.description
    source.close()
    assert f"- a: {shown}" in described
    assert "aaa" not in described
