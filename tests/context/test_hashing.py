"""A large context is hashed beside the run, once, and only if something needs its hash."""

import asyncio
import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, RLMLogger, ScriptedClient
from rlm.context import StoredContext, store_context
from rlm.context.scanning import HASHED_AT_ONCE_BYTES
from rlm.context.stored import StoredContext as Stored
from rlm.errors import ConfigError, ModelError
from rlm.events import ContextHashed, Event, RunEnded, RunStarted
from rlm.records.journal import Archive, Journal, Places, RunFacts
from rlm.records.journal.facts import ContextFacts
from rlm.records.trajectories import open_trajectory
from rlm.replay import areplay
from rlm.results import Shown
from tests.fakes import PlanEnvironment, cell

SECONDS = 60
LARGE = "A line of text.\n" * (HASHED_AT_ONCE_BYTES // 16 + 1)
SHA256 = hashlib.sha256(LARGE.encode()).hexdigest()
FINAL = cell(["final", "done"])


class Hashing:
    """Every hash of a large context waits here until it may continue."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.begun = threading.Event()
        self.made = 0

    def __call__(self, context: StoredContext) -> str:
        self.begun.set()
        assert self.may_go_on.wait(SECONDS)
        self.made += 1
        return ORIGINAL(context)


ORIGINAL = Stored._hash_of_blocks


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hashing]:
    held = Hashing()
    monkeypatch.setattr(Stored, "_hash_of_blocks", lambda context: held(context))
    yield held
    held.may_go_on.set()


def engine(*script: Any, **options: Any) -> RLM:
    return RLM(ScriptedClient(list(script)), environment=PlanEnvironment(), **options)


def kinds(events: Any) -> list[str]:
    return [type(event).__name__ for event in events]


# -- the context itself ---------------------------------------------------------------------------


def test_a_small_context_is_hashed_at_once() -> None:
    small = store_context("text")
    assert small.known_sha256 == hashlib.sha256(b"text").hexdigest()


@pytest.mark.parametrize("kind", ["str", "bytes", "list", "file", "folder"])
def test_a_large_context_is_hashed_on_request(kind: str, tmp_path: Path, hashing: Hashing) -> None:
    (tmp_path / "a.txt").write_text(LARGE, "utf-8")
    values: dict[str, Any] = {
        "str": LARGE,
        "bytes": LARGE.encode(),
        "list": [LARGE],
        "file": tmp_path / "a.txt",
        "folder": tmp_path,
    }
    stored = store_context(values[kind])
    assert stored.size_bytes >= HASHED_AT_ONCE_BYTES
    assert stored.known_sha256 is None
    assert not hashing.begun.is_set()
    first, second = stored.hashing(), stored.hashing()
    assert first is second
    assert stored.known_sha256 is None
    hashing.may_go_on.set()
    assert stored.sha256 == first.result(SECONDS) == stored.known_sha256
    assert stored.sha256 == hashlib.sha256(b"".join(stored.chunks(1 << 20))).hexdigest()
    assert hashing.made == 1


def test_cancelling_a_wait_does_not_stop_the_hashing(hashing: Hashing) -> None:
    stored = store_context(LARGE)

    async def give_up() -> None:
        waiting = asyncio.ensure_future(asyncio.wrap_future(stored.hashing()))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(give_up())
    hashing.may_go_on.set()
    assert (stored.sha256, hashing.made) == (SHA256, 1)


def test_hashing_a_changed_file_fails_each_time(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(LARGE, "utf-8")
    stored = store_context(path)
    path.write_text(LARGE + "more", "utf-8")
    for _ in range(2):
        with pytest.raises(ConfigError, match="changed after you passed it"):
            _ = stored.sha256
    assert stored.known_sha256 is None


# -- runs -----------------------------------------------------------------------------------------


async def test_a_plain_run_never_hashes_a_large_context(hashing: Hashing) -> None:
    async with engine(FINAL) as rlm:
        result = await rlm.aask("Q", LARGE)
    assert result.answer == "done"
    assert not hashing.begun.is_set()
    assert isinstance(result.events[0], RunStarted)
    assert result.events[0].context_sha256 == ""
    assert "ContextHashed" not in kinds(result.events)


async def test_recorders_alone_do_not_cause_hashing(hashing: Hashing) -> None:
    heard: list[Event] = []

    class Listener:
        def record(self, event: Event) -> None:
            heard.append(event)

    async with engine(FINAL, recorders=[Listener()], logger=RLMLogger()) as rlm:
        assert (await rlm.aask("Q", LARGE)).answer == "done"
    assert not hashing.begun.is_set()
    assert kinds(heard)[-1] == "RunEnded"


@pytest.mark.parametrize("strategy", ["rlm", "mapreduce"])
@pytest.mark.parametrize("keeps", ["log", pytest.param("journal", marks=pytest.mark.heavy)])
async def test_the_first_request_is_sent_before_hashing_ends(
    keeps: str, strategy: Any, tmp_path: Path, hashing: Hashing
) -> None:
    """The reply comes only when the hash may continue: had it been awaited, nothing would end."""
    asked: list[bool] = []

    def reply(request: Any) -> str:
        asked.append(hashing.may_go_on.is_set())
        hashing.may_go_on.set()
        return FINAL

    options: dict[str, Any] = {"strategy": strategy}
    if keeps == "log":
        options["logger"] = RLMLogger(log_dir=tmp_path)
    else:
        options["journal"] = tmp_path
    script = [reply] if strategy == "rlm" else [reply] * 500
    async with engine(*script, **options) as rlm:
        result = await rlm.aask("Where is it?", LARGE)
    assert asked[0] is False
    assert hashing.made == 1
    hashed = [event for event in result.events if isinstance(event, ContextHashed)]
    assert [event.context_sha256 for event in hashed] == [SHA256]
    assert isinstance(result.events[-1], RunEnded)


async def test_a_stopped_run_does_not_wait_for_the_hash(tmp_path: Path, hashing: Hashing) -> None:
    def reply(request: Any) -> str:
        rlm.stop()
        return cell(["print", "x"])

    rlm = engine(reply, reply, logger=RLMLogger(log_dir=tmp_path))
    result = await rlm.aask("Q", LARGE)
    assert result.stop_reason == "cancelled"
    assert not hashing.may_go_on.is_set()
    assert "ContextHashed" not in kinds(result.events)
    hashing.may_go_on.set()
    await rlm.aclose()


async def test_a_small_context_is_hashed_before_the_start(tmp_path: Path) -> None:
    async with engine(FINAL, logger=RLMLogger(log_dir=tmp_path)) as rlm:
        result = await rlm.aask("Q", "text")
    assert isinstance(result.events[0], RunStarted)
    assert result.events[0].context_sha256 == hashlib.sha256(b"text").hexdigest()
    assert "ContextHashed" not in kinds(result.events)


# -- the journal ----------------------------------------------------------------------------------


def only_run(folder: Path) -> Any:
    archive = Archive(Places(folder))
    (run,) = archive.places.listed()
    return archive, run


async def test_no_reply_is_stored_before_the_hash(tmp_path: Path, hashing: Hashing) -> None:
    """A stored reply without its context's hash could be reused by a run over another context."""
    replied = asyncio.Event()

    def reply(request: Any) -> str:
        replied.set()
        return FINAL

    async with engine(reply, journal=tmp_path) as rlm:
        running = asyncio.create_task(rlm.aask("Q", LARGE))
        await asyncio.wait_for(replied.wait(), SECONDS)
        for _ in range(20):
            await asyncio.sleep(0)
        archive, run = only_run(tmp_path)
        assert archive.facts(run).context.sha256 == ""
        assert archive.summary(run).requests == 0
        with pytest.raises(ConfigError, match="before its context was stored"):
            archive.context_of(archive.facts(run))
        hashing.may_go_on.set()
        await asyncio.wait_for(running, SECONDS)
    facts = archive.facts(run)
    assert facts.context.sha256 == SHA256
    assert archive.context_of(facts).text() == LARGE


async def test_a_run_resumes_over_the_same_context_only(tmp_path: Path) -> None:
    async with engine(cell(["print", "x"]), ModelError("killed"), journal=tmp_path) as rlm:
        with pytest.raises(ModelError):
            await rlm.aask("Q", LARGE, run_id="one")
    other = "B" + LARGE[1:]
    async with engine(FINAL, journal=tmp_path) as rlm:
        with pytest.raises(ConfigError, match="had a different context"):
            await rlm.aask("Q", other, run_id="one")
        result = await rlm.aask("Q", LARGE, run_id="one")
    assert (result.answer, result.steps) == ("done", 2)


async def test_a_run_killed_before_its_hash_starts_again(tmp_path: Path, hashing: Hashing) -> None:
    hashing.may_go_on.set()
    archive = Archive(Places(tmp_path))
    archive.places.prepare()
    context = ContextFacts("text", "", len(LARGE), "d")
    journal = Journal(archive.places.journal_of("one"))
    journal.describe(run=RunFacts(run_id="one", query="Q", started=1.0, context=context))
    journal.copy_shown("root", 0, "task", Shown("told of another context", ""))
    journal.close()
    client = ScriptedClient([FINAL])
    async with RLM(client, environment=PlanEnvironment(), journal=tmp_path) as rlm:
        with pytest.raises(ConfigError, match="had a different context"):
            await rlm.aask("Q", LARGE + "more", run_id="one")
        result = await rlm.aask("Q", LARGE, run_id="one")
    assert result.answer == "done"
    assert "different context" not in str(client.requests[0].messages)
    (run,) = archive.places.listed()
    assert archive.facts(run).context.sha256 == SHA256


# -- reading it again -----------------------------------------------------------------------------


async def test_a_log_is_replayed_over_the_same_context_only(tmp_path: Path) -> None:
    logger = RLMLogger(log_dir=tmp_path)
    async with RLM(ScriptedClient(["FINAL(done)"]), logger=logger, preview_chars=0) as rlm:
        await rlm.aask("Q", LARGE)
    path = str(logger.log_file_path)
    assert (await areplay(path, LARGE)).same
    report = await areplay(path, "B" + LARGE[1:])
    assert ["context_sha256" in each.diff for each in report.differences] == [True]


async def test_the_log_has_the_hash_before_the_run_ends(tmp_path: Path) -> None:
    logger = RLMLogger(log_dir=tmp_path)
    async with engine(FINAL, logger=logger) as rlm:
        await rlm.aask("Q", LARGE)
    names = kinds(open_trajectory(str(logger.log_file_path)).events())
    assert names.count("ContextHashed") == 1
    assert names.index("ContextHashed") < names.index("RunEnded") == len(names) - 1
