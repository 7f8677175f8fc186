"""A text file reaches the REPL exactly, whatever its bytes are and however it is cut."""

import codecs
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rlm.context import describe, store_context
from rlm.data.filesystem import opening
from rlm.errors import ConfigError
from tests.context.helpers import seen_by_worker

TOKENS = [b"a", b"\r\n", b"\0", "é".encode(), "\U0001f600".encode(), codecs.BOM_UTF8, b"\xe2\x82"]
BROKEN = [b"\xf0\x9f", b"\xed\xa0\x80", b"\xff", b"\xc3", b"\x80", b"\xf4\x90"]
BYTES = st.one_of(
    st.binary(max_size=60),
    st.lists(st.sampled_from([*TOKENS, *BROKEN]), max_size=20).map(b"".join),
)
ANY_TEXT = st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("texts")


@given(BYTES, st.integers(1, 9))
@example(b"\xf0\x9f\x98", 1)
def test_bytes_decode_the_same_in_any_blocks(data: bytes, block: int) -> None:
    blocks = [data[at : at + block] for at in range(0, len(data), block)]
    assert "".join(opening.decoded(blocks, "utf-8")) == data.decode("utf-8", "surrogateescape")


@given(data=BYTES, chunk=st.integers(1, 9), read=st.integers(1, 9))
@example(data=b"\0\xff", chunk=1, read=1)
@example(data=b"\xff\xfea", chunk=2, read=1)
def test_a_text_file_is_read_exactly(folder: Path, data: bytes, chunk: int, read: int) -> None:
    path = folder / "some.txt"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "READ_BYTES", read)
        stored = store_context(path)
        seen = seen_by_worker(stored, chunk)
    if stored.kind == "bytes":
        assert seen == data
        assert opening.looks_binary(data)
    elif opening.encoding_of(data) == "utf-8":
        assert seen == data.decode("utf-8", "surrogateescape")
        assert stored.description == describe(seen)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@given(text=ANY_TEXT, chunk=st.integers(1, 9), read=st.integers(1, 9))
def test_a_byte_order_mark_determines_the_encoding(
    folder: Path, encoding: str, text: str, chunk: int, read: int
) -> None:
    path = folder / f"{encoding}.txt"
    data = f"\ufeff{text}".encode(encoding, "surrogatepass")
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "READ_BYTES", read)
        seen = seen_by_worker(store_context(path), chunk)
    if opening.encoding_of(data) == encoding:  # a NUL after a UTF-16 mark makes it a UTF-32 mark
        assert seen == data.decode(encoding, "surrogatepass")


@pytest.mark.parametrize("data", [b"\xff\xfea\0b", b"\0\0\xfe\xff\0\x11\0\0", b"\xfe\xff\0"])
def test_bytes_that_only_resemble_a_byte_order_mark_are_kept(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "odd.txt").write_bytes(data)
    stored = store_context(tmp_path / "odd.txt")
    assert seen_by_worker(stored, 1) == data.decode("utf-8", "surrogateescape")


def test_a_description_counts_all_and_samples_the_beginning(tmp_path: Path) -> None:
    text = "# one\n## two\n## three\n" + "é\U0001f600 line\n" * 100_000 + "the end"
    (tmp_path / "long.md").write_text(text, "utf-8", newline="")
    stored = store_context(tmp_path / "long.md")
    assert stored.description == describe(text)
    assert "looks like Markdown" in stored.description
    assert stored.preview(7) == "# one\n#"
    assert stored.preview(0) == ""
    assert stored.text() == text


def test_an_empty_file_is_an_empty_text_with_a_notice(tmp_path: Path) -> None:
    (tmp_path / "a.json").touch()
    stored = store_context(tmp_path / "a.json")
    assert (stored.kind, stored.size_bytes, seen_by_worker(stored)) == ("text", 0, "")
    assert [notice.split("/")[-1] for notice in stored.notices] == ["a.json is empty"]


def test_a_file_that_changes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("before", "utf-8")
    stored = store_context(path)
    path.write_text("after!", "utf-8")
    os.utime(path, ns=(1, 1))
    with pytest.raises(ConfigError, match=r"a\.txt changed after you passed it; ask again"):
        list(stored.chunks(3))
    path.unlink()
    with pytest.raises(ConfigError, match=r"no such file or folder: .*a\.txt"):
        list(stored.chunks(3))


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * (3 << 20))
    chunks = store_context(path).chunks(1 << 20)
    next(chunks)
    with path.open("ab") as handle:
        handle.write(b"more")
    with pytest.raises(ConfigError, match="changed"):
        list(chunks)


def test_nothing_is_loaded_before_all_files_are_checked_for_changes(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("text", "utf-8")
    stored = store_context(tmp_path)
    (tmp_path / "b.txt").unlink()
    with pytest.raises(ConfigError, match=r"b\.txt"):
        next(stored.chunks(1))


def test_the_hash_of_a_file_equals_that_of_the_same_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc", "utf-8")
    stored = store_context(tmp_path / "a.txt")
    assert stored.sha256 == store_context("abc").sha256
    assert stored.digest("q") == store_context("abc").digest("q")
