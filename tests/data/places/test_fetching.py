"""Fetching from a store that misbehaves: limits, changes, failures, cancelling."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

import rlm
from rlm import RLM, ConfigError, FetchLimits, ScriptedClient
from rlm._util.limited import Unwanted, in_thread
from rlm.context import store_context
from rlm.data.places import Fetched, Fetching, Place, fetch, place
from rlm.data.places.stores import Changed, Entry


class FakeStore:
    """A store in memory. `before` is called with the name of each object that is read."""

    def __init__(self, objects: dict[str, bytes], *, resumes: bool = True) -> None:
        self.objects = objects
        self.resumes = resumes
        self.versions = dict.fromkeys(objects, 1)
        self.before: Callable[[str], object] = lambda _: None
        self.reads: list[tuple[str, int]] = []
        self.listings = 0
        self.closed = 0

    async def find(self) -> list[Entry]:
        self.listings += 1
        return [
            Entry(f"b/{name}", name, len(data), str(self.versions[name]))
            for name, data in self.objects.items()
        ]

    async def find_again(self) -> list[Entry] | None:
        return await self.find()

    async def blocks(self, entry: Entry, start: int) -> AsyncIterator[bytes]:
        self.reads.append((entry.name, start))
        self.before(entry.name)
        if entry.name not in self.objects:
            raise FileNotFoundError(entry.name)
        data = self.objects[entry.name]
        for at in range(start, len(data), 4):
            yield data[at : at + 4]
            await asyncio.sleep(0)
            self.before(f"{entry.name}+")

    async def close(self) -> None:
        self.closed += 1

    def change(self, name: str, data: bytes) -> None:
        self.objects[name] = data
        self.versions[name] += 1


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FakeStore:
    made = FakeStore({"a.log": b"first log", "d/b.log": b"second log"})
    monkeypatch.setattr("rlm.data.places.fetching.open_store", lambda _: made)
    return made


PLACE = place("s3://b/logs/")


def texts(fetched: Fetched) -> dict[str, str]:
    return {name: (fetched.folder / name).read_text() for name in fetched.names}


def test_unchanged_objects_are_not_fetched_again(store: FakeStore) -> None:
    told: list[Fetching] = []
    first = fetch(PLACE, told.append)
    assert texts(first) == {"a.log": "first log", "d/b.log": "second log"}
    assert (told[-1].found_files, told[-1].bytes, told[-1].reused_files) == (2, 19, 0)
    assert (sorted(store.reads), store.listings, store.closed) == (
        [("a.log", 0), ("d/b.log", 0)],
        2,
        1,
    )
    store.change("a.log", b"changed")
    second = fetch(PLACE, told.append)
    assert texts(second) == {"a.log": "changed", "d/b.log": "second log"}
    assert (len(store.reads), told[-1].reused_files) == (3, 1)
    assert texts(first)["a.log"] == "first log"  # A run that reads it is not disturbed.


def test_an_object_that_keeps_changing_is_an_error(store: FakeStore) -> None:
    def change(name: str) -> None:
        if name == "a.log+":
            store.change("a.log", b"y" * 9)

    store.before = change
    with pytest.raises(ConfigError) as raised:
        fetch(PLACE)
    assert str(raised.value) == (
        "1 object of s3://b/logs/ changed while being read, such as a.log; "
        "ask again when nothing is writing there, or choose a copy"
    )
    store.before = lambda _: None
    assert texts(fetch(PLACE))["a.log"] == "y" * 9  # Nothing of the mixture was kept.


def test_an_object_that_changes_once_is_read_again(store: FakeStore) -> None:
    changed: list[str] = []

    def change(name: str) -> None:
        if name == "a.log+" and not changed:
            changed.append(name)
            store.change("a.log", b"longer than it was")

    store.before = change
    assert texts(fetch(PLACE))["a.log"] == "longer than it was"
    assert [name for name, _ in store.reads].count("a.log") == 2


def test_changes_reported_by_the_store_are_retried(
    store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none() -> None: ...

    def check(name: str) -> None:
        if name == "a.log" and len(store.reads) < 3:
            raise Changed(name)

    monkeypatch.setattr(store, "find_again", none)
    store.before = check
    assert texts(fetch(PLACE))["a.log"] == "first log"
    assert store.listings == 2


def test_a_missing_object_is_named(store: FakeStore) -> None:
    store.before = lambda name: store.objects.pop("a.log", None) if name == "a.log" else None
    found = fetch(PLACE)
    told = "1 object of s3://b/logs/ could be listed but not read, such as a.log"
    assert (found.names, found.remarks) == (("d/b.log",), (told,))
    assert told in store_context(found).warnings


@pytest.mark.parametrize("resumes", [True, False])
def test_a_temporary_failure_is_retried_from_where_it_stopped(
    store: FakeStore, resumes: bool
) -> None:
    failures = [ConnectionResetError(), TimeoutError()]

    def fail(name: str) -> None:
        if name == "d/b.log+" and failures:
            raise failures.pop()

    store.resumes, store.before = resumes, fail
    assert texts(fetch(PLACE))["d/b.log"] == "second log"
    assert [at for name, at in store.reads if name == "d/b.log"] == (
        [0, 4, 8] if resumes else [0] * 3
    )


def test_permanent_failures_are_not_retried(store: FakeStore) -> None:
    def fail(name: str) -> None:
        if name == "a.log":
            raise PermissionError("no")

    store.before = fail
    with pytest.raises(ConfigError, match="no permission to read s3://b/logs/: ask for it"):
        fetch(PLACE)
    assert [name for name, _ in store.reads].count("a.log") == 1


def test_a_store_that_fails_halfway_says_so(store: FakeStore) -> None:
    def fail(name: str) -> None:
        if name == "d/b.log+":
            raise ConnectionResetError("reset by peer")

    store.before, store.resumes = fail, False
    with pytest.raises(ConfigError) as raised:
        fetch(PLACE)
    assert str(raised.value) == (
        "s3://b/logs/ can't be reached (reset by peer); check the network and the address"
    )
    assert [name for name, _ in store.reads].count("d/b.log") == 4
    store.before = lambda _: None
    reads = len(store.reads)
    assert len(fetch(PLACE).names) == 2
    assert len(store.reads) == reads + 2


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (FetchLimits(bytes=18), "s3://b/logs/ has at least 0.0 MB, and at most 0.0 MB are fetched"),
        (FetchLimits(files=1), "s3://b/logs/ has more than 1 files; choose fewer with a longer"),
    ],
)
def test_too_much_data_is_refused_before_fetching(
    store: FakeStore, limits: FetchLimits, told: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        fetch(place("s3://b/logs/", limits=limits))
    assert told in str(raised.value)
    assert store.reads == []


def test_a_full_disk_is_noticed_before_fetching(
    store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlm.data.places.storing.FetchedFiles.free_bytes", lambda _: 3)
    with pytest.raises(
        ConfigError, match="has room for 0 MB; set XDG_CACHE_HOME to a folder on a larger disk"
    ):
        fetch(PLACE)
    assert store.reads == []


def test_objects_of_unknown_size_are_limited(
    store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find() -> list[Entry]:
        return [Entry("b/a.log", "a.log", None, None)]

    monkeypatch.setattr(store, "find", find)
    with pytest.raises(ConfigError, match=r"at most 0\.0 MB are fetched"):
        fetch(place("s3://b/logs/", limits=FetchLimits(bytes=8)))
    assert texts(fetch(PLACE)) == {"a.log": "first log"}


def test_an_empty_place_is_an_error(store: FakeStore) -> None:
    store.objects.clear()
    with pytest.raises(ConfigError, match="nothing found at s3://b/logs/; check the address and"):
        fetch(PLACE)


def hang(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, list[str]]:
    begun, ended = threading.Event(), []

    async def find() -> list[Entry]:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return []

    monkeypatch.setattr(store, "find", find)
    return begun, ended


def test_fetching_has_a_time_limit(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    _, ended = hang(store, monkeypatch)
    with pytest.raises(ConfigError) as raised:
        fetch(place("s3://b/logs/", limits=FetchLimits(seconds=0.05)))
    assert "takes more than 0 s to fetch (0 files, 0.0 MB so far); choose less" in str(raised.value)
    assert (ended, store.closed) == (["cancelled"], 1)


def test_ctrl_c_ends_fetching(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    _, ended = hang(store, monkeypatch)

    def interrupt(_: Fetching) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(PLACE, interrupt)
    assert (ended, store.closed) == (["cancelled"], 1)


async def test_cancelling_a_run_ends_fetching(
    store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = hang(store, monkeypatch)
    waiting = asyncio.create_task(in_thread(store_context, PLACE))
    await asyncio.to_thread(begun.wait)
    waiting.cancel()
    with pytest.raises((asyncio.CancelledError, Unwanted)):
        await waiting
    while not ended:
        await asyncio.sleep(0.01)


def test_a_run_over_a_place_is_recorded(store: FakeStore, tmp_path: Path) -> None:
    cell = "```repl\nFINAL(sorted(context.items()))\n```"
    with RLM(ScriptedClient([cell]), journal=tmp_path / "runs") as engine:
        result = engine.ask("What is there?", rlm.place("s3://b/logs/"))
    assert result.answer == str([("a.log", "first log"), ("d/b.log", "second log")])


def test_places_and_files_can_be_combined(store: FakeStore, tmp_path: Path) -> None:
    here = tmp_path / "notes.txt"
    here.write_text("a note")
    stored = store_context([here, PLACE])
    assert stored.documents == ("notes.txt", "s3/b/logs/a.log", "s3/b/logs/d/b.log")
    with pytest.raises(ConfigError, match="a list of files can contain only paths, not str"):
        store_context([PLACE, "text"])


def test_a_single_object_is_a_text(store: FakeStore) -> None:
    del store.objects["d/b.log"]
    stored = store_context(place("s3://b/logs/a.log"))
    assert (stored.kind, stored.text(), stored.name) == ("text", "first log", "a.log")


def test_fetched_files_are_never_treated_as_a_corpus(store: FakeStore) -> None:
    """The catalog of a corpus names files of this machine; a stranger's would name any."""
    store.objects["corpus.json"] = b'{"format": "rlm-corpus", "version": 1}'
    store.versions["corpus.json"] = 1
    stored = store_context(PLACE)
    assert (stored.kind, len(stored.documents)) == ("json", 3)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("s3fs", "gcsfs", "adlfs", "huggingface_hub"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    for scheme in ("s3", "gs", "az", "hf"):
        with pytest.raises(ConfigError) as raised:
            fetch(Place(f"{scheme}://datasets/owner/name"))
        assert str(raised.value) == (
            f"to read {scheme}:// addresses, pip install 'recursivelm[{scheme}]'"
        )
