"""The suffix and the content of a file decide what `context` is."""

import csv
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.context import parts, reading, store_context
from rlm.context.scanning import TextCount
from rlm.data.filesystem import opening
from tests.context.helpers import seen_by_worker

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kinds")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("value", [{"a": [1, "é\0"]}, [1, {"b": None}], [], {}])
def test_a_json_file_becomes_its_value(tmp_path: Path, value: Any, encoding: str) -> None:
    path = tmp_path / "a.JSON"
    path.write_text(json.dumps(value, indent=1), encoding)
    stored = store_context(path)
    assert (stored.kind, seen_by_worker(stored, 3), stored.notices) == ("json", value, ())
    assert stored.description == store_context(value).description


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"a": 1', "it is not JSON (Expecting ',' delimiter: line 1 column 8 (char 7))"),
        ('"only a text"', "its JSON is neither an object nor an array"),
        ("[" * 100_000, "it is not JSON (maximum recursion depth exceeded"),
    ],
)
def test_invalid_json_stays_text(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "a.json").write_text(content, "utf-8")
    stored = store_context(tmp_path / "a.json")
    assert seen_by_worker(stored) == content
    assert len(stored.notices) == 1
    assert f"a.json is text in the REPL: {words}" in stored.notices[0]


def test_json_too_large_for_memory_stays_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_JSON_BYTES", 3 << 20)
    (tmp_path / "a.json").write_text("[" + " " * (3 << 20) + "]", "utf-8")
    stored = store_context(tmp_path / "a.json")
    assert stored.kind == "text"
    assert stored.notices[0].endswith("is text in the REPL: it is larger than 3 MiB")


@given(
    values=st.lists(JSON, min_size=1, max_size=6),
    ends=st.sampled_from(["\n", "\r\n", "\n\n", " \n\t\n"]),
    ascii_only=st.booleans(),
    read=st.integers(1, 40),
)
def test_json_lines_become_a_list(
    folder: Path, values: list[Any], ends: str, ascii_only: bool, read: int
) -> None:
    path = folder / "a.jsonl"
    lines = [json.dumps(value, ensure_ascii=ascii_only) for value in values]
    path.write_bytes(("\ufeff" + ends.join(lines) + ends).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "READ_BYTES", read)
        stored = store_context(path)
        assert seen_by_worker(stored, 7) == values
    assert stored.kind == "json"
    assert stored.description == store_context(values).description


def test_json_lines_with_an_invalid_line_stay_text(tmp_path: Path) -> None:
    content = '{"a": 1}\n{"a": 2}\n{"a": \n'
    (tmp_path / "a.ndjson").write_text(content, "utf-8")
    stored = store_context(tmp_path / "a.ndjson")
    assert seen_by_worker(stored) == content
    assert "value 3 is not JSON (Expecting value" in stored.notices[0]
    assert "JSON" not in stored.description


def test_json_lines_with_very_long_lines_stay_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "LONGEST_LINE_CHARS", 10)
    (tmp_path / "a.jsonl").write_text('"' + "x" * 20 + '"', "utf-8")
    assert store_context(tmp_path / "a.jsonl").kind == "text"


@pytest.mark.parametrize("content", ["\n", " \r\n\n"])
def test_an_empty_json_lines_file_becomes_an_empty_list(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.jsonl").write_text(content, "utf-8")
    assert seen_by_worker(store_context(tmp_path / "a.jsonl")) == []


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", "name,age\nann,3\nbob,4\n", "a CSV table of 2 rows with columns name, age."),
        ("a.csv", "name;age\r\nann;3\r\n", "of 1 row with columns name, age (delimiter=';')."),
        ("a.csv", '"name","age"\n"an\nn",3\n"b""\n",4', "of 2 rows with columns name, age."),
        ("a.csv", "\ufeffname,age\nann,3\n", "of 1 row with columns \\ufeffname, age."),
        ("a.csv", 'name, age, "b c"\nann, 3, 4\n', "a CSV table of 2 rows."),
        ("a.tsv", "name\tage\nann, b\t3\n", "a TSV table of 1 row with columns name, age."),
        ("a.csv", "ann,3\nbob,4\n", "a CSV table of 2 rows."),
        ("a.csv", "just one column\nand more\n", "a CSV table of 2 rows."),
        ("a.csv", 'height\n5"\n6\n7\n', "a CSV table of 4 rows."),
    ],
)
def test_csv_tables_stay_text_and_are_described(
    tmp_path: Path, name: str, content: str, told: str
) -> None:
    (tmp_path / name).write_bytes(content.encode())
    stored = store_context(tmp_path / name)
    assert seen_by_worker(stored) == content
    assert stored.description.endswith(told)


@pytest.mark.parametrize(
    "content",
    [
        "Dear Ann, hello\nwe met, long ago, I think\nbye\n",
        "name,age\nann,3\nbob\n",
        'name,age\n"ann,3\nbob,4\n',
        "just text; with a semicolon\nand without\n",
    ],
)
def test_a_file_that_is_not_a_table_is_not_described_as_one(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.csv").write_bytes(content.encode())
    told = store_context(tmp_path / "a.csv").description
    assert "table" not in told
    assert "CSV" not in told


def test_only_the_start_of_a_long_table_is_described(tmp_path: Path) -> None:
    rows = "ann,3\n" * 50_000
    (tmp_path / "a.csv").write_text(f"name,age\n{rows}no,longer,a table\n", "utf-8")
    told = store_context(tmp_path / "a.csv").description
    assert told.endswith("; begins like a CSV table with columns name, age.")


@given(st.lists(st.sampled_from(["\n", "a", "\r"])), st.integers(1, 4))
def test_lines_are_counted_the_same_however_the_text_is_split(tokens: list[str], size: int) -> None:
    text = "".join(tokens)
    whole, cut = TextCount(), TextCount()
    whole.add(text)
    for at in range(0, len(text), size):
        cut.add(text[at : at + size])
    assert (whole.lines, whole.chars) == (cut.lines, cut.chars)


@given(st.lists(st.sampled_from(['"', "\n", "a", ",", ";", "\t", '""', '"\n"', "name", "age"])))
def test_a_table_is_one_to_the_csv_module(folder: Path, tokens: list[str]) -> None:
    path = folder / "tokens.csv"
    text = "".join(tokens)
    path.write_text(text, "utf-8", newline="")
    told = re.search(r"a CSV table of (\d+) rows?( with)?", store_context(path).description)
    if told is None:
        return
    readings = [
        [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=each) if row]
        for each in ",;\t|"
    ]
    wanted = int(told[1]) + bool(told[2])
    assert any(len(r) == wanted and len({len(row) for row in r}) == 1 for r in readings)


@given(st.lists(st.sampled_from(["secret word here now", "Zürich!", "alpha,beta!", "x,7", "a;b"])))
def test_no_value_of_a_table_is_shown_in_its_description(folder: Path, lines: list[str]) -> None:
    path = folder / "values.csv"
    path.write_text("\n".join(lines), "utf-8")
    told = store_context(path).description
    assert not any(value in told for value in ("secret", "Zürich", "beta!", "7,"))


def test_a_binary_file_becomes_bytes(tmp_path: Path) -> None:
    data = b"\x89PNG\r\n\x1a\n\0\0\0" + bytes(range(256)) * 40
    (tmp_path / "a.png").write_bytes(data)
    stored = store_context(tmp_path / "a.png")
    assert (stored.kind, seen_by_worker(stored, 1000)) == ("bytes", data)
    assert stored.description == "bytes, 10,251 bytes."
    assert stored.notices[0].endswith("a.png is not text: it is bytes in the REPL")
    assert stored.preview(5) == ""


def test_without_the_extra_html_is_read_as_plain_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bs4", None)
    (tmp_path / "a.html").write_text("<html><p>hello</p></html>", "utf-8")
    stored = store_context(tmp_path / "a.html")
    assert stored.text() == "<html><p>hello</p></html>"
    assert "looks like HTML" in stored.description
