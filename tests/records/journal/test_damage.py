"""A journal that was damaged: what it gives is right, or it says what is wrong with it."""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm.errors import ConfigError
from rlm.events import CallEnded
from rlm.messages import Message, Reply, ReplyKey, Request, Usage
from rlm.records.journal import Archive, Journal, Places, events_of
from rlm.results import Shown

T = TypeVar("T")
RUN_ID = "20261115-120000-000-abcdef01"
REQUEST = Request(model="m", messages=(Message("user", "?"),), max_output_tokens=9)
REPLIES = {f"root/{'%032x' % (n * 7919)}/0": f"reply {n} " + "text " * n for n in range(40)}
ANYWHERE = st.integers(0, 1 << 20)
TOLD = {step: f"Output of step {step}: " + "line " * 50 for step in range(1, 6)}


def key_of(name: str) -> ReplyKey:
    path, digest, number = name.rsplit("/", 2)
    return ReplyKey(path, digest, int(number), "llm", 1)


async def _write_journal(path: Path) -> None:
    journal = Journal(path)
    journal.describe(query="Why?", result={"answer": "because " * 20})
    for name, text in REPLIES.items():
        await journal.put(key_of(name), Reply(text=text, usage=Usage(3, 4)))
    for step, text in TOLD.items():
        await journal.show("root", step, "observation", Shown(text, "digest"))
    for number in range(50):
        journal.record(CallEnded(run_id="r", call_id=str(number), kind="llm", model="m"))
    journal.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "1.sqlite"
    asyncio.run(_write_journal(path))
    data = path.read_bytes()
    assert len(data) > 20_000
    return data


async def _what_is_left(path: Path) -> int:
    """Open it as a run would; every reply that is given must be the right one."""
    journal = Journal(path)
    try:
        given = 0
        facts = journal.facts()
        assert facts.get("query", "Why?") == "Why?"
        assert facts.get("result", {"answer": "because " * 20}) == {"answer": "because " * 20}
        for name, text in REPLIES.items():
            reply = await journal.get(key_of(name), REQUEST)
            if reply is not None:
                assert (reply.text, reply.usage) == (text, Usage(3, 4))
                given += 1
        for step, text in TOLD.items():
            told = await journal.recorded("root", step, "observation")
            assert told is None or told.text == text
        await journal.put(key_of("root/new/0"), Reply(text="new"))
        return given
    finally:
        journal.close()


def check_damaged(data: bytes) -> int | None:
    """How many replies are left; None if the journal was refused, with a reason."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{RUN_ID}.sqlite"
        path.write_bytes(data)
        left = _unless_refused(path, lambda: asyncio.run(_what_is_left(path)))
        if left is not None:
            Journal(path).close()  # The lock is free, and what was written is fine.
        path.write_bytes(data)
        _unless_refused(path, lambda: all(isinstance(each, bytes) for each in events_of(path)))
        _unless_refused(path, lambda: Archive(Places(Path(folder)))._about(path))
    return left


def _unless_refused(path: Path, act: Callable[[], T]) -> T | None:
    try:
        return act()
    except ConfigError as error:
        if str(path) not in str(error):
            raise
        return None


def test_an_undamaged_journal_returns_every_reply(whole: bytes) -> None:
    assert check_damaged(whole) == len(REPLIES)


@settings(max_examples=50)
@given(end=ANYWHERE)
def test_a_truncated_journal_returns_correct_replies_or_a_reason(whole: bytes, end: int) -> None:
    check_damaged(whole[: end % len(whole)])


@settings(max_examples=50)
@given(at=ANYWHERE, junk=st.binary(min_size=1, max_size=300))
def test_a_damaged_journal_returns_correct_replies_or_a_reason(
    whole: bytes, at: int, junk: bytes
) -> None:
    at %= len(whole)
    check_damaged((whole[:at] + junk + whole[at + len(junk) :])[: len(whole)])


@settings(max_examples=60)
@given(at=ANYWHERE, flipped=st.integers(1, 255))
def test_a_flipped_byte_returns_correct_replies_or_a_reason(
    whole: bytes, at: int, flipped: int
) -> None:
    """One byte may well leave the database in order, and change a word of a reply."""
    damaged = bytearray(whole)
    damaged[at % len(whole)] ^= flipped
    check_damaged(bytes(damaged))


def test_every_text_in_the_file_has_a_checksum(whole: bytes) -> None:
    """Other words of the same length: nothing that SQLite would notice by itself."""
    for word in (b"reply 7 ", b"because because", b"Output of step 3"):
        assert whole.count(word) >= 1
        left = check_damaged(whole.replace(word, word[::-1]))
        assert left is None or left >= len(REPLIES) - 1
