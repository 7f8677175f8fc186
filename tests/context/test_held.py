"""Values that callers hold are not copied: they are encoded while they are sent."""

import hashlib
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.context import StoredContext, parts, store_context
from rlm.errors import ConfigError
from tests.context.helpers import make_tree, seen_by_worker

ANY_TEXT = st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=20)
ANY_TEXTS = st.lists(ANY_TEXT, min_size=1) | st.dictionaries(ANY_TEXT, ANY_TEXT, min_size=1)
SIZE = 24 << 20
MAX_BYTES = 4 << 20


@pytest.fixture(params=[1, 3, 1 << 17])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "BLOCK_CHARS", request.param)


def documents_of(stored: StoredContext) -> list[tuple[str | None, str]] | None:
    found = stored.documents_in_order()
    return None if found is None else [(name, "".join(pieces)) for name, pieces in found]


def peak_of(value: Any) -> int:
    """The most memory that storing, counting, hashing and sending took, besides the value."""
    tracemalloc.start()
    try:
        stored = store_context(value)
        travelled = sum(len(chunk) for chunk in stored.chunks(1 << 17))
        assert travelled == stored.size_bytes > SIZE
        assert len(stored.sha256) == 64
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("letter", ["a", "é", "\U0001f600"])
def test_a_text_is_kept_in_memory_once(letter: str) -> None:
    text = (letter * 79 + "\n") * (SIZE // 80 + 1)
    assert peak_of(text) < MAX_BYTES
    assert store_context(text).text() is text


def test_texts_of_a_list_are_kept_in_memory_once() -> None:
    long = "long é " * (SIZE // 8)
    short = [f"a document of some length, number {number}" for number in range(1_000)]
    assert peak_of([*short, long, *short]) < MAX_BYTES
    assert peak_of({"long": long} | {text: text for text in short}) < MAX_BYTES


@given(ANY_TEXTS, st.integers(1, 9), st.integers(1, 30))
def test_texts_are_encoded_as_json_would_encode_them(value: Any, block: int, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "BLOCK_CHARS", block)
        stored = store_context(value)
        data = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
        assert stored.data == data
        assert (stored.kind, stored.size_bytes) == ("json", len(data))
        assert stored.sha256 == hashlib.sha256(data).hexdigest()
        assert seen_by_worker(stored, chunk) == value
        pairs = value.items() if isinstance(value, dict) else [(None, text) for text in value]
        assert documents_of(stored) == list(pairs)


@given(ANY_TEXT, st.integers(1, 9))
def test_size_and_hash_are_those_of_the_utf8_encoding(text: str, block: int) -> None:
    data = text.encode("utf-8", "surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "BLOCK_CHARS", block)
        stored = store_context(text)
        assert (stored.size_bytes, stored.data) == (len(data), data)
        assert stored.sha256 == hashlib.sha256(data).hexdigest()
        assert documents_of(stored) == [(None, text)]


def test_later_changes_by_the_caller_have_no_effect() -> None:
    texts = ["one", "two"]
    named = {"a": "one", "b": "two"}
    stored, stored_named = store_context(texts), store_context(named)
    texts[0] = "changed"
    texts.append("three")
    named["a"] = "changed"
    del named["b"]
    assert seen_by_worker(stored) == ["one", "two"]
    assert seen_by_worker(stored_named) == {"a": "one", "b": "two"}
    assert documents_of(stored_named) == [("a", "one"), ("b", "two")]


def test_a_subclass_of_str_is_converted() -> None:
    class Loud(str):
        __slots__ = ()

        def __getitem__(self, key: Any) -> str:
            return "LOUD"

        def encode(self, *_: Any, **__: Any) -> bytes:
            return b"LOUD"

        def __iter__(self) -> Iterator[str]:
            return iter("LOUD")

    stored = store_context(Loud("quiet"))
    assert type(stored.text()) is str
    assert seen_by_worker(stored, 2) == stored.text() == "quiet"
    assert documents_of(store_context([Loud("quiet")])) is None
    assert documents_of(store_context({Loud("quiet"): "a"})) is None


@pytest.mark.parametrize("value", [[], {}, ["a", 1], [["a"]], {"a": 1}, {1: "a"}, b"abc", [None]])
def test_only_texts_have_documents(value: Any) -> None:
    assert documents_of(store_context(value)) is None


@pytest.mark.usefixtures("block")
def test_files_are_documents_read_one_at_a_time(tmp_path: Path) -> None:
    tree: dict[str, str | bytes] = {"a.txt": 'one\n"é"', "b/c.txt": b"\xff", "d": "", "e.json": "{"}
    stored = store_context(make_tree(tmp_path, tree))
    texts = [("a.txt", 'one\n"é"'), ("b/c.txt", "\udcff"), ("d", ""), ("e.json", "{")]
    assert documents_of(stored) == texts
    assert documents_of(stored) == texts  # and again, for the next session
    assert seen_by_worker(stored, 5) == dict(texts)
    assert documents_of(store_context(tmp_path / "a.txt")) is None


def test_documents_of_changed_files_are_refused(tmp_path: Path) -> None:
    stored = store_context(make_tree(tmp_path, {"a.txt": "one", "b.txt": "two"}))
    documents = stored.documents_in_order()
    assert documents is not None
    (tmp_path / "b.txt").write_text("changed", "utf-8")
    with pytest.raises(ConfigError, match=r"b\.txt changed after you passed it"):
        next(documents)
