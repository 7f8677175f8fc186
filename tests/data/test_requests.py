"""Requests of cells and words of queries, as untrusted input."""

import contextlib
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.data.answers import answered
from rlm.data.requests import quoted, read_request
from rlm.data.results import error_answer, error_in, plain, rows_answer
from rlm.data.source import DataRefused, QueryLimits
from rlm.data.sql_words import check_words, names_in

TABLES: list[dict[str, Any]] = [{"name": "t", "reference": '"t"', "columns": ["a", 'b"c']}]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["query", "parameters", "table", "columns", "start", "count"])


@given(st.text(max_size=20) | st.sampled_from(["sql", "rows"]), st.dictionaries(KEYS, JSON))
def test_any_request_is_parsed_or_refused(method: str, arguments: dict[str, Any]) -> None:
    with contextlib.suppress(DataRefused):
        sql, parameters = read_request(method, arguments, TABLES, QueryLimits())
        assert isinstance(sql, str)
        assert all(each is None or isinstance(each, str | int | float) for each in parameters)


@pytest.mark.parametrize(
    ("arguments", "sql"),
    [
        ({"table": "t"}, 'select * from "t" limit 10000 offset 0'),
        ({"table": "t", "start": 5, "count": 2}, 'select * from "t" limit 2 offset 5'),
        ({"table": "t", "columns": ['b"c']}, 'select "b""c" from "t" limit 10000 offset 0'),
        ({"table": "t", "columns": ["a; drop"]}, None),
        ({"table": 'x" ; drop'}, None),
        ({"table": "t", "start": -1}, None),
        ({"table": "t", "start": "0"}, None),
        ({"table": "t", "count": True}, None),
    ],
)
def test_rows_are_requested_by_known_table_names(
    arguments: dict[str, Any], sql: str | None
) -> None:
    if sql is None:
        with pytest.raises(DataRefused):
            read_request("rows", arguments, TABLES, QueryLimits())
    else:
        assert read_request("rows", arguments, TABLES, QueryLimits()) == (sql, [])


# -- words ----------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        "select",
        "'",
        '"',
        "$$",
        "$a$",
        "/*",
        "*/",
        "--",
        "\n",
        ".",
        " ",
        "\\",
        "U&",
        "E'",
        "x",
        "1",
        "é",
    ]
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_any_query_is_tokenized_or_refused(query: str) -> None:
    with contextlib.suppress(DataRefused):
        for name, _ in names_in(query):
            assert name


@given(
    st.sampled_from(["pg_sleep", "lo_import", "dblink_exec", "set_config", "query_to_xml"]),
    st.sampled_from(["{}(1)", '"{}"(1)', "{}/* */(1)", "{}--x\n(1)", "1+{}(1)", "x.{} (1)"]),
    st.sampled_from(["", "'it''s' ||", "$$'$$ ||", "E'\\'' ||", '"a""b" +', "/* ' */", "-- '\n"]),
)
def test_a_forbidden_function_is_found_in_every_position(name: str, form: str, before: str) -> None:
    with pytest.raises(DataRefused):
        check_words(f"select {before} {form.format(name)}", ["public"], ["public", "x"])


@pytest.mark.parametrize("query", ["select $a$ x", "".join(f"$a{n}$ " for n in range(100_000))])
def test_an_open_dollar_quote_is_refused_at_once(query: str) -> None:
    """Each one that goes on would be searched for its end, in quadratic time."""
    with pytest.raises(DataRefused, match=r"ambiguous '\$a"):
        list(names_in(query))
    assert list(names_in("select $a$ $b$ $a$, a$b$, $1")) == [("select", False), ("a$b$", False)]


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_a_quoted_name_is_one_name(name: str) -> None:
    assert list(names_in(f"select {quoted(name)}.x")) == [
        ("select", False),
        (name, True),
        ("x", False),
    ]


# -- answers --------------------------------------------------------------------------------------


@given(st.lists(st.lists(JSON, min_size=1, max_size=1), max_size=30), st.integers(1, 20))
def test_answers_stay_within_their_limits(rows: list[Any], most: int) -> None:
    left = list(rows)

    def fetch(count: int) -> list[Any]:
        found, left[:] = left[:count], left[count:]
        return found

    answer = rows_answer(["a"], [""], fetch, most, 1 << 20)
    assert error_in(answer) is None
    assert answer.startswith('{"columns": ["a"]')
    assert ('"is_cut": true' in answer.partition('"rows"')[0]) == (len(rows) > most)


@given(st.text())
def test_an_error_is_shortened_to_one_line(words: str) -> None:
    found = error_in(error_answer(words))
    assert found == " ".join(words.split())[:600] + (
        "…" if len(" ".join(words.split())) > 600 else ""
    )


def test_deeply_nested_values_can_be_converted() -> None:
    value: Any = "x"
    for _ in range(500):
        value = [value]
    plain(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "NaN", "Infinity"])
def test_rows_are_counted_whatever_they_contain(value: object) -> None:
    answer = json.dumps({"columns": ["a"], "rows": [[value], [1]], "is_cut": False})
    assert answered("sql", {}, answer).returned == 2
