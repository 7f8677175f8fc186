"""What separates the values of CSV files, where their headers are, and which rows are wrong."""

import csv
import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.data.csv_form import CsvForm, csv_form, csv_rows, wrong_row


def written(folder: Path, text: str | bytes) -> str:
    path = folder / "a.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "delimiter", "skip"),
    [
        ("id,name\n1,a\n", ",", 0),
        ("id;name;x\n1;a,b;c\n", ";", 0),
        ('"Name, first, last";age\n"Ann, A, B";31\n', ";", 0),
        ("Report of 2025\n\nid,name\n1,a\n2,b\n", ",", 2),
        ("id\tname\n1\ta\n", "\t", 0),
        ("one\n1\n2\n", ",", 0),
        ('"a\nb",c\n1,2\n', ",", 0),
        ("id,name\n1,a\nTotal,3,checked\n", ",", 0),
        ("", ",", 0),
    ],
)
def test_the_delimiter_and_skipped_lines_are_detected(
    tmp_path: Path, text: str, delimiter: str, skip: int
) -> None:
    assert csv_form(written(tmp_path, text), "csv") == CsvForm(delimiter, skip)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id,name\n" + "1,a\n" * 1_000 + "2,Smith, John\n", "line 1,002 has 3 columns"),
        ('id,name\n"1\n2",a\n3\n', "line 4 has 1 column, the header has 2"),
        ("Title\nid,name\n1,a,b\n2,c\n3,d\n", "line 3 has 3 columns, the header has 2"),
        (b"id,name\n1,caf\xe9\n", "not encoded in UTF-8"),
    ],
)
def test_a_malformed_row_is_reported_with_its_line(
    tmp_path: Path, text: str | bytes, words: str
) -> None:
    path = written(tmp_path, text)
    assert words in (wrong_row(path, csv_form(path, "csv")) or "")


values = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8)


@pytest.mark.parametrize(
    "rows",
    [
        [["", "", "", ";0"], ["", ";", "\x0c", ";"]],
        [["", "|", "\n|0"], ["", "", "|"]],
        [["a", "b;c\u2028d;e"], ["f", "g"]],
    ],
)
def test_delimiters_inside_values_are_not_mistaken_for_the_files(
    tmp_path: Path, rows: list[list[str]]
) -> None:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    assert csv_form(written(tmp_path, text.getvalue()), "csv") == CsvForm(",", 0)


@given(
    st.integers(2, 5).flatmap(
        lambda width: st.lists(st.lists(values, min_size=width, max_size=width), min_size=2)
    ),
    st.sampled_from(",;\t|"),
)
def test_generated_tables_are_detected_correctly(rows: list[list[str]], delimiter: str) -> None:
    """With every value in quotes, nothing in them can be mistaken."""
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows(rows)
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), text.getvalue())
        form = csv_form(path, "csv")
        assert form == CsvForm(delimiter, 0)
        assert [row for _, row in csv_rows(path, form)] == rows
        assert wrong_row(path, form) is None
