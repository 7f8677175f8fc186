"""What was read of data that stays on the host: by document, by statement, bounded."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.events import DataRequest, DocumentRead
from rlm.viewer import data_coverage
from rlm.viewer.data_coverage import data_read_by
from tests.records.trajectories.samples import one_run, written
from tests.viewer.data_logs import (
    CHILD_ID,
    MARKUP,
    NAME,
    RUN_ID,
    corpus_log,
    data_read,
    over,
    read,
    tables_log,
)
from tests.viewer.serving import journal_shelf, log_shelf, serving
from tests.viewer.test_journals import archive, ask


async def coverage(tmp_path: Path, events: Any, run_id: str = RUN_ID) -> Any:
    log = written(tmp_path / "a.jsonl", events)
    async with serving(log_shelf(log), tmp_path) as client:
        return await client.get(f"/api/runs/{run_id}/coverage")


async def test_coverage_of_a_corpus_is_by_document(tmp_path: Path) -> None:
    found = await coverage(tmp_path, corpus_log())
    assert found["available"]
    data = found["data"]
    assert data["description"] == f"a corpus of 5,000 documents: {MARKUP}"
    rows = [
        (each["name"], each["found"], each["matched"], each["read"], each["bytes_read"])
        for each in data["documents"]
    ]
    assert rows == [
        ("docs/b.txt", 0, 0, 1, 1_000),
        (NAME, 1, 0, 2, 150),
        ("docs/c.txt", 0, 3, 0, 0),
        ("docs/d.txt", 1, 0, 0, 0),
    ]
    totals = ("documents_read", "documents_found", "documents_matched", "bytes_read")
    assert [data[name] for name in totals] == [2, 2, 1, 1_150]
    assert (data["source_documents"], data["source_bytes"]) == (5_000, 1_000_000)
    assert {each["text"] for each in data["statements"]} == {"fox", MARKUP}
    by_method = {each["method"]: each["count"] for each in data["methods"]}
    assert by_method == {"grep": 1, "read": 3, "search": 1}
    assert (data["more_documents"], data["more_statements"], data["exact"]) == (0, 0, True)


async def test_a_child_run_has_its_own_coverage(tmp_path: Path) -> None:
    found = await coverage(tmp_path, corpus_log(), CHILD_ID)
    assert [each["bytes_read"] for each in found["data"]["documents"]] == [100]


async def test_coverage_of_tables_is_by_statement(tmp_path: Path) -> None:
    data = (await coverage(tmp_path, tables_log()))["data"]
    assert data["documents"] == []
    assert data["sources"] == ["tables"]
    first, second = data["statements"]
    assert (first["count"], first["returned"], first["failed"]) == (40, 39, 0)
    assert (second["text"], second["failed"]) == (f"select {MARKUP}", 1)


async def test_the_text_view_explains_a_context_of_data(tmp_path: Path) -> None:
    log = written(tmp_path / "a.jsonl", corpus_log())
    async with serving(log_shelf(log), tmp_path) as client:
        answer = await client.ask(f"/api/runs/{RUN_ID}/context/rows?at=0")
        assert answer.status == 404
        assert "data that stays where it is" in answer.text
        assert "a corpus of 5,000 documents" in answer.text
        page = await client.get(f"/api/runs/{RUN_ID}")
        assert (page["context"]["kind"], page["context"]["available"]) == ("source", False)
        step = await client.get(f"/api/runs/{RUN_ID}/steps/1")
        kinds = [each["type"] for each in step["events"]]
        assert kinds.count("data_read") == 3


async def test_coverage_of_a_run_without_requests_and_of_one_over_text(tmp_path: Path) -> None:
    data = (await coverage(tmp_path, over([])))["data"]
    assert (data["documents"], data["methods"], data["sources"]) == ([], [], [])
    assert "data" not in await coverage(tmp_path, one_run("text"), "text")


async def test_coverage_of_a_journaled_run_over_a_database(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table orders (id integer)")
        connection.executemany("insert into orders values (?)", [(n,) for n in range(7)])
    connection.close()
    state = tmp_path / "state"
    codes = ["for _ in range(3): ctx.sql('select id from orders')\nFINAL('7')"]
    run = await asyncio.to_thread(ask, state, codes, path)
    async with serving(journal_shelf(archive(state)), tmp_path) as client:
        found = await client.get(f"/api/runs/{run.run_id}/coverage")
    assert [(e["text"], e["count"], e["returned"]) for e in found["data"]["statements"]] == [
        ("select id from orders", 3, 21)
    ]
    assert str(tmp_path) not in str(found)


async def test_many_documents_are_counted_and_only_the_first_listed(tmp_path: Path) -> None:
    events = [
        data_read("read", count=500, documents=tuple(read(n, "d" * 5_000, (0, n)) for n in part))
        for part in (range(1, 501), range(501, 1_001), range(1_001, 1_501))
    ]
    data = (await coverage(tmp_path, over(events)))["data"]
    assert (len(data["documents"]), data["more_documents"]) == (1_000, 500)
    assert data["documents_read"] == 1_500
    assert data["bytes_read"] == sum(min(n, 1_000) for n in range(1, 1_501))
    assert max(len(each["name"]) for each in data["documents"]) == 300


def test_the_number_of_kept_documents_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_coverage, "MAX_KEPT", 3)
    monkeypatch.setattr(data_coverage, "MAX_RANGES", 2)
    events = [data_read("read", documents=(read(n, "x", (0, 5)),)) for n in range(1, 9)]
    data = data_read_by(events)
    assert (len(data["documents"]), data["bytes_read"], data["exact"]) == (3, 10, False)


numbers = st.integers(-(1 << 62), 1 << 62)
documents = st.builds(
    DocumentRead,
    id=numbers,
    name=st.text(max_size=3),
    bytes=numbers,
    found=numbers,
    matched=numbers,
    read=numbers,
    ranges=st.lists(st.tuples(numbers, numbers), max_size=5).map(tuple),
)
requests = st.builds(
    DataRequest, text=st.text(max_size=3), count=numbers, returned=numbers, failed=numbers
)


@given(
    st.lists(st.tuples(st.text(max_size=3), numbers, documents, requests), max_size=20),
)
def test_any_numbers_are_accepted(given_events: list[tuple[str, int, Any, Any]]) -> None:
    data = data_read_by(
        data_read(m, count=n, documents=(d,), requests=(r,), source_bytes=n)
        for m, n, d, r in given_events
    )
    for row in (*data["documents"], *data["statements"], *data["methods"]):
        assert all(each >= 0 for each in row.values() if isinstance(each, int))
    for row in data["documents"]:
        assert not row["bytes"] or row["bytes_read"] <= row["bytes"]
