"""Rows are read one by one, whatever they contain."""

import contextlib
import json
import tempfile
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.batch import rows as module
from rlm.batch.rows import RowError, Source
from rlm.data import place
from rlm.errors import ConfigError


def source(folder: Path, text: str | bytes) -> Source:
    path = folder / "tasks.jsonl"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return Source(path)


def test_empty_lines_are_not_rows_but_count_as_lines(tmp_path: Path) -> None:
    found = source(tmp_path, '\n{"query": "a"}\n\n  \r\n{"query": "b"}')
    positions = list(found.positions())
    assert [(position.number, position.line) for position in positions] == [(0, 2), (1, 5)]
    assert [found.row(position).query for position in positions] == ["a", "b"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 1"),
        ("[1]", "Expected `object`"),
        ('{"context": "x"}', "missing required field `query`"),
        ('{"query": 5}', "Expected `str`"),
        ('{"query": " "}', "the query is empty"),
        ('{"query": "a", "contxt": "x"}', "unknown field `contxt`"),
        ('{"query": "a", "id": 1.5}', "id"),
        ("[" * 100_000, "line 1"),
        (b'{"query": "\xff"}', "line 1"),
        (r'{"query": "half \ud83d"}', "line 1: only a context"),
        (r'{"query": "a", "id": "\udc00"}', "line 1: only a context"),
        (r'{"query": "a", "meta": {"b": ["\ud83d"]}}', "line 1: only a context"),
        (r'{"query": "a", "context": ["\ud83d", NaN]}', "NaN is not a JSON number"),
        (r'{"query": "a", "context": "\ud83d"', "line 1"),
        (r'{"query": 5, "context": "\ud83d"}', "Expected `str`"),
    ],
)
def test_an_invalid_row_is_reported(tmp_path: Path, line: str | bytes, words: str) -> None:
    found = source(tmp_path, line)
    (position,) = found.positions()
    with pytest.raises(RowError, match=words):
        found.row(position)


@given(
    st.binary(max_size=200)
    | st.text().map(lambda name: json.dumps({"query": "a", "context_file": name}).encode())
)
def test_any_line_can_be_checked(line: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = source(Path(folder), line)
        except ConfigError:  # written in UTF-16
            return
        for position in found.positions():
            problem = found.problem(position)
            assert problem is None or problem.startswith(f"line {position.line}")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gone", "No such file"),
        ("a" * 5_000, "File name too long"),
        ("a\0b", "null"),
        ("", "line 1: context_file: the name is empty"),
        ("loop", "Too many levels"),
    ],
)
def test_a_missing_context_file_is_reported_before_a_row_is_asked(
    tmp_path: Path, name: str, why: str
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    found = source(tmp_path, json.dumps({"query": "a", "context_file": ["tasks.jsonl", name]}))
    (position,) = found.positions()
    assert why in (found.problem(position) or "")


def test_an_address_is_not_fetched_before_its_row_is_asked(tmp_path: Path) -> None:
    names = ["s3://bucket/gone.txt", "ftp://user:pa55word@host/x"]
    rows = [json.dumps({"query": "a", "context_file": name}) for name in names]
    found = source(tmp_path, "\n".join(rows))
    good, bad = map(found.problem, found.positions())
    assert good is None
    assert bad is not None
    assert bad.startswith("line 2: ")
    assert "pa55word" not in bad


def test_an_oversized_row_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROW_BYTES", 100)
    large = json.dumps({"query": "a", "context": "x" * 350})
    found = source(tmp_path, f'{{"query": "b"}}\n{large}\n{{"query": "c"}}\n')
    positions = list(found.positions())
    assert [position.number for position in positions] == [0, 1, 2]
    assert found.row(positions[2]).query == "c"
    with pytest.raises(RowError, match="context_file"):
        found.row(positions[1])


def test_contexts_may_be_values_or_files(tmp_path: Path) -> None:
    texts = [
        {"query": "a"},
        {"query": "a", "context": None},
        {"query": "a", "context": [1, "two"]},
        {"query": "a", "context_file": "b/c.txt"},
        {"query": "a", "context_file": ["c.txt", "/d.txt"]},
        {"query": "a", "context_file": ["c.txt", "s3://bucket/logs/"]},
    ]
    found = source(tmp_path, "\n".join(map(json.dumps, texts)))
    rows = [found.row(position).context_in(tmp_path) for position in found.positions()]
    paths = [tmp_path / "b/c.txt", [tmp_path / "c.txt", Path("/d.txt")]]
    assert rows == [
        *(None, None, [1, "two"], *paths),
        [tmp_path / "c.txt", place("s3://bucket/logs/")],
    ]
    found = source(tmp_path, '{"query": "a", "context": "x", "context_file": "y"}')
    with pytest.raises(RowError, match="not both"):
        found.row(next(found.positions())).context_in(tmp_path)


def test_input_that_cannot_be_read_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a file"):
        Source(tmp_path)
    with pytest.raises(ConfigError, match="not a file"):
        Source(tmp_path / "nowhere")


def test_a_byte_order_mark_is_not_part_of_the_first_row(tmp_path: Path) -> None:
    """Editors of Windows write one."""
    for text in ('{"query": "a"}\n{"query": "b"}', '\n{"query": "a"}\n\n{"query": "b"}\n'):
        plain = list(source(tmp_path, text).positions())
        found = source(tmp_path, BOM_UTF8 + text.encode())
        marked = list(found.positions())
        assert [found.row(position).query for position in marked] == ["a", "b"]
        assert [(each.line, each.digest) for each in marked] == [
            (each.line, each.digest) for each in plain
        ]
    assert list(source(tmp_path, BOM_UTF8).positions()) == []
    with pytest.raises(ConfigError, match="save it as UTF-8"):
        source(tmp_path, '{"query": "a"}'.encode("utf-16"))


TEXTS = st.text(st.characters(codec="utf-8"))
ANY_TEXTS = st.text(st.characters(exclude_categories=()))
"""Values that may contain lone surrogates."""
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | ANY_TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.tuples(TEXTS, VALUES), max_size=5))
def test_rows_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, Any]]
) -> None:
    rows = [(f"q{query}", json.loads(json.dumps(context))) for query, context in rows]
    text = "".join(json.dumps({"query": q, "context": c}) + "\n" for q, c in rows)
    found = source(tmp_path_factory.mktemp("rows"), text)
    positions = list(found.positions())
    assert [(found.row(p).query, found.row(p).context) for p in positions] == rows


@given(st.binary(max_size=300))
def test_any_bytes_are_rows_or_clear_errors(
    tmp_path_factory: pytest.TempPathFactory, text: bytes
) -> None:
    try:
        found = source(tmp_path_factory.mktemp("rows"), text)
    except ConfigError:
        assert text[:2] in {b"\xff\xfe", b"\xfe\xff"}
        return
    for number, position in enumerate(found.positions()):
        assert position.number == number
        with contextlib.suppress(RowError):
            assert found.row(position).query.strip()


def test_a_row_that_ends_too_early_is_not_complete_json(tmp_path: Path) -> None:
    (position,) = source(tmp_path, '{"query": "a", ').positions()
    told = source(tmp_path, '{"query": "a", ').problem(position) or ""
    assert told.startswith("line 1: the row is not complete JSON; a row is a JSON object")
