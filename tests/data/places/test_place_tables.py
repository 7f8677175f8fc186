"""Tables elsewhere: Parquet files in an object store, in one part and in several."""

import importlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import rlm
from rlm import RLM, ConfigError, ScriptedClient
from rlm.context import store_context
from rlm.data.places import fetch, place
from tests.data.places.object_store import object_store, put


def parquet(**columns: list[Any]) -> bytes:
    out = BytesIO()
    table = importlib.import_module("pyarrow").table(columns)
    importlib.import_module("pyarrow.parquet").write_table(table, out)
    return out.getvalue()


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    with object_store() as client:
        put(
            client,
            "logs",
            **{
                "shop/orders.parquet": parquet(id=[1, 2, 3]),
                "shop/people.parquet": parquet(name=["Ann"]),
                "events/0.parquet": parquet(day=[1, 2]),
                "events/1.parquet": parquet(day=[3]),
                "events/odd/2.parquet": parquet(day=[4]),
                "bad/0.parquet": b"PAR1 cut off",
                "mixed/0.parquet": parquet(day=[1]),
                "mixed/1.csv": b"day\n2\n",
            },
        )
        yield client


def answered(context: Any, code: str, tmp_path: Path) -> str:
    client = ScriptedClient([f"```repl\n{code}\n```"])
    with RLM(client, journal=tmp_path / "runs") as engine:
        return str(engine.ask("How many?", context).answer)


def test_a_prefix_of_tables_can_be_queried(store: Any, tmp_path: Path) -> None:
    code = "FINAL([list(context), ctx.sql('select sum(id) as n from orders')[0]['n']])"
    assert answered(place("s3://logs/shop/"), code, tmp_path) == "[['orders', 'people'], 6]"


def test_a_single_table_can_be_queried(store: Any, tmp_path: Path) -> None:
    code = "FINAL([context.name, len(context)])"
    assert answered(place("s3://logs/shop/orders.parquet"), code, tmp_path) == "['orders', 3]"
    assert answered(rlm.table("s3://logs/shop/orders.parquet"), code, tmp_path) == "['orders', 3]"
    named = rlm.table("s3://logs/shop/orders.parquet", name="sales")
    assert answered(named, code, tmp_path) == "['sales', 3]"


def test_a_table_in_several_parts_can_be_queried(store: Any, tmp_path: Path) -> None:
    where = place("s3://logs/events/*.parquet")
    code = "FINAL([context.name, ctx.sql('select count(*) as n, max(day) as m from events')[0]])"
    assert answered(where, code, tmp_path) == "['events', {'n': 3, 'm': 3}]"
    first, again = store_context(where), store_context(where)
    assert first.sha256 == again.sha256
    assert first.source is not None
    spec = first.source.spec
    assert spec is not None
    assert len(spec["files"]["events"]) == 2
    from rlm.data import reopen_data

    assert reopen_data(spec).id == first.source.id


def test_several_tables_can_be_named(store: Any, tmp_path: Path) -> None:
    both = rlm.tables(
        orders=fetch(place("s3://logs/shop/orders.parquet")), all="s3://logs/events/**/*.parquet"
    )
    code = "FINAL({name: len(table) for name, table in context.items()})"
    assert answered(both, code, tmp_path) == "{'orders': 3, 'all_': 4}"


def test_errors_are_one_line(store: Any) -> None:
    with pytest.raises(ConfigError, match=r"can't be read: .*0\.parquet"):
        store_context(place("s3://logs/bad/"))
    with pytest.raises(
        ConfigError, match="a table in several files must consist only of Parquet files"
    ):
        store_context(rlm.table("s3://logs/mixed/*"))
