"""What cells read of data, summed up: events stay small, and no count is lost."""

import json
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.data.answers import METHODS, Answered, Touched, answered, request_text
from rlm.engine.data_reads import MAX_CHARS, MAX_ENTRIES, NAME_CHARS, TEXT_CHARS, DataReads
from rlm.events import DataRead
from rlm.records.trajectories.decoding import Line, Skipped, glance_at
from rlm.viewer.index import FileIndex

CORPUS = {"source": "corpus", "id": "c-1", "documents": 10, "bytes": 1_000}
MOST_BYTES = 6 * (2 * MAX_CHARS + MAX_ENTRIES * 200)
"""Each character takes at most six bytes as JSON; each entry has numbers of its own."""


class Told:
    """Stands for the scope of a run: it keeps what is emitted."""

    def __init__(self) -> None:
        self.events: list[DataRead] = []
        self.cell = 1

    def emit(self, kind: Any, **facts: Any) -> None:
        self.events.append(kind(run_id="r", step=1, **facts))


def reads() -> tuple[DataReads, Told]:
    told: Any = Told()
    return DataReads(told), told


def read(document: int, start: int, end: int, name: str = "") -> Answered:
    touched = Touched(document, name or f"doc {document}", 1_000_000, start, end)
    return Answered(1, end - start, (touched,))


def total(told: Told, name: str) -> int:
    return sum(getattr(event, name) for event in told.events)


def test_a_hundred_thousand_reads_of_one_document_are_one_event() -> None:
    found, told = reads()
    for at in range(100_000):
        found.add(CORPUS, "read", "", read(7, at * 10, at * 10 + 10))
    assert told.events == []
    found.report()
    (event,) = told.events
    assert (event.count, event.returned, event.bytes) == (100_000, 100_000, 1_000_000)
    (document,) = event.documents
    assert (document.read, document.ranges) == (100_000, ((0, 1_000_000),))
    found.report()
    assert len(told.events) == 1


def test_many_documents_and_ranges_are_spread_over_bounded_events() -> None:
    found, told = reads()
    for number in range(5_000):
        found.add(CORPUS, "read", "", read(number + 1, 0, 10, "\U0001f642" * 5_000))
        found.add(CORPUS, "read", "", read(1, 100 * number + 20, 100 * number + 30))
    found.report()
    assert total(told, "count") == 10_000
    assert len(told.events) > 10
    for event in told.events:
        ranges = sum(len(each.ranges) for each in event.documents)
        assert len(event.documents) + ranges <= MAX_ENTRIES + 1
        assert len(msgspec.json.encode(event)) <= MOST_BYTES
        assert all(len(each.name) < NAME_CHARS + 50 for each in event.documents)
    touched = Counter[int]()
    for event in told.events:
        touched.update({each.id: each.read for each in event.documents})
    assert len(touched) == 5_000
    assert touched[1] == 5_001
    assert sum(touched.values()) == 10_000


def test_a_grep_that_touches_many_documents_is_spread_over_several_events() -> None:
    found, told = reads()
    lines = tuple(Touched(number, f"d{number}") for number in range(1, 2_001))
    found.add(CORPUS, "grep", "x", Answered(2_000, 9, lines))
    found.report()
    assert total(told, "count") == 1
    assert total(told, "returned") == 2_000
    assert [len(event.requests) for event in told.events] == [1, *[0] * (len(told.events) - 1)]
    assert sum(each.matched for event in told.events for each in event.documents) == 2_000


def test_equal_statements_are_counted_and_long_ones_are_cut() -> None:
    found, told = reads()
    tables = {"source": "tables", "id": "t"}
    for _ in range(3):
        found.add(tables, "sql", "select 1", Answered(2, 10), seconds=0.5)
    found.add(tables, "sql", "broken", Answered(), error="no such column\ud800", seconds=0.5)
    found.add(tables, "sql", "s" * 200_000, Answered(1, 1), from_journal=True)
    found.add(tables, "m" * 1_000_000, "", Answered(), error="e" * 10_000)
    found.report()
    other, event = told.events
    assert (other.method, other.count, other.failed) == ("other", 1, 1)
    assert len(other.error or "") < 700
    assert (event.count, event.failed, event.from_journal, event.returned) == (5, 1, 1, 7)
    assert (event.seconds, event.error) == (2.0, "no such column�")
    first, second, third = event.requests
    assert (first.text, first.count, first.returned, first.failed) == ("select 1", 3, 6, 0)
    assert (second.count, second.failed) == (1, 1)
    assert len(third.text) < TEXT_CHARS + 50
    assert third.text.endswith("… (200,000 characters)")


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 40), st.integers(1, 9)), max_size=60),
)
def test_recorded_ranges_are_exactly_those_read(parts: list[tuple[int, int, int]]) -> None:
    found, told = reads()
    wanted: dict[int, set[int]] = {}
    for document, start, size in parts:
        found.add(CORPUS, "read", "", read(document, start, start + size))
        wanted.setdefault(document, set()).update(range(start, start + size))
    found.report()
    got = {
        each.id: {at for start, end in each.ranges for at in range(start, end)}
        for event in told.events
        for each in event.documents
    }
    assert got == wanted
    for each in told.events[0].documents if told.events else ():
        assert all(a[1] < b[0] for a, b in zip(each.ranges, each.ranges[1:], strict=False))


@pytest.mark.parametrize(
    ("method", "arguments", "answer", "wanted"),
    [
        ("sql", {"query": "q"}, {"columns": ["a"], "rows": [[1], [2]]}, (2, ())),
        ("rows", {"table": "q"}, {"columns": ["a"], "rows": []}, (0, ())),
        ("search", {"query": "q"}, [{"id": 3, "name": "n", "text": "t"}], (1, (Touched(3, "n"),))),
        (
            "grep",
            {"pattern": "q"},
            {"matches": [{"id": 3, "name": "n"}] * 2, "complete": True},
            (2, (Touched(3, "n"),) * 2),
        ),
        (
            "read",
            {"document": "n", "start": 4},
            {"id": 3, "name": "n", "text": "t", "end": 9, "size": 20},
            (1, (Touched(3, "n", 20, 4, 9),)),
        ),
        (
            "read",
            {"document": 5},
            {"text": "t", "end": 9, "size": 9},
            (1, (Touched(5, "5", 9, 0, 9),)),
        ),
        ("read", {"document": 3, "size": 0}, {"id": 3, "name": "n", "end": 0, "size": 9}, (1, ())),
        ("sample", {"n": 2}, [1, 2], (2, ())),
        ("names", {}, [[1, "a", 2]], (1, ())),
    ],
)
def test_answers_of_every_data_method_are_summarized(
    method: str, arguments: dict[str, Any], answer: Any, wanted: tuple[int, Any]
) -> None:
    text = json.dumps(answer)
    found = answered(method, arguments, text)
    assert (found.returned, found.documents) == wanted
    assert found.bytes == len(text)
    assert request_text(method, arguments) in ("q", "")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda each: (
        st.lists(each, max_size=3)
        | st.dictionaries(
            st.sampled_from(["rows", "matches", "id", "name", "end", "size", "x"]), each, max_size=4
        )
    ),
    max_leaves=12,
)


@given(
    st.sampled_from([*sorted(METHODS), "none"]),
    st.dictionaries(st.sampled_from(["start", "size", "document", "query"]), json_values),
    json_values.map(json.dumps) | st.text(),
)
def test_any_recorded_answer_can_be_summarized(
    method: str, arguments: dict[str, Any], text: str
) -> None:
    found, told = reads()
    found.add(CORPUS, method, request_text(method, arguments), answered(method, arguments, text))
    found.report()
    (event,) = told.events
    assert event.count == 1
    line = msgspec.json.encode(event)
    assert msgspec.json.decode(line, type=DataRead) == event
    assert glance_at(Line(0, len(line), line), Skipped()) is not None
    index = FileIndex()
    index.take(0, len(line), line, False)
    assert index.events == 1
