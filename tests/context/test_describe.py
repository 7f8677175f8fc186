"""A context is stored exactly and described by structure only."""

import ast
import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm.context import describe, store_context
from rlm.context.describe import SAMPLE_CHARS
from rlm.errors import ConfigError
from rlm.worker.ctx import ContextView
from rlm.worker.lines import count_lines
from tests.context.helpers import seen_by_worker

ANY_TEXT = st.text(alphabet=st.characters(codec=None, exclude_categories=()))


@given(ANY_TEXT)
def test_text_survives_exactly(text: str) -> None:
    stored = store_context(text)
    assert b"".join(stored.chunks(7)).decode("utf-8", "surrogatepass") == text == stored.text()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", 0),
        ("one", 1),
        ("one\n", 1),
        ("one\ntwo", 2),
        ("one\ntwo\n", 2),
        ("one\n\n", 2),
        ("\n", 1),
        ("one\r\ntwo\r\n", 2),
        ("one\r\ntwo", 2),
        ("one\rtwo\r", 1),
        ("one\rtwo\nthree", 2),
        ("one\u2028two\x0cthree", 1),
    ],
)
def test_lines_are_counted_the_same_way_everywhere(tmp_path: Path, text: str, lines: int) -> None:
    """In the description of a text and of a file, in `ctx.describe()`, and by `ctx.lines()`."""
    path = tmp_path / "text"
    path.write_bytes(text.encode())
    noun = "line" if lines == 1 else "lines"
    for described in (describe(text), store_context(path).description):
        if text:
            assert re.search(rf" in {lines} {noun}[,.]", described), described
        else:
            assert described.startswith("an empty str")
    view = ContextView(text)
    assert view.describe().endswith(f", {lines} {noun}")
    assert len(view.lines()) == lines == count_lines(text)


@pytest.mark.parametrize("value", [["a", "\ud800", {"b": [1, None]}], {"k": "é\0\r\n"}, [], {}])
def test_json_values_are_exact(value: Any) -> None:
    stored = store_context(value)
    assert stored.kind == "json"
    assert json.loads(stored.data) == value


def test_adjacent_lone_surrogates_stay_two_characters() -> None:
    value = ["\ud83d\ude00", {"\ud83d\ude00": "\U0001f600"}]
    assert seen_by_worker(store_context(value), 5) == value


@pytest.mark.parametrize("value", [b"\x00\xff", bytearray(b"\x00\xff"), memoryview(b"\x00\xff")])
def test_bytes_are_exact(value: Any) -> None:
    assert store_context(value).kind == "bytes"
    assert seen_by_worker(store_context(value), 1) == b"\x00\xff"


def test_none_is_an_empty_text() -> None:
    assert seen_by_worker(store_context(None)) == store_context(None).text() == ""


def test_a_str_is_never_treated_as_a_path(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("inside", "utf-8")
    assert seen_by_worker(store_context(str(tmp_path / "a.txt"))) == str(tmp_path / "a.txt")


def test_values_that_json_cannot_hold_are_refused_with_a_reason() -> None:
    with pytest.raises(ConfigError, match="JSON"):
        store_context([object()])
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ConfigError):
        store_context(deep)


def test_the_hash_identifies_the_content_and_the_digest_the_task() -> None:
    one, same, other = store_context("abc"), store_context("abc"), store_context("abd")
    assert one.sha256 == same.sha256 != other.sha256
    assert one.digest("q") == same.digest("q") != one.digest("p")
    assert store_context("[]").digest("q") != store_context([]).digest("q")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("one\ntwo\n", "a str of 8 characters in 2 lines, 4 on average."),
        ("", "an empty str: everything you need is in the query."),
        ("name,age\nann,3\nbob,4\n", "looks like CSV with columns name, age"),
        ('{"id": 1, "text": "x"}\n{"id": 2, "text": "y"}\n', "JSON Lines with keys id, text"),
        ('{"users": [1, 2]}', "looks like a JSON object with keys users"),
        ("[1, 2, 3]", "looks like a JSON array of 3 items"),
        ("# Title\ntext\n## Part\ntext\n## Part\n", "looks like Markdown"),
        (["ab", "cdef"], "a list of 2 items (2 str); texts of 2 to 4 characters, 6 in all."),
        ([{"a": 1}, {"b": 2}], "dicts with keys a, b"),
        ({"a": 1}, "a dict of 1 item with keys a."),
        ([], "an empty list."),
        (b"abc", "bytes, 3 bytes."),
    ],
)
def test_the_structure_of_a_value_is_described(value: object, told: str) -> None:
    assert told in describe(value)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("0123456789abcde\n", "in about 1,060,000 lines, 16 on average"),
        ("no end of it ", "in about 1 line"),
        ("x\n" + "." * 999, "in about 17,000 lines, 1,000 on average"),
    ],
)
def test_the_line_count_of_a_very_long_text_is_estimated(line: str, told: str) -> None:
    assert told in describe((line * (17_000_000 // len(line) + 1))[:17_000_000])


@given(st.lists(st.sampled_from(["secret word", "alpha beta", "Zürich!", "x, y z", "{", "a|b"])))
def test_no_sentence_of_a_text_is_shown(lines: list[str]) -> None:
    told = describe("\n".join(lines))
    assert not any(line in told for line in ("secret word", "alpha beta", "Zürich!"))


NO_FORMAT = {
    "a log": "[2024-05-01 10:00] start\n[2024-05-01 10:01] end\n",
    "a template": "{{ name }}\n{% if x %}\n{% endif %}\n",
    "a Python dict": "{'a': 1, 'b': None}",
    "a list of links": "[1] first\n[2] second\n",
    "JSON that is broken off": '{"a": [1, 2',
    "JSON with a comment": '{"a": 1} // one',
    "JSON Lines with a broken one": '{"a": 1}\n{"a": }\n{"a": 3}\n',
    "JSON Lines with a rest": '{"a": 1}\n{"a": 2}\nthe end',
    "a table with a short row": "name,age\nann,3\nbob\ncid,5\n",
    "a table with an open quote": 'name,age\nann,3\n"bob,4\ncid,5\n',
    "a table and a remark": "name,age\nann,3\nbob,4\nsource: a, b, c\n",
    "a Python file": "# Settings\nx = 1\n## More\ny = 2\n",
    "a script": "#!/bin/sh\n# one\n## two\necho\n",
    "a tag": "<htmlx>no</htmlx>",
    **{
        f"JSON after {space!r}": f"{space}{text}"
        for space in "\u00a0\u2003\x0c\x1c\x85\u3000\ufeff\x0b"
        for text in ('{"a": 1}', "[1, 2]", '{"a": 1}\n{"a": 2}\n')
    },
    "JSON Lines around other space": '{"a": 1}\n\u00a0\n{"a": 2}\n',
    "JSON Lines with a line separator in a text": '{"a": "\u2028"}\n{"a": "\x85"}\n',
    "JSON Lines that are not lines": '{"a": 1}\u2028{"a": 2}\u2028',
    "prose with one comma per line": "Dear Bob, how are you\nwe met, long ago\nand never, since\n",
    "a table with spaces": 'name, age, "b c"\nann, 3, 4\nbob, 5, 6\n',
    "a table after an empty line": "\nname,age\nann,3\nbob,4\n",
    "a table with other ends of lines": "name,age\rann,3\rbob,4\r",
    "a table with a quoted name after a mark": '\ufeff"name",age\nann,3\nbob,4\n',
}


@pytest.mark.parametrize("text", NO_FORMAT.values(), ids=NO_FORMAT)
def test_a_format_is_named_only_if_the_text_parses(text: str) -> None:
    assert "; " not in describe(text)


LONG = {
    "; begins like JSON.": "[" + '{"a": "some text"},\n' * 20_000 + '{"a": 1} and a rest',
    "; begins like JSON Lines with keys a.": '{"a": 1, "b": 2}\n{"a": 3}\n' * 20_000 + "a rest",
    "; begins like CSV with columns name, age.": "name,age\n" + "ann,3\n" * 50_000 + "a rest",
    "": "[2024-05-01] line\n" * 20_000,
}


@pytest.mark.parametrize(("told", "text"), LONG.items(), ids=["JSON", "JSON Lines", "CSV", "none"])
def test_only_the_start_of_a_long_text_is_described(told: str, text: str) -> None:
    assert len(text) > SAMPLE_CHARS
    assert describe(text).endswith(told or "on average.")


def confirmed(told: str, text: str) -> bool:
    """Whether what a description says of a format is what its parser finds."""
    lines = [line for line in text.split("\n") if line.strip()]
    if "looks like JSON Lines" in told:
        keys, _ = _names_in(told.partition("with keys ")[2])
        rows = [json.loads(line) for line in text.split("\n") if line.strip(" \t\r")]
        assert rows == [json.loads(line) for line in text.splitlines() if line.strip(" \t\r")]
        return all(isinstance(r, dict) and all(k in r for k in keys if k) for r in rows)
    if "looks like a JSON object" in told:
        return isinstance(json.loads(text), dict)
    if found := re.search(r"looks like a JSON array of ([\d,]+) item", told):
        return len(json.loads(text)) == int(found[1].replace(",", ""))
    if "looks like CSV" in told:
        columns, _, delimiter = told.partition("with columns ")[2].partition(" (delimiter=")
        names, count = _names_in(columns)
        names[0] = names[0].replace("\\ufeff", "\ufeff")
        given = {"delimiter": ast.literal_eval(delimiter[:-2])} if delimiter else {}
        reader = csv.DictReader(io.StringIO(text), **given)
        rows = list(reader)
        fields = list(reader.fieldnames or [])
        whole = all(None not in row and None not in row.values() for row in rows)
        return whole and len(fields) == count and fields[: len(names)] == names
    if "looks like Markdown" in told:
        return sum(bool(re.match(r"#{1,6}\s+\S", line)) for line in lines) > 1
    return "looks like" not in told or "looks like HTML" in told


def _names_in(told: str) -> tuple[list[str], int]:
    """Return the names in a description, and their number including omitted ones."""
    told = told.rstrip(".")
    more = re.search(r" and ([\d,]+) more$", told)
    names = told[: more.start() if more else None].split(", ")
    return names, len(names) + (int(more[1].replace(",", "")) if more else 0)


def test_omitted_keys_are_counted_in_the_description() -> None:
    row = {f"key{number}": number for number in range(30)}
    text = "\n".join([json.dumps(row)] * 3)
    assert "more" in describe(text)
    assert confirmed(describe(text), text)


pieces = st.sampled_from(
    [
        '{"a": 1}',
        '{"b": [1]}',
        "[1, 2]",
        "{",
        "[",
        "]",
        "}",
        ",",
        "a,b",
        "1,2",
        "name;age",
        "x;y",
        "\n",
        "\n",
        "\n",
        "# T",
        "## S",
        "text",
        '"',
        "'",
        "null",
        " ",
        "\t",
        "<html>",
        "\ufeff",
        "\u00a0",
        "\x0c",
        "\u2028",
        "\r",
        '"b c"',
    ]
)


@settings(max_examples=500)
@given(st.lists(pieces, max_size=14).map("".join))
def test_the_described_format_is_what_its_parser_finds(text: str) -> None:
    assert confirmed(describe(text), text)


@given(
    st.lists(st.dictionaries(st.text("abc", min_size=1), st.integers(), min_size=1), min_size=2),
    st.integers(0, 40),
)
def test_truncated_json_is_not_described_as_json(rows: list[Any], cut: int) -> None:
    for text in (json.dumps(rows), "\n".join(map(json.dumps, rows))):
        assert confirmed(describe(text), text)
        shorter = text[: max(0, len(text) - cut)]
        assert confirmed(describe(shorter), shorter)


@pytest.mark.parametrize("separator", ["\t", ";", "|"])
def test_another_delimiter_is_named_as_a_reader_takes_it(separator: str) -> None:
    text = "name,age\nann,3\nbob,4\n".replace(",", separator)
    told = f"; looks like CSV with columns name, age (delimiter={separator!r})."
    assert describe(text).endswith(told)
    assert confirmed(told, text)


def test_a_byte_order_mark_is_part_of_the_first_name() -> None:
    text = "\ufeffname,age\nann,3\nbob,4\n"
    assert describe(text).endswith("; looks like CSV with columns \\ufeffname, age.")
    assert confirmed(describe(text), text)


def test_prose_with_commas_is_not_described_as_a_table() -> None:
    prose = "Dear Ann, hello there my old friend\nwe met, long ago\nand never, ever since\n"
    assert "columns" not in describe(prose)


def test_a_preview_is_shown_only_on_request() -> None:
    stored = store_context("héllo wörld")
    assert stored.preview(0) == ""
    assert stored.preview(5) == "héllo"


@pytest.mark.parametrize(
    "marker", ["[doc {:04}]", "=== Document {} ===", "<page {}>", "Chapter {}:", "### Letter {}:"]
)
def test_document_markers_are_described(marker: str) -> None:
    text = "\n".join(f"{marker.format(number)} some words\nand more" for number in range(5))
    assert f"documents begin with markers such as `{marker.format(0)}" in describe(text)
    assert "JSON" not in describe(text)


@pytest.mark.parametrize(
    "text",
    [
        "[doc 1] a\n[doc 2] b",
        "[doc 2] a\n[doc 1] b\n[doc 3] c",
        "[see 1, 2] a\n[see 3, 4] b\n[see 5, 6] c",
        "at 12:30 we met\nat 12:31 we left\nat 12:32 it rained",
    ],
)
def test_other_lines_are_no_markers(text: str) -> None:
    assert "markers" not in describe(text)


@given(st.text(st.sampled_from("[]doc 0123456789\n=-:<>#"), max_size=300))
def test_a_described_marker_occurs_in_the_text(text: str) -> None:
    named = re.search(r"markers such as `(.*)`", describe(text))
    assert named is None or named[1] in text
