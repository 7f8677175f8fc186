"""One run's journal: what was put is there for the next process, whatever happened to this one."""

import asyncio
import contextlib
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rlm.errors import ConfigError
from rlm.events import RunEnded, StepStarted
from rlm.messages import Message, Reply, ReplyKey, Request, ToolCall, Usage
from rlm.records.journal import Journal, database
from rlm.records.journal.records import packed, places_in, tail_of, unpacked
from rlm.results import Shown

REQUEST = Request(model="m", messages=(Message("user", "?"),), max_output_tokens=9)
REPLY = Reply(
    text="Paris \ud800",
    tool_calls=(ToolCall("1", "repl", {"code": "x"}),),
    reasoning="because",
    usage=Usage(3, 4, cost_usd=0.1, requests=1),
    finish_reason="tool_calls",
    model="m-1",
    opaque={"thinking": [{"signature": "abc"}]},
)


def key(name: str) -> ReplyKey:
    path, digest, number = name.rsplit("/", 2)
    return ReplyKey(path, digest, int(number))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "20261115-1.sqlite"


async def test_a_journaled_reply_comes_back_unchanged(path: Path) -> None:
    journal = Journal(path)
    assert await journal.get(key("root/a/0"), REQUEST) is None
    await journal.put(key("root/a/0"), REPLY)
    journal.close()
    again = Journal(path)
    found = await again.get(key("root/a/0"), REQUEST)
    assert found == REPLY
    assert await again.get(key("root/a/1"), REQUEST) is None
    assert again.replayed == 1
    again.close()


async def test_many_replies_are_written_in_one_transaction(path: Path) -> None:
    journal = Journal(path)
    statements: list[str] = []
    journal._database.set_trace_callback(statements.append)
    await asyncio.gather(*(journal.put(key(f"root/a/{n}"), REPLY) for n in range(100)))
    assert statements == []
    journal.flush()
    assert len([each for each in statements if each.lower().startswith("commit")]) == 1
    assert len([each for each in statements if each.lower().startswith("insert")]) == 1
    journal.close()
    again = Journal(path)
    assert len(again._known) == 100
    again.close()


async def test_a_corrupted_record_is_skipped(path: Path) -> None:
    whole = b"".join(packed(key(f"root/a/{n}"), Reply(text=f"reply {n}")) for n in range(5))
    spoilt = bytearray(whole)
    spoilt[whole.index(b"reply 2")] ^= 1
    tail_of(path).write_bytes(bytes(spoilt[:-3]))  # and the last one is torn
    journal = Journal(path)
    found = [await journal.get(key(f"root/a/{n}"), REQUEST) for n in range(5)]
    assert [each and each.text for each in found] == ["reply 0", "reply 1", None, "reply 3", None]
    journal.close()
    assert not tail_of(path).exists()


@given(st.binary(max_size=300))
def test_any_bytes_can_be_read_as_records(data: bytes) -> None:
    for start, end in places_in(data):
        with contextlib.suppress(ValueError):
            unpacked(data[start:end])


async def test_cancelling_one_put_does_not_lose_the_others(path: Path) -> None:
    journal = Journal(path)
    await journal.put(key("root/first/0"), REPLY)  # what comes now is a burst
    tasks = [asyncio.create_task(journal.put(key(f"root/a/{n}"), REPLY)) for n in range(5)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each).__name__ for each in done].count("CancelledError") <= 1
    journal.close()
    again = Journal(path)
    assert len(again._known) == 6
    again.close()


CRASHING = """
import asyncio, os, signal, sys
from pathlib import Path
from rlm.records.journal import Journal
from rlm.messages import Reply, ReplyKey

async def main():
    journal = Journal(Path(sys.argv[1]))
    puts = [journal.put(ReplyKey("root", "a", n), Reply(text=str(n))) for n in range(50)]
    await asyncio.gather(*puts)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def test_committed_replies_survive_sigkill(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CRASHING, str(path)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    journal = Journal(path)

    async def texts() -> list[str]:
        found = [await journal.get(key(f"root/a/{number}"), REQUEST) for number in range(50)]
        return [each.text for each in found if each is not None]

    assert asyncio.run(texts()) == [str(number) for number in range(50)]
    journal.close()


async def test_a_resumed_run_shows_the_model_the_same_texts(path: Path) -> None:
    journal = Journal(path)
    assert await journal.recorded("root", 1, "observation") is None
    for step in (1, 2):
        await journal.show("root", step, "observation", Shown(f"Output {step}", "digest"))
    await journal.show("root", 2, "compaction", Shown("Go on."))
    journal.close()
    again = Journal(path)
    first = await again.recorded("root", 1, "observation")
    last = await again.recorded("root", 2, "observation")
    assert first == Shown("Output 1", "digest", is_last=False)
    assert last == Shown("Output 2", "digest", is_last=True)
    assert await again.recorded("root", 2, "compaction") == Shown("Go on.")
    assert await again.recorded("root/child.0", 1, "observation") is None
    again.close()


async def test_a_failed_reply_is_reused_only_if_its_step_was_over(path: Path) -> None:
    failed = Reply(text="content filter", finish_reason="failed")
    in_step = {step: ReplyKey("root", f"digest {step}", 0, "llm", step) for step in (1, 2)}
    child = {step: ReplyKey(f"root/{step}.0", "answer", 0, "child", step) for step in (1, 2)}
    failed_child = replace(failed, opaque={"used": (0, 0, 0), "usage": ()})
    journal = Journal(path)
    for key_of in in_step.values():
        await journal.put(key_of, failed)
    for key_of in child.values():
        await journal.put(key_of, failed_child)
    await journal.show("root", 1, "observation", Shown("Output"))
    journal.close()
    again = Journal(path)
    assert await again.get(in_step[1], REQUEST) == failed
    assert await again.get(in_step[2], REQUEST) is None
    reused = await again.get(child[1], None)
    assert reused is not None
    assert (reused.text, reused.finish_reason) == (failed.text, "failed")
    assert await again.get(child[2], None) is None
    again.close()


async def test_a_step_requested_with_other_settings_cannot_be_resumed(path: Path) -> None:
    journal = Journal(path)
    await journal.put(ReplyKey("root", "digest", 0, "step", 1), REPLY)
    journal.close()
    again = Journal(path)
    with pytest.raises(ConfigError, match="step 1 was requested with other settings"):
        await again.get(ReplyKey("root", "other", 0, "step", 1), REQUEST)
    assert await again.get(ReplyKey("root", "digest", 0, "step", 1), REQUEST) == REPLY
    # A second try of the same step, with more room, need not be there.
    assert await again.get(ReplyKey("root", "other", 0, "step", 1), REQUEST) is None
    assert await again.get(ReplyKey("root", "other", 0, "step", 2), REQUEST) is None
    again.close()


def test_facts_survive_reopening(path: Path) -> None:
    journal = Journal(path)
    journal.describe(query="Who?", limits={"max_steps": 3})
    journal.describe(query="Who then?")
    journal.close()
    again = Journal(path)
    assert again.facts() == {"query": "Who then?", "limits": {"max_steps": 3}}
    again.close()


def test_events_of_each_attempt_are_kept_separate(path: Path) -> None:
    for attempt in (1, 2):
        journal = Journal(path)
        journal.record(StepStarted(run_id="r", step=attempt))
        journal.record(StepStarted(run_id="r", step=10 * attempt))
        journal.close()
    connection = database.open_for_reading(path)
    rows = connection.execute("select attempt, lines from events order by number").fetchall()
    connection.close()
    assert [attempt for attempt, _ in rows] == [1, 2]
    assert [lines.count(b"\n") for _, lines in rows] == [2, 2]


def test_the_last_event_is_written_at_once(path: Path) -> None:
    journal = Journal(path)
    journal.record(StepStarted(run_id="r"))
    end = RunEnded(
        run_id="r",
        stop_reason="answer",
        answer_source="submitted",
        answer="42",
        steps=1,
        usage=Usage(),
        seconds=1.0,
    )
    journal.record(end)
    connection = database.open_for_reading(path)
    assert connection.execute("select count(*) from events").fetchone() == (1,)
    connection.close()
    journal.close()


def test_only_the_owner_can_read_the_journal(path: Path) -> None:
    umask = os.umask(0)
    try:
        journal = Journal(path)
        journal.describe(query="secret")
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
        journal.close()
    finally:
        os.umask(umask)
    assert set(modes.values()) == {0o600}, modes


def test_a_journal_can_be_opened_by_one_process_at_a_time(path: Path) -> None:
    journal = Journal(path)
    with pytest.raises(ConfigError, match=f"process {os.getpid()} is executing run 20261115-1"):
        Journal(path)
    journal.close()
    journal.close()
    Journal(path).close()


def test_a_file_of_another_program_is_not_modified(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("create table mine (x)")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="is not a journal of rlm"):
        Journal(path)
    assert path.read_bytes()[100:] == before[100:]


def test_another_format_is_refused_with_its_number(path: Path) -> None:
    Journal(path).close()
    other = sqlite3.connect(path)
    other.execute("pragma user_version=0")
    other.close()
    with pytest.raises(ConfigError, match="has format 0, but this version of rlm reads format 1"):
        Journal(path)
    Path(path).write_bytes(b"no database at all, but long enough to be one " * 50)
    with pytest.raises(ConfigError, match="is not writable"):
        Journal(path)


async def test_a_full_disk_ends_the_journal_but_not_the_run(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(path)
    journal._database.execute("pragma max_page_count=12")
    for number in range(200):
        await journal.put(key(f"root/a/{number}"), Reply(text="x" * 1_000))
    journal.record(StepStarted(run_id="r"))
    journal.flush()
    assert journal.problem is not None
    assert "full" in journal.problem
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    journal.close()
    again = Journal(path)  # with more room by now
    assert len(again._known) == 200
    again.close()


def _small_files_only() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))


def test_a_file_size_limit_is_treated_as_a_full_disk(path: Path) -> None:
    """The kernel's own refusal, in the middle of a transaction of many rows."""
    code = CRASHING.replace("Reply(text=str(n))", "Reply(text='x' * 10_000)").replace(
        "os.kill(os.getpid(), signal.SIGKILL)", "print(journal.problem); journal.close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=_small_files_only,
    )
    assert "is no longer writable" in done.stdout


@settings(max_examples=15)
@given(st.text(max_size=200))
def test_any_text_comes_back_unchanged(text: str) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            journal = Journal(Path(folder) / "1.sqlite")
            await journal.put(key("root/a/0"), Reply(text=text))
            await journal.show("root", 1, "observation", Shown(text))
            journal.close()
            again = Journal(Path(folder) / "1.sqlite")
            assert await again.get(key("root/a/0"), REQUEST) == Reply(text=text)
            assert await again.recorded("root", 1, "observation") == Shown(text)
            again.close()

    asyncio.run(main())
