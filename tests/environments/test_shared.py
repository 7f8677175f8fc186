"""The host's side of shared contexts: written once, in the narrowest form, and sealed."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rlm.context import store_context
from rlm.environments import _shared
from rlm.environments._shared import shared_context, worth_sharing
from rlm.errors import ConfigError, SessionError
from rlm.worker import shared

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="shared pages are for Linux")

CHARACTERS = st.sampled_from("aB \n\0é\xff\u0100中\ufeff\ud83d\ude00\udc80😀\U0010ffff")
ANY_TEXT = st.text(CHARACTERS | st.characters(codec=None, exclude_categories=()), max_size=40)
MAX_BYTES = 8 << 20


class Source:
    """A context whose bytes are split where a test chooses."""

    def __init__(self, kind: Literal["text", "json", "bytes"], chunks: list[bytes]) -> None:
        self.kind: Literal["text", "json", "bytes"] = kind
        self.size_bytes = sum(map(len, chunks))
        self.asked = 0
        self._chunks = chunks

    def chunks(self, chunk_bytes: int) -> Iterator[bytes]:
        self.asked += 1
        yield from self._chunks


class DocumentsSource(Source):
    """The same, which also offers its texts in pieces."""

    def __init__(self, documents: list[tuple[str | None, list[str]]]) -> None:
        super().__init__("json", [])
        self._documents = documents

    def documents_in_order(self) -> Iterator[tuple[str | None, Iterator[str]]]:
        return ((name, iter(pieces)) for name, pieces in self._documents)


@st.composite
def cut(draw: st.DrawFn, data: bytes) -> list[bytes]:
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def seen(source: Source) -> Any:
    """What a worker makes of it, both ways."""
    context = shared_context(source)
    copied = shared.value_of(context.fd, context.layout, zero_copy=False)
    assert shared.value_of(context.fd, context.layout) == copied
    return copied


def open_files() -> set[str]:
    return {each.name for each in Path("/proc/self/fd").iterdir()}


def narrowest(text: str) -> str:
    most = max(map(ord, text), default=0)
    return next(form for form, end in FORMS if most < end)


FORMS = (("ascii", 0x80), ("latin-1", 0x100), ("ucs-2", 0x10000), ("ucs-4", 0x110000))


@pytest.fixture(params=[16, 1 << 17])
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Blocks so small that widening takes many of them, and the usual ones."""
    monkeypatch.setattr(_shared, "_BLOCK_BYTES", request.param)
    size: int = request.param
    return size


# -- what is written ----------------------------------------------------------------------------


@pytest.mark.parametrize("block", [16, 1 << 17])
@given(text=ANY_TEXT, data=st.data())
def test_text_arrives_however_it_is_split(block: int, text: str, data: st.DataObject) -> None:
    chunks = data.draw(cut(text.encode("utf-8", "surrogatepass")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_shared, "_BLOCK_BYTES", block)
        source = Source("text", chunks)
        assert seen(source) == text
    layout = shared_context(source).layout
    assert layout == {"kind": "text", "form": narrowest(text), "chars": len(text)}


@pytest.mark.parametrize("block", [16, 1 << 17])
@given(documents=st.lists(st.lists(ANY_TEXT, max_size=4), min_size=1, max_size=5))
@example(documents=[["", "a", "", "b"], ["", "é", ""], [], ["a" * 30, "😀"], ["中" * 30, "😀"]])
@example(documents=[["\ud83d\ude00" * 20, "😀"], ["a", "\ud83d", "\ude00"]])
def test_documents_arrive_however_they_are_split(block: int, documents: list[list[str]]) -> None:
    texts = ["".join(pieces) for pieces in documents]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_shared, "_BLOCK_BYTES", block)
        assert seen(DocumentsSource([(None, pieces) for pieces in documents])) == texts
        named = {f"n{at}": pieces for at, pieces in enumerate(documents)}
        assert seen(DocumentsSource(list(named.items()))) == dict(zip(named, texts, strict=True))


@pytest.mark.parametrize("before", ["", "a" * 999, "é" * 999, "中" * 999, "\ud83d\ude00" * 500])
@pytest.mark.parametrize("after", ["é", "中", "\ud83d\ude00", "😀"])
@pytest.mark.parametrize("end", ["", "a" * 50, "😀" * 50])
@pytest.mark.usefixtures("block_bytes")
def test_text_is_widened_in_place(before: str, after: str, end: str) -> None:
    pieces = [piece.encode("utf-8", "surrogatepass") for piece in (before, after, end)]
    source = Source("text", pieces)
    text = before + after + end
    assert seen(source) == text
    assert shared_context(source).layout["form"] == narrowest(text)


@given(st.binary(max_size=40), st.data())
def test_bytes_arrive_however_they_are_split(value: bytes, data: st.DataObject) -> None:
    assert seen(Source("bytes", data.draw(cut(value)))) == value


def test_json_is_built_from_shared_text() -> None:
    source = Source("json", [b'{"a": [1, "', "é".encode()[:1], "é".encode()[1:], b'"]}'])
    assert seen(source) == {"a": [1, "é"]}
    assert shared_context(source).layout == {"kind": "json", "form": "latin-1", "chars": 15}


def test_every_kind_of_stored_context_can_be_shared(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one é", "utf-8")
    (tmp_path / "b.txt").write_bytes(b"two \xff" + "😀".encode())
    folder: dict[str, str] = {"a.txt": "one é", "b.txt": "two \udcff😀"}
    values: list[tuple[Any, str, Any]] = [
        ("text 😀", "text", "text 😀"),
        (b"bytes", "bytes", b"bytes"),
        (["a", "bc", "é"], "texts", ["a", "bc", "é"]),
        (("ab", "cd"), "texts", ["ab", "cd"]),
        ({"k": "v\ud800"}, "texts", {"k": "v\ud800"}),
        (["a", 1], "json", ["a", 1]),
        ({"k": None}, "json", {"k": None}),
        ([], "json", []),
        ({}, "json", {}),
        (tmp_path / "a.txt", "text", "one é"),
        (tmp_path / "b.txt", "text", "two \udcff😀"),
        (tmp_path, "texts", folder),
    ]
    for value, kind, expected in values:
        source = store_context(value)
        context = shared_context(source)
        assert context.layout["kind"] == kind
        made = shared.value_of(context.fd, context.layout)
        assert made == expected
        assert type(made) is type(expected)
        assert list(made) == list(expected)


def test_a_file_that_changed_is_refused_and_leaves_nothing_open(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("text", "utf-8")
    source = store_context(tmp_path)
    (tmp_path / "b.txt").write_text("more text", "utf-8")
    before = open_files()
    with pytest.raises(ConfigError, match=r"b\.txt changed after you passed it"):
        shared_context(source)
    assert open_files() == before


@pytest.mark.parametrize("end", ["", "é", "中", "😀"])
def test_sharing_needs_little_memory_besides_the_file(end: str) -> None:
    source = store_context("some text and more of it\n" * 1_000_000 + end)
    tracemalloc.start()
    try:
        context = shared_context(source)
        assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
    finally:
        tracemalloc.stop()
    assert context.size_bytes > 25_000_000


# -- sealed ---------------------------------------------------------------------------------------


def test_the_shared_file_is_read_only() -> None:
    source = store_context("x" * 100_000)
    fd = shared_context(source).fd
    for change in (
        lambda: os.pwrite(fd, b"y", 0),
        lambda: os.ftruncate(fd, 10),
        lambda: os.ftruncate(fd, 1 << 20),
        lambda: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW),
    ):
        with pytest.raises(PermissionError):
            change()
    assert not os.get_inheritable(fd)


# -- once for all sessions --------------------------------------------------------------------


def test_a_source_is_written_once_even_by_concurrent_threads() -> None:
    source = Source("text", [b"some text"] * 1_000)
    barrier = threading.Barrier(8)
    contexts = []

    def ask() -> None:
        barrier.wait()
        contexts.append(shared_context(source))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert source.asked == 1
    assert len(set(map(id, contexts))) == 1
    other = Source("text", [b"some text"] * 1_000)
    assert shared_context(other).fd != contexts[0].fd


def test_the_file_is_closed_with_its_source() -> None:
    source = Source("text", [b"some text"])
    fd = shared_context(source).fd
    assert os.fstat(fd).st_size == 10
    key = id(source)
    del source
    gc.collect()
    assert key not in _shared._entries
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_source_that_fails_may_succeed_later() -> None:
    class Vanishing(Source):
        def chunks(self, chunk_bytes: int) -> Iterator[bytes]:
            yield b"some "
            if self.asked == 0:
                self.asked += 1
                raise OSError("it vanished")
            yield b"text"

    source = Vanishing("text", [])
    before = open_files()
    with pytest.raises(OSError, match="it vanished"):
        shared_context(source)
    assert open_files() == before
    assert seen(source) == "some text"


@pytest.mark.parametrize("function", ["pwrite", "memfd_create"])
def test_a_full_shared_memory_is_explained(monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    source = Source("text", [b"some text"])
    before = open_files()
    with monkeypatch.context() as patch:
        patch.setattr(os, function, refuse)
        with pytest.raises(SessionError, match=r"not enough shared memory .*\(No space left on"):
            shared_context(source)
    assert open_files() == before


def test_a_lack_of_memory_is_explained() -> None:
    class Greedy(Source):
        def chunks(self, chunk_bytes: int) -> Iterator[bytes]:
            raise MemoryError
            yield b""

    with pytest.raises(SessionError, match=r"not enough memory .* 3 bytes; free some"):
        shared_context(Greedy("text", [b"abc"]))


# -- small contexts ---------------------------------------------------------------------------


def test_small_contexts_are_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not worth_sharing(store_context("x" * 1_000))
    large = store_context("x" * 100_000)
    assert worth_sharing(large)
    monkeypatch.delattr(os, "memfd_create")
    assert not worth_sharing(large)


def test_a_source_without_weak_references_is_not_shared() -> None:
    class Slotted:
        __slots__ = ("kind", "size_bytes")

        def __init__(self) -> None:
            self.kind: Literal["text", "json", "bytes"] = "text"
            self.size_bytes = 1 << 20

        def chunks(self, chunk_bytes: int) -> Iterator[bytes]:
            yield b"x" * self.size_bytes

    assert not worth_sharing(Slotted())
