"""The strings of JSON are found as decoding would find them, in little memory."""

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm._util.limited import Stop, Unwanted
from rlm.context import json_strings
from rlm.context.json_strings import MAX_DEPTH, MAX_NAME_CHARS, strings_in

texts = st.text(max_size=20) | st.sampled_from(['"', "\\", "\\u00", "[,]{}:", "\ud83d", "😀" * 9])
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
values = st.recursive(
    leaves,
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(texts, inside, max_size=4),
    max_leaves=30,
)


def _decoded(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _decoded(each, f"{name}[{number}]")
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _decoded(each, f"{name}.{key}" if name else key)


@given(values, st.booleans(), st.sampled_from([None, 0, 3]), st.sampled_from([1, 2, 5, 64, 65_536]))
def test_strings_are_found_as_if_decoded(
    value: Any, only_ascii: bool, indent: int | None, part_chars: int
) -> None:
    text = json.dumps(value, ensure_ascii=only_ascii, indent=indent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_strings, "_PART_CHARS", part_chars)
        assert list(strings_in(text)) == list(_decoded(json.loads(text)))


@given(st.text('[]{},:"\\ua0 ', max_size=60))
def test_what_is_not_json_ends_with_a_result_or_a_value_error(text: str) -> None:
    try:
        found = list(strings_in(text))
    except ValueError:
        return
    assert len(found) <= len(text)


def test_long_strings_and_many_escapes_are_whole() -> None:
    value = {"long": "x" * 200_000, "pairs": "😀" * 20_000, "mixed": 'a\n"\\' * 30_000}
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert dict(strings_in(text)) == value


def test_values_without_strings_take_no_memory() -> None:
    text = "[" + "[]," * 300_000 + "[1, {}]]"
    tracemalloc.start()
    try:
        assert list(strings_in(text)) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20, "decoding takes 20 MB"


def test_a_key_that_an_object_has_twice_is_refused() -> None:
    """Cells see only the last value, so a quote of an earlier one would be false."""
    with pytest.raises(ValueError, match="'note' twice"):
        list(strings_in('{"note": "outdated", "n": 1, "note": "true"}'))
    assert len(list(strings_in('[{"note": "a"}, {"note": "b"}, {"note": {"note": "c"}}]'))) == 3


def test_strings_with_many_escapes_take_little_memory() -> None:
    text = json.dumps("ab\n" * 300_000)
    tracemalloc.start()
    try:
        assert [len(each) for _, each in strings_in(text)] == [900_000]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 << 20, "one object for each escape takes 17 MB"


def test_a_search_that_is_no_longer_wanted_ends() -> None:
    stop = Stop()
    stop.set()
    with pytest.raises(Unwanted):
        stop.run(lambda: list(strings_in("[1]")))


def test_long_names_are_cut_and_deep_nesting_is_refused() -> None:
    key = "k" * 100_000
    names = [name for name, _ in strings_in(json.dumps({key: {key: ["a", "b"]}}))]
    assert [len(name) for name in names] == [MAX_NAME_CHARS + 9] * 2
    assert names[0] != names[1], "a cut name still selects one text"
    deep = "[" * MAX_DEPTH + '"a"' + "]" * MAX_DEPTH
    assert [text for _, text in strings_in(deep)] == ["a"]
    with pytest.raises(ValueError, match="nested"):
        list(strings_in(f"[{deep}]"))
