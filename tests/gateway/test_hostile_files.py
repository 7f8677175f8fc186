"""Files that are no files, that are too large, or that change while they are read."""

import asyncio
import json
import os
import threading
import tracemalloc
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from rlm.errors import ModelError
from rlm.gateway.callers import Sampling
from rlm.gateway.errors import Refused
from rlm.gateway.files import BLOCK_BYTES, LineIndex
from rlm.messages import Reply, Request
from tests.gateway.recipes import Recipe

ME = "ada"
SECRET = "outside of the root"


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "repo").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text(SECRET)
    return Recipe(tmp_path, options={"search_seconds": 20.0})


@pytest.mark.parametrize("size", [128 << 20, pytest.param(2 << 30, marks=pytest.mark.heavy)])
async def test_the_end_of_a_huge_file_can_be_read_but_searches_skip_it(
    recipe: Recipe, size: int
) -> None:
    huge = recipe.root / "huge.log"
    with huge.open("wb") as file:
        file.write(b"first line\n")
        file.truncate(size)
        file.seek(size - 10)
        file.write(b"\nlast one\n")
    binary = recipe.root / "zeros"
    with binary.open("wb") as file:
        file.truncate(size)
    (recipe.root / "small.txt").write_text("last one\n")
    gateway = recipe.gateway()
    try:
        session = gateway.create_session(ME)["session"]
        listed = (await gateway.list_files(ME, session))["files"]
        assert [file["bytes"] for file in listed] == [size, 9, size]
        handle = listed[0]["handle"]
        opened = await gateway.open(ME, session, "huge.log")
        assert opened["lines"] == 3
        span = await gateway.read(ME, session, handle, start_line=3)
        assert (span["text"], span["start_line"], span["next_cursor"]) == ("last one\n", 3, None)
        with pytest.raises(Refused, match="not text"):
            await gateway.read(ME, session, handle, start_line=1)
        with pytest.raises(Refused, match="none of these files"):
            await gateway.execute(ME, session, "1", [handle])
        found = await gateway.search(ME, session, "last one")
        assert [hit["name"] for hit in found["hits"]] == ["small.txt"]
    finally:
        await gateway.close()


async def test_pipes_devices_and_sockets_are_refused_without_being_opened(recipe: Recipe) -> None:
    os.mkfifo(recipe.root / "pipe")
    (recipe.root / "null").symlink_to("/dev/null")
    (recipe.root / "zero").symlink_to("/dev/zero")
    gateway = recipe.gateway()
    try:
        session = gateway.create_session(ME)["session"]
        for name in ("pipe", "null", "zero", "."):
            with pytest.raises(Refused):
                await gateway.open(ME, session, name)
        assert (await gateway.list_files(ME, session))["files"] == []
        assert (await gateway.search(ME, session, ".", "regex"))["hits"] == []
    finally:
        await gateway.close()


async def test_files_with_odd_names_can_be_used(recipe: Recipe) -> None:
    names = [b"\xff\xfe.txt", b"new\nline.txt", b" .txt", "é".encode(), "e\u0301".encode(), b"-rf"]
    for name in names:
        (recipe.root / os.fsdecode(name)).write_text("word here\n")
    recipe.script = ["```repl\nFINAL(str(len(context)))\n```"]
    gateway = recipe.gateway()
    try:
        session = gateway.create_session(ME)["session"]
        files: list[Any] = []
        cursor = None
        while not files or cursor is not None:
            page = await gateway.list_files(ME, session, limit=1, cursor=cursor)
            files, cursor = files + page["files"], page["next_cursor"]
        assert len(files) == len(names)
        json.dumps(files, ensure_ascii=False).encode()  # what can be sent
        handles = [file["handle"] for file in files]
        for handle in handles:
            assert (await gateway.read(ME, session, handle))["text"] == "word here\n"
        for chosen in (None, handles):
            found = await gateway.search(ME, session, "word", "regex", handles=chosen)
            assert [hit["handle"] for hit in found["hits"]] == handles
        done = await gateway.execute(ME, session, "print(len(files))", handles)
        assert done["output"] == f"{len(names)}\n"
        run = await gateway.complete(ME, session, "?", handles=handles, caller=_Nobody())
        assert isinstance(run, dict)
        assert run["answer"] == str(len(names))
    finally:
        await gateway.close()


class _Nobody:
    """A caller that lends no model and wants no progress."""

    sampling: Sampling = "none"
    state: str | None = None
    replies: Mapping[str, Reply | ModelError] = MappingProxyType({})

    async def progress(self, number: int, message: str) -> None:
        pass

    async def sample(self, request: Request) -> Reply:
        raise AssertionError


async def test_a_file_that_grows_or_disappears_is_reported(recipe: Recipe) -> None:
    path = recipe.root / "log.txt"
    path.write_text("one\n")
    gateway = recipe.gateway()
    try:
        session = gateway.create_session(ME)["session"]
        first = await gateway.open(ME, session, "log.txt")
        with path.open("a") as file:
            file.write("two\n")
        span = await gateway.read(ME, session, first["handle"], start_line=2)
        assert (span["text"], span["version"] == first["version"]) == ("two\n", False)
        path.write_text("")
        empty = await gateway.read(ME, session, first["handle"])
        assert (empty["text"], empty["next_cursor"]) == ("", None)
        path.unlink()
        with pytest.raises(Refused, match="no such file"):
            await gateway.read(ME, session, first["handle"])
        with pytest.raises(Refused, match="none of these files"):
            await gateway.execute(ME, session, "1", [first["handle"]])
    finally:
        await gateway.close()


async def test_a_file_that_keeps_changing_is_read_consistently(recipe: Recipe) -> None:
    path = recipe.root / "busy.txt"
    path.write_text("x\n" * 1_000)

    def change() -> None:
        path.write_text("")
        with path.open("a") as file:
            for _ in range(50):
                file.write("x\n" * 50)
                file.flush()
        path.unlink()
        path.write_text("x\n" * 1_000)

    gateway = recipe.gateway()
    try:
        session = gateway.create_session(ME)["session"]
        handle = (await gateway.open(ME, session, "busy.txt"))["handle"]
        seen = 0
        with _again_and_again(change):
            for number in range(300):
                try:
                    line = 1 + number % 400
                    span = await gateway.read(ME, session, handle, start_line=line)
                except Refused:
                    continue
                seen += 1
                assert set(span["text"]) <= {"x", "\n"}
                assert span["end_line"] - span["start_line"] < 200
        assert seen
    finally:
        await gateway.close()


async def test_swapping_symbolic_links_never_reveals_files_outside(recipe: Recipe) -> None:
    folder, spare = recipe.root / "folder", recipe.root / "spare"
    folder.mkdir()
    spare.mkdir()
    for each in (folder, spare):
        (each / "secret.txt").write_text("inside")
    outside = recipe.folder / "outside"
    swap = recipe.root / "swap"

    def exchange() -> None:
        """Swap a folder and a file for links to outside, and back."""
        swap.symlink_to(outside)
        folder.rename(recipe.root / "away")
        swap.rename(folder)
        folder.unlink()
        (recipe.root / "away").rename(folder)
        (spare / "secret.txt").unlink()
        (spare / "secret.txt").symlink_to(outside / "secret.txt")
        (spare / "secret.txt").unlink()
        (spare / "secret.txt").write_text("inside")

    gateway = recipe.gateway()
    try:
        session = gateway.create_session(ME)["session"]
        handles = [
            (await gateway.open(ME, session, f"{name}/secret.txt"))["handle"]
            for name in ("folder", "spare")
        ]
        told: list[Any] = []
        with _again_and_again(exchange):
            for number in range(400):
                asking = (
                    gateway.read(ME, session, handles[number % 2]),
                    gateway.open(ME, session, "folder/secret.txt"),
                    gateway.list_files(ME, session),
                )
                told += await asyncio.gather(*asking, return_exceptions=True)
            for _ in range(10):
                looking = (
                    gateway.search(ME, session, "inside|outside", "regex"),
                    gateway.execute(ME, session, "print(files)", handles),
                )
                told += await asyncio.gather(*looking, return_exceptions=True)
        assert SECRET not in repr(told)
        assert {type(each) for each in told} <= {dict, Refused}
        assert any("inside" in repr(each) for each in told)
    finally:
        await gateway.close()


@contextmanager
def _again_and_again(change: Any) -> Generator[None, None, None]:
    """Another thread does it in a loop, as fast as it can."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            change()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_threads_that_index_the_same_lines_agree(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"x\n" * (8 * BLOCK_BYTES // 2))
    for _ in range(5):
        index = LineIndex(path.stat().st_size)
        fd = os.open(path, os.O_RDONLY)
        try:
            with ThreadPoolExecutor(8) as pool:
                counts = set(pool.map(index.count, [fd] * 8))
        finally:
            os.close(fd)
        assert counts == {8 * BLOCK_BYTES // 2}


@pytest.mark.heavy
async def test_listing_and_searching_100000_files_needs_little_memory(
    recipe: Recipe,
) -> None:
    for number in range(100):
        folder = recipe.root / f"{number:03}"
        folder.mkdir()
        for other in range(1_000):
            (folder / f"{other:04}.txt").write_bytes(b"nothing here\n")
    (recipe.root / "050" / "0500.txt").write_text("the needle\n")
    flat = recipe.root / "flat"
    flat.mkdir()
    recipe.options = {"search_seconds": 120.0}
    recipe.ceilings = {"calls": 10_000}
    gateway = recipe.gateway()
    try:
        session = gateway.create_session(ME)["session"]
        tracemalloc.start()
        names: set[str] = set()
        cursor, pages = None, 0
        while pages == 0 or cursor is not None:
            page = await gateway.list_files(ME, session, cursor=cursor, limit=200)
            names.update(file["name"] for file in page["files"])
            cursor, pages = page["next_cursor"], pages + 1
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (len(names), pages) == (100_000, 500)
        assert most < 150_000_000  # names, and a handle for each
        found = await gateway.search(ME, session, "needle")
        assert [hit["name"] for hit in found["hits"]] == ["050/0500.txt"]
    finally:
        await gateway.close()
