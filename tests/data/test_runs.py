"""Runs over tables: `ctx.sql` from cells, its events, child runs, resuming, chats."""

import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest

import rlm
from rlm import RLM, ConfigError, Limits, ModelError, ScriptedClient
from rlm.context import store_context
from rlm.events import CellEnded, CellOutput, DataRead, RunStarted, ToolCalled
from rlm.messages import Request


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table orders (id integer, text text)")
        connection.executemany(
            "insert into orders values (?, ?)", [(n, f"order {n}") for n in range(25_000)]
        )
        connection.execute("create table people (name text)")
    connection.close()
    return path


def cell(code: str) -> str:
    return f"```repl\n{code}\n```"


def run(tmp_path: Path, context: Any, *cells: str, **options: Any) -> tuple[Any, list[Request]]:
    client = ScriptedClient([cell(each) for each in cells])
    options.setdefault("journal", tmp_path / "runs")
    result = RLM(client, **options).ask("How many?", context)
    return result, client.requests


def printed(result: Any) -> str:
    return "".join(event.text for event in result.events if isinstance(event, CellOutput))


def queries(result: Any) -> list[ToolCalled]:
    return [event for event in result.events if isinstance(event, ToolCalled)]


def test_a_cell_can_query_with_sql(tmp_path: Path, shop: Path) -> None:
    result, requests = run(
        tmp_path,
        shop,
        "print(type(context).__name__, list(context), len(context['orders']))\n"
        "rows = ctx.sql('select * from orders where id >= ? order by id', 24_998)\n"
        "print(rows)\nprint(rows['text'], rows.columns, rows.is_cut, rows.total)",
        "ctx.sql('select missing from orders')",
        "FINAL(ctx.sql('select count(*) as n from orders')[0]['n'])",
    )
    assert result.answer == "25000"
    assert printed(result) == (
        "Tables ['orders', 'people'] 25000\n"
        "id    | text\n------+------------\n24998 | order 24998\n24999 | order 24999\n"
        "['order 24998', 'order 24999'] ['id', 'text'] False 2\n"
    )
    asked = queries(result)
    assert [each.name for each in asked] == ["ctx.sql"] * 3
    assert asked[1].error == "no such column: missing"
    assert asked[2].arguments == {"query": "select count(*) as n from orders", "parameters": []}
    started = next(event for event in result.events if isinstance(event, RunStarted))
    assert started.context_kind == "source"
    system, first = (str(message.content) for message in requests[0].messages[:2])
    assert "ctx.sql(" in system
    assert "ctx.grep" not in system
    assert "`orders`: 25,000 rows, 2 columns" in first
    assert "id=0, text='order 0'" in first


def test_data_reads_are_recorded_before_the_cell_ends(tmp_path: Path, shop: Path) -> None:
    result, _ = run(
        tmp_path,
        shop,
        "for n in range(40):\n    ctx.sql('select * from orders where id < ?', n)\n"
        "len(list(context['people']))",
        "ctx.sql('select missing from orders')",
        "FINAL('done')",
    )
    kinds = (CellEnded, DataRead)
    told = [event for event in result.events if isinstance(event, kinds)]
    assert [type(event).__name__ for event in told] == [
        *("DataRead", "DataRead", "CellEnded"),
        *("DataRead", "CellEnded", "CellEnded"),
    ]
    rows, sql, failed = (event for event in told if isinstance(event, DataRead))
    assert (sql.step, sql.cell, sql.source, sql.method) == (1, 1, "tables", "sql")
    assert (sql.count, sql.returned, sql.failed) == (40, sum(range(40)), 0)
    assert [(each.text, each.count) for each in sql.requests] == [
        ("select * from orders where id < ?", 40)
    ]
    assert [each.text for each in rows.requests] == ["people"]
    assert (failed.step, failed.count, failed.failed) == (2, 1, 1)
    assert failed.error == "no such column: missing"
    assert str(tmp_path) not in repr([rows, sql, failed])


def test_a_run_stopped_in_a_cell_still_records_its_data_reads(tmp_path: Path, shop: Path) -> None:
    result, _ = run(
        tmp_path,
        shop,
        "import time\nctx.sql('select 1 as n')\ntime.sleep(600)",
        limits=Limits(max_seconds=2),
    )
    (event,) = (event for event in result.events if isinstance(event, DataRead))
    assert (event.count, event.returned, event.cell) == (1, 1, 1)


def test_no_rows_are_shown_with_preview_chars_0(tmp_path: Path, shop: Path) -> None:
    _, requests = run(tmp_path, shop, "FINAL(1)", preview_chars=0)
    assert "order 0" not in str(requests[0].messages)


def test_a_table_can_be_iterated_in_pages(tmp_path: Path, shop: Path) -> None:
    result, _ = run(
        tmp_path,
        shop,
        "t = context['orders']\nprint(sum(row['id'] for row in t), len(t['text']))\n"
        "print(t.head(1), t[-1]['id'], t[2:4]['id'], 'id' in t)\n"
        "rows = ctx.sql('select * from orders')\n"
        "print(len(rows), rows.is_cut, rows.total)\nFINAL(0)",
    )
    lines = printed(result).splitlines()
    assert lines[0] == f"{sum(range(25_000))} 25000"
    assert lines[-1] == "10000 True None"
    starts = [each.arguments.get("start") for each in queries(result)]
    assert starts == [0, 10_000, 20_000, 25_000] * 2 + [0, 24_999, 2, None]


def test_a_child_run_can_use_the_same_tables(tmp_path: Path, shop: Path) -> None:
    result, requests = run(
        tmp_path,
        shop,
        "FINAL(rlm_query('count them', context=context))",
        "FINAL(ctx.sql('select count(*) as n from orders')[0]['n'])",
        limits=Limits(max_depth=2),
    )
    assert result.answer == "25000"
    assert "`orders`: 25,000 rows" in str(requests[1].messages[1].content)


def test_queries_count_as_calls(tmp_path: Path, shop: Path) -> None:
    result, _ = run(
        tmp_path,
        shop,
        "ctx.sql('select 1')\nctx.sql('select 2')",
        "FINAL('refused')",
        limits=Limits(max_calls=1),
    )
    assert len(queries(result)) == 1


def test_a_resumed_run_reopens_its_tables_and_repeats_no_query(tmp_path: Path, shop: Path) -> None:
    code = cell("n = ctx.sql('select count(*) as n from orders')[0]['n']")
    first = RLM(ScriptedClient([code, RuntimeError("gone")]), journal=tmp_path / "runs")
    with pytest.raises(ModelError):
        first.ask("How many?", shop, run_id="one")
    engine = RLM(ScriptedClient([cell("FINAL(n)")]), journal=tmp_path / "runs")
    archive = engine.runner.resources.archive
    assert archive is not None
    facts = archive.facts(archive.places.find("one"))
    stored = archive.context_of(facts)
    assert stored.sha256 == store_context(shop).sha256
    result = engine.ask("How many?", cast("Any", stored), run_id="one")
    assert result.answer == "25000"
    assert [each.stored for each in queries(result)] == [True]
    read = [event for event in result.events if isinstance(event, DataRead)]
    assert [(each.count, each.from_journal, each.returned) for each in read] == [(1, 1, 1)]
    with sqlite3.connect(shop) as connection:
        connection.execute("delete from orders where id > 9")
    connection.close()
    with pytest.raises(ConfigError, match="changed"):
        archive.context_of(facts)


def test_slices_hold_all_rows(tmp_path: Path, shop: Path) -> None:
    result, _ = run(
        tmp_path,
        shop,
        "t = context['orders']\nlong = t[0:15_000]\n"
        "print(len(long), long.is_cut, long.total, long[-1]['id'], len(t.head(20_000)))\n"
        "print(len(t[::-1]), [row['id'] for row in t[3:0:-1]], [r['id'] for r in t[5:20:7]])\n"
        "print(len(t[30_000:]), len(t[5:5]), t[-1]['id'])\n"
        "cut = ctx.sql('select * from orders')\nprint(cut.is_cut, cut[:3].is_cut, cut[:3].total)",
        "FINAL('done')",
    )
    assert printed(result).splitlines() == [
        "15000 False 15000 14999 20000",
        "25000 [3, 2, 1] [5, 12, 19]",
        "0 0 24999",
        "True True None",
    ]


def test_rows_in_answers_and_prompts_are_complete(tmp_path: Path, shop: Path) -> None:
    """Printed, rows are a short table."""
    rows = "ctx.sql(\"select id, text || printf('%.*c', 90, 'x') as t from orders limit 60\")"
    client = ScriptedClient(
        [cell(f"rows = {rows}\nllm_query(rows)\nllm_query(f'Of: {{rows}}')\nFINAL(rows)"), "a", "b"]
    )
    result = RLM(client, journal=None).ask("Which?", shop)
    wanted = str([{"id": n, "t": f"order {n}{'x' * 90}"} for n in range(60)])
    assert result.answer == wanted
    asked = [str(request.messages[-1].content) for request in client.requests[1:]]
    assert asked == [wanted, f"Of: {wanted}"]


@pytest.mark.parametrize("strategy", ["direct", "mapreduce"])
def test_strategies_that_read_texts_refuse_tables(
    tmp_path: Path, shop: Path, strategy: str
) -> None:
    with pytest.raises(ConfigError, match="use strategy='rlm'"):
        run(tmp_path, shop, "FINAL(1)", strategy=strategy)


def test_auto_chooses_the_rlm_strategy_for_tables(tmp_path: Path, shop: Path) -> None:
    result, _ = run(tmp_path, shop, "FINAL(1)", strategy="auto")
    assert result.answer == "1"


def test_csv_is_text_unless_passed_as_a_table(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,name\n1,x\n", "utf-8")
    assert store_context(path).kind == "text"
    assert store_context(rlm.table(path)).kind == "source"


def test_a_chat_keeps_its_tables(tmp_path: Path, shop: Path) -> None:
    count = cell("FINAL(ctx.sql('select count(*) as n from orders')[0]['n'])")
    second = cell("FINAL(context_1.sql('select 7 as n')[0]['n'])")
    engine = RLM(ScriptedClient([count, count, second]), journal=None)
    with engine.chat(context=shop) as chat:
        assert chat.ask("How many?").answer == "25000"
        assert chat.ask("And now?").answer == "25000"
        other = tmp_path / "b.csv"
        other.write_text("id,name\n1,x\n", "utf-8")
        assert chat.ask("And here?", rlm.table(other)).answer == "7"
        chat.save(tmp_path / "saved.rlm")
    with RLM(ScriptedClient([count]), journal=None).chat(load=tmp_path / "saved.rlm") as loaded:
        assert loaded.ask("Once more?").answer == "25000"


def test_the_public_functions_are_not_replaced_by_modules(shop: Path) -> None:
    source = store_context(rlm.table(shop)).source
    assert source is not None
    source.close()
    assert [each.__name__ for each in (rlm.table, rlm.tables, rlm.database)] == [
        "table",
        "tables",
        "database",
    ]
    from rlm import data

    assert callable(data.tables)


def test_without_a_model_the_answer_about_a_table_says_one_is_needed(
    tmp_path: Path, shop: Path
) -> None:
    result = RLM("offline/extractive", journal=tmp_path / "runs").ask("How many orders?", shop)
    assert (result.stop_reason, result.steps) == ("passages", 1)
    assert "questions about tables and databases need a model" in str(result)
