"""A folder of journals: contexts are stored once and restored exactly, old runs are pruned."""

import json
import os
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm import RLM, ScriptedClient, files
from rlm.context import StoredContext, store_context
from rlm.errors import ConfigError
from rlm.records.journal import (
    Archive,
    Journal,
    Places,
    Retention,
    RunFacts,
    RunFile,
    database,
    facts_of,
)
from rlm.records.journal.records import tail_of
from rlm.testing.fake_server import FakeServer
from tests.context.helpers import make_tree, seen_by_worker
from tests.picture_samples import gif, png

DAY = 86_400


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(Places(tmp_path / "state"))


async def opened(archive: Archive, run_id: str, context: StoredContext) -> Journal:
    facts = RunFacts(run_id=run_id, query="Why?", started=1.0, context=facts_of(context))
    journal = await archive.open(facts, context)
    if journal.beside is not None:
        await journal.beside
    return journal


async def keep(archive: Archive, run_id: str, value: Any) -> StoredContext:
    """A run over this context that has ended."""
    context = store_context(value)
    (await opened(archive, run_id, context)).close()
    return context


def restored(archive: Archive, run_id: str) -> StoredContext:
    return archive.context_of(archive.facts(archive.places.find(run_id)))


def kept_contexts(archive: Archive) -> set[str]:
    return {path.name for path in archive.places.contexts.iterdir()}


def run_ids(archive: Archive) -> list[str]:
    return [run.run_id for run in archive.places.listed()]


def age(path: Path, days: float) -> None:
    then = time.time() - days * DAY
    os.utime(path, (then, then))


# -- contexts come back as they were --------------------------------------------------------------


def assert_same(found: StoredContext, context: StoredContext) -> None:
    assert (found.kind, found.sha256, found.size_bytes) == (
        context.kind,
        context.sha256,
        context.size_bytes,
    )
    assert seen_by_worker(found) == seen_by_worker(context)
    assert (found.description, found.documents) == (context.description, context.documents)
    assert {name: each.read() for name, each in found.pictures.items()} == {
        name: each.read() for name, each in context.pictures.items()
    }
    assert list(found.pictures) == list(context.pictures)
    assert found.digest("Why?") == context.digest("Why?")
    assert found.text() == context.text()
    if (texts := texts_of(context)) is not None:  # A file's text may be read, need not be.
        assert texts_of(found) == texts


def texts_of(context: StoredContext) -> list[tuple[str | None, str]] | None:
    found = context.documents_in_order()
    return None if found is None else [(name, "".join(pieces)) for name, pieces in found]


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "plain",
        "lone \ud800 and \udfff, a pair that is none",
        "a\r\nb\rc\n",
        "nul \0 and \x1b[31m, 日本語 🎉, \ufeff",
        b"",
        b"\0\xff\xfe not text",
        png(3, 4),
        ["one", "two\r\n", "\ud800", ""],
        {"a.txt": "one", "": "nameless", "\udc80": "\0"},
        [],
        {},
        {"a": [1, 2.5, None, True, {"b": [[]]}], "text": "\ud800"},
        [{"name": "x"}, 1e300, -0.0, "é"],
        [[["deep"]]],
    ],
    ids=repr,
)
async def test_a_stored_context_is_restored_unchanged(archive: Archive, value: Any) -> None:
    context = await keep(archive, "20261115-1", value)
    assert_same(restored(archive, "20261115-1"), context)


TREE: dict[str, str | bytes] = {
    "a.txt": "one\r\ntwo",
    "b/c.md": "# Title",
    "plot.png": png(640, 480),
    "d.gif": gif(),
    "e.json": '{"x":  1}',
    "f.bin": b"\0\1\2",
    "g.txt": "not quite \xff utf-8".encode("latin-1"),
}


@pytest.mark.parametrize(
    "name", ["a.txt", "e.json", "plot.png", "f.bin", "g.txt", ".", "both", "matching"]
)
async def test_stored_files_are_restored_after_they_were_deleted(
    archive: Archive, tmp_path: Path, name: str
) -> None:
    folder = make_tree(tmp_path / "tree", TREE)
    several: dict[str, Any] = {
        "both": [folder / "a.txt", folder / "b/c.md"],
        "matching": files(f"{folder}/**/*.md"),
    }
    context = store_context(several.get(name, folder / name))
    twin = store_context(several.get(name, folder / name))
    (await opened(archive, "20261115-1", context)).close()
    found = restored(archive, "20261115-1")
    assert_same(found, twin)
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert found.sha256 == context.sha256
    assert seen_by_worker(restored(archive, "20261115-1")) == seen_by_worker(found)


async def test_a_large_context_is_written_while_the_run_proceeds(archive: Archive) -> None:
    context = store_context("x" * (2 << 20))
    facts = RunFacts(run_id="20261115-1", query="?", started=1.0, context=facts_of(context))
    journal = await archive.open(facts, context)
    assert journal.beside is not None
    await journal.aclose()
    assert_same(restored(archive, "20261115-1"), context)


async def test_many_runs_share_one_context(archive: Archive) -> None:
    for number in range(5):
        await keep(archive, f"20261115-{number}", {"a": "the same", "b": "for all"})
    context = await keep(archive, "20261115-9", '{"a": "the same", "b": "for all"}')
    assert kept_contexts(archive) == {context.sha256}
    assert restored(archive, "20261115-3").kind == "json"
    assert restored(archive, "20261115-9").kind == "text"


async def test_a_modified_stored_context_is_refused(archive: Archive) -> None:
    context = await keep(archive, "20261115-1", "the whole truth")
    path = archive.places.contexts / context.sha256
    for damage in (b"the whole trUth", b"the whole", b"", b"the whole truth and more"):
        path.write_bytes(damage)
        with pytest.raises(ConfigError, match="has changed; pass it again"):
            restored(archive, "20261115-1")
    path.unlink()
    with pytest.raises(ConfigError, match=r"is gone \(No such file.*pass it again"):
        restored(archive, "20261115-1")


async def test_a_modified_stored_picture_is_noticed(archive: Archive, tmp_path: Path) -> None:
    context = store_context(make_tree(tmp_path / "tree", {"a.txt": "x", "p.png": png(3, 4)}))
    (await opened(archive, "20261115-1", context)).close()
    (archive.places.contexts / context.pictures["p.png"].sha256).write_bytes(b"no picture")
    with pytest.raises(ConfigError, match="has changed"):
        restored(archive, "20261115-1")


@settings(max_examples=40)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    ).filter(lambda value: isinstance(value, str | list | dict))
)
def test_any_value_is_restored_unchanged(
    tmp_path_factory: pytest.TempPathFactory, value: Any
) -> None:
    places = Places(tmp_path_factory.getbasetemp() / "any")
    places.prepare()
    archive, context = Archive(places), store_context(value)
    archive.contexts.put(context)
    facts = RunFacts(run_id="1", query="?", started=1.0, context=facts_of(context))
    assert_same(archive.context_of(facts), context)


# -- what is let go -------------------------------------------------------------------------------


async def test_a_context_is_deleted_with_the_last_run_that_names_it(archive: Archive) -> None:
    shared = await keep(archive, "20261115-1", "shared")
    await keep(archive, "20261115-2", "shared")
    alone = await keep(archive, "20261115-3", "alone")
    for each in (shared, alone):
        age(archive.places.contexts / each.sha256, days=1)
    for run_id, left in (
        ("20261115-1", {shared.sha256, alone.sha256}),
        ("20261115-3", {shared.sha256}),
        ("20261115-2", set()),
    ):
        archive.remove(archive.places.find(run_id))
        archive.collect()
        assert kept_contexts(archive) == left


async def test_pictures_are_deleted_with_their_context(archive: Archive, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", {"a.txt": "x", "p.png": png(3, 4)})
    context = await keep(archive, "20261115-1", tree)
    assert len(kept_contexts(archive)) == 2
    for path in archive.places.contexts.iterdir():
        age(path, days=1)
    archive.collect()
    assert kept_contexts(archive) == {context.sha256, context.pictures["p.png"].sha256}
    archive.remove(archive.places.find("20261115-1"))
    archive.collect()
    assert kept_contexts(archive) == set()


async def test_a_new_context_is_not_deleted_before_its_run_names_it(archive: Archive) -> None:
    """Its run may be about to name it: contexts are written beside the run."""
    archive.places.prepare()
    context = store_context("fresh")
    archive.contexts.put(context)
    archive.collect()
    assert kept_contexts(archive) == {context.sha256}
    age(archive.places.contexts / context.sha256, days=1)
    archive.contexts.put(context)  # Another run has it: it is fresh again.
    archive.collect()
    assert kept_contexts(archive) == {context.sha256}
    age(archive.places.contexts / context.sha256, days=1)
    archive.collect()
    assert kept_contexts(archive) == set()


async def test_unfinished_files_of_a_killed_writer_are_deleted(archive: Archive) -> None:
    archive.places.prepare()
    left = archive.places.contexts / ".0123456789abcdef"
    left.write_bytes(b"half a cont")
    archive.collect()
    assert left.exists()
    age(left, days=1)
    archive.collect()
    assert not left.exists()


async def test_an_unreadable_journal_protects_no_context_and_stops_no_run(
    archive: Archive,
) -> None:
    context = await keep(archive, "20261115-1", "good")
    (archive.places.runs / "20261115-2.sqlite").write_bytes(b"no journal" * 100)
    age(archive.places.contexts / context.sha256, days=1)
    archive.collect()
    assert kept_contexts(archive) == {context.sha256}
    assert [type(each).__name__ for each in archive.summaries()] == ["ConfigError", "RunSummary"]


# -- how long runs are kept -----------------------------------------------------------------------


async def five_runs(archive: Archive) -> None:
    for number in range(5):
        await keep(archive, f"2026111{number}-1", f"context {number}")


def with_retention(archive: Archive, **options: Any) -> Archive:
    return Archive(archive.places, Retention(**options))


async def test_the_oldest_runs_are_pruned_when_there_are_too_many(archive: Archive) -> None:
    await five_runs(archive)
    removed = with_retention(archive, runs=2).prune()
    assert removed == ["20261112-1", "20261111-1", "20261110-1"]
    assert run_ids(archive) == ["20261114-1", "20261113-1"]


async def test_runs_unchanged_for_long_are_pruned(archive: Archive) -> None:
    await five_runs(archive)
    age(archive.places.runs / "20261113-1.sqlite", days=31)
    age(archive.places.runs / "20261110-1.sqlite", days=29)
    assert with_retention(archive).prune() == ["20261113-1"]


async def test_the_oldest_runs_are_pruned_when_all_together_are_too_large(archive: Archive) -> None:
    await five_runs(archive)
    size = next(archive.places.listed()).size_bytes
    removed = with_retention(archive, size_bytes=3 * size + 100).prune()
    assert removed == ["20261111-1", "20261110-1"]


async def test_a_shared_context_counts_once_towards_the_size(archive: Archive) -> None:
    for number in range(3):
        await keep(archive, f"2026111{number}-1", "x" * 900_000)
    assert with_retention(archive, size_bytes=1_200_000).prune() == []
    await keep(archive, "20261113-1", "y" * 900_000)
    assert with_retention(archive, size_bytes=1_200_000).prune() == [
        "20261112-1",
        "20261111-1",
        "20261110-1",
    ]


async def test_pruning_keeps_the_contexts_of_remaining_runs(archive: Archive) -> None:
    await five_runs(archive)
    for path in archive.places.contexts.iterdir():
        age(path, days=1)
    with_retention(archive, runs=1).prune()
    assert restored(archive, "20261114-1").text() == "context 4"
    assert len(kept_contexts(archive)) == 1


async def test_a_run_in_progress_is_not_removed(archive: Archive) -> None:
    journal = await opened(archive, "20261110-1", store_context("old"))
    await keep(archive, "20261111-1", "new")
    with pytest.raises(
        ConfigError, match=f"process {os.getpid()} is executing run .*; end it first"
    ):
        archive.remove(archive.places.find("20261110-1"))
    assert with_retention(archive, runs=1).prune() == []
    assert run_ids(archive) == ["20261111-1", "20261110-1"]
    journal.close()
    assert with_retention(archive, runs=1).prune() == ["20261110-1"]


async def test_removing_a_run_leaves_no_files(archive: Archive) -> None:
    journal = await opened(archive, "20261110-1", store_context("old"))
    assert len(list(archive.places.runs.iterdir())) == 5  # -wal, -shm, .tail and .lock
    journal.close()
    archive.remove(archive.places.find("20261110-1"))
    assert list(archive.places.runs.iterdir()) == []


def test_removing_a_missing_run_is_not_an_error(archive: Archive) -> None:
    archive.places.prepare()
    archive.remove(RunFile("20261110-1", archive.places.journal_of("20261110-1"), 0.0, 0))
    assert list(archive.places.runs.iterdir()) == []


# -- who may look ---------------------------------------------------------------------------------


@contextmanager
def umask(mask: int) -> Generator[None, None, None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_only_the_owner_can_read_the_files_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    folder = make_tree(tmp_path / "tree", {"a.txt": "x", "p.png": png(3, 4)})
    state = tmp_path / "state"
    seen: dict[str, int] = {}

    def look() -> str:
        """From the middle of a run, when all of SQLite's files are there."""
        for path in (state, *state.rglob("*")):
            seen[path.name] = stat.S_IMODE(path.stat().st_mode)
        return "looked"

    script = ["```repl\nlook()\nFINAL(1)\n```"]
    with umask(mask), RLM(ScriptedClient(script), journal=state, tools=[look]) as rlm:
        result = rlm.ask("Why?", folder)
    assert result.answer == "1"
    folders = {"state", "runs", "contexts"}
    assert {name: seen[name] for name in folders} == dict.fromkeys(folders, 0o700)
    assert {name.rpartition("-")[2] for name in seen} > {"wal", "shm"}
    assert {mode for name, mode in seen.items() if name not in folders} == {0o600}
    everything = {path.name: stat.S_IMODE(path.stat().st_mode) for path in state.rglob("*.*")}
    assert set(everything.values()) == {0o600}


def test_no_key_is_written_to_the_journal(tmp_path: Path) -> None:
    key = "sk-secret-0123456789abcdef"
    with FakeServer(["```repl\nFINAL(llm_query('Hm?'))\n```", "Hm."]) as server:
        variables = {**server.variables, "OPENAI_API_KEY": key}
        options = {"openai/scripted": {"headers": {"X-Token": key}}}
        with RLM(
            "openai/scripted", variables=variables, client_options=options, journal=tmp_path
        ) as rlm:
            assert rlm.ask("Why?", "x").answer == "Hm."
        assert [each.headers["Authorization"] for each in server.requests] == [f"Bearer {key}"] * 2
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or key.encode() not in path.read_bytes(), path


def test_recorded_settings_are_plain_json(tmp_path: Path) -> None:
    with RLM(ScriptedClient(["```repl\nFINAL(1)\n```"]), journal=tmp_path) as rlm:
        rlm.ask("Why?", "x", run_id="20261115-1")
    archive = Archive(Places(tmp_path))
    facts = archive.facts(archive.places.find("20261115-1"))
    assert json.loads(json.dumps(facts.settings)) == facts.settings
    assert facts.settings["own"]


async def test_a_run_removed_while_it_is_being_read_stays_removed(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keep(archive, "a", "text")
    run = archive.places.find("a")
    tail_of(run.path).write_bytes(b"what a killed process may leave")
    take = database.Lock.take

    def take_too_late(lock: database.Lock) -> bool:
        run.remove()
        return take(lock)

    monkeypatch.setattr(database.Lock, "take", take_too_late)
    with pytest.raises(ConfigError, match="can't be read"):
        archive.facts(run)
    assert run_ids(archive) == []


def test_a_run_removed_during_listing_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = Places(tmp_path)
    places.prepare()
    for name in ("kept", "removed"):
        places.journal_of(name).touch()
    scan = os.scandir

    def scan_then_remove(folder: Path) -> list[os.DirEntry[str]]:
        entries = list(scan(folder))
        places.remove("removed")
        return entries

    monkeypatch.setattr(os, "scandir", scan_then_remove)
    assert [run.run_id for run in places.listed()] == ["kept"]


async def test_a_run_is_found_by_any_unique_part_of_its_id(archive: Archive) -> None:
    first, second = "20261115-093000-123-5d41402a", "20261115-093000-124-5d99aaaa"
    for run_id in (first, second):
        await keep(archive, run_id, "text")
    for part in (first, "20261115-093000-123", "41402a", "5d41402a", "5d4"):
        assert archive.places.find(part).run_id == first
    for part, problem in (("5d", "several runs are"), ("41", "no run is"), ("", "no run is")):
        with pytest.raises(ConfigError, match=problem):
            archive.places.find(part)
