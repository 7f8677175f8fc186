"""What a worker says is bounded by the host itself: by kind, before it is decoded."""

import asyncio
import json
import socket
import struct
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from rlm._util.untrusted import JsonBounds, TooLarge, check_json, read_json, read_texts
from rlm.environments import _calls, _frames, _session
from rlm.environments._exports import _is_harmless
from rlm.environments._forked import WorkerHandle
from rlm.environments._forkserver import report_in
from rlm.environments._session import WorkerSession, greeting_of
from rlm.errors import CallRefused, ProtocolViolation
from rlm.worker import bounds, wire
from rlm.worker.variables import _fit
from tests.environments.conftest import Opener, Repl
from tests.environments.host_places import PlayedProcess
from tests.environments.hostile_worker import report_of_a_zygote

DONE = [wire.DONE_COUNTS.pack(0, 0, 0, 0, False), b"", b"", b"", b""]
LLM = wire.to_json({"model": None, "batched": True})


class HoldingHost:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.asked = 0

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        self.asked += 1
        await self.may_answer.wait()
        return {}, [""] * len(parts) if kind == "llm" else []


class Ends:
    """A session, its host, and the worker's end of its socket."""

    def __init__(self, session: WorkerSession, host: HoldingHost, end: socket.socket) -> None:
        self.session, self.host, self.end = session, host, end
        self._decoder = wire.Decoder(wire.TO_WORKER, wire.MAX_TO_WORKER_BYTES)

    async def send(self, kind: int, number: int, *parts: bytes) -> None:
        data = wire.encode(kind, number, list(parts))
        await asyncio.get_running_loop().sock_sendall(self.end, data)

    async def receive(self) -> wire.Frame:
        while (frame := self._decoder.pop()) is None:
            self._decoder.feed(await asyncio.get_running_loop().sock_recv(self.end, 1 << 16))
        return frame


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    theirs.sendall(wire.encode(wire.READY, 1, [b"{}"]))
    host = HoldingHost()
    session = await WorkerSession.connect(ours, host, PlayedProcess(), greeting_of({}))
    made = Ends(session, host, theirs)
    assert (await made.receive()).type == wire.INIT
    yield made
    host.may_answer.set()
    await session.close()
    theirs.close()


async def begun_cell(ends: Ends) -> "asyncio.Task[Any]":
    cell = asyncio.create_task(ends.session.execute("x", timeout_seconds=60))
    assert (await ends.receive()).type == wire.EXEC
    return cell


# -- frames ---------------------------------------------------------------------------------------


async def test_a_call_that_is_too_large_is_answered_and_the_session_survives(ends: Ends) -> None:
    cell = await begun_cell(ends)
    lists = b'{"name": "t", "arguments": {"a": [' + b"[]," * 100_000 + b"[]]}}"
    floats = b'{"name": "t", "arguments": {"a": [' + b"1e300," * 300_000 + b"1]}}"
    too_large = {
        1: [b"tool", lists],
        2: [b"tool", floats],
        3: [b"tool", b'{"name": "t", "arguments": {"a": ' + b"9" * 5_000 + b"}}"],
        4: [b"tool", b'{"name": "t", "arguments": {"a": "' + b"x" * (9 << 20) + b'"}}'],
        5: [b"llm", LLM, b"\xed\xa0\x80" * 200_000],
        6: [b"llm", wire.to_json({"model": "m" * 5_000, "batched": True}), b"p"],
        7: [b"note", b"{}", b"key", b"x" * (5 << 20)],
        8: [b"llm", *with_schema(b"1e300", 20_000)],
        9: [b"operator", with_options(b"1E-300", 20_000), b"item"],
        10: [
            b"rlm",
            wire.to_json({**json.loads(LLM), "contexts": [], "tools": ["1"]}).replace(
                b'"1"', b",".join([b"1e300"] * 20_000)
            ),
            b"q",
        ],
    }
    for number, parts in too_large.items():
        await ends.send(wire.CALL, number, *parts)
        answer = await ends.receive()
        assert (answer.type, answer.id) == (wire.ANSWER_ERROR, number)
        assert answer.json(0)["type"] == "CallRefused"
        assert "allowed" in answer.json(0)["message"] or "at most" in answer.json(0)["message"]
    assert ends.host.asked == 0
    await ends.send(wire.CALL, 20, b"llm", LLM, b"p")
    assert (await ends.receive()).type == wire.ANSWER
    await ends.send(wire.DONE, 2, *DONE)
    assert (await cell).calls == 1


def with_schema(number: bytes, count: int) -> list[bytes]:
    numbers = b",".join([number] * count)
    return [b'{"model": null, "batched": true, "schema": {"enum": [%s]}}' % numbers, b"p"]


def with_options(number: bytes, count: int) -> bytes:
    numbers = b",".join([number] * count)
    return b'{"name": "classify", "options": {"labels": [[%s]]}, "model": null}' % numbers


@pytest.mark.parametrize("number", [b"1e300", b"1.7976931348623157e308", b"4.9E-324", b"1" * 900])
def test_msgspec_reads_no_frame_with_many_slow_numbers(
    number: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One takes msgspec up to 170 microseconds, in which nothing else runs."""

    class Watched:
        def __init__(self, real: Any) -> None:
            self.type, self._real = real.type, real

        def decode(self, part: bytes) -> Any:
            assert len(part) < 100, "msgspec would take very long"
            return self._real.decode(part)

    for name in ("_LLM", "_RLM", "_OPERATOR", "_CITE", "_NOTHING"):
        monkeypatch.setattr(_calls, name, Watched(getattr(_calls, name)))
    value = json.loads(number)
    asked = _calls.read_call(wire.Frame(wire.CALL, 1, [b"llm", *with_schema(number, 100)]))
    assert asked.arguments["schema"] == {"enum": [value] * 100}
    asked = _calls.read_call(
        wire.Frame(wire.CALL, 1, [b"operator", with_options(number, 100), b"item"])
    )
    assert asked.arguments["options"] == {"labels": [[value] * 100]}


async def test_frames_with_many_slow_numbers_are_decoded_in_a_thread(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_loop: list[bool] = []

    def watched(frame: wire.Frame, read: Any = _calls.read_call) -> Any:
        on_loop.append(threading.current_thread() is threading.main_thread())
        return read(frame)

    monkeypatch.setattr(_calls, "read_call", watched)
    cell = await begun_cell(ends)
    for number, count in enumerate((2, 5_000), 1):
        await ends.send(wire.CALL, number, b"llm", *with_schema(b"1e300", count))
        assert (await ends.receive()).type == wire.ANSWER
    await ends.send(wire.DONE, 2, *DONE)
    await cell
    assert on_loop == [True, False]


async def test_answers_that_nobody_reads_are_kept_as_bytes_and_stop_the_reading(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hold no task each, and more than fit are never read."""
    monkeypatch.setattr(_calls, "_MAX_HELD_BYTES", 100_000)
    cell = await begun_cell(ends)
    flood = b"".join(wire.encode(wire.CALL, n, [b"budget", b"{}"]) for n in range(100_000))
    sending = asyncio.create_task(asyncio.get_running_loop().sock_sendall(ends.end, flood))
    calls = ends.session._calls
    while not calls.is_full:
        await asyncio.sleep(0.01)
    for _ in range(50):
        await asyncio.sleep(0)
    taken_in = ends.host.asked
    assert taken_in < 50_000
    assert not sending.done()
    assert len(asyncio.all_tasks()) < 20
    answers = [await ends.receive() for _ in range(100_000)]
    assert sorted(each.id for each in answers) == list(range(100_000))
    await sending
    await ends.send(wire.DONE, 2, *DONE)
    await cell
    assert not calls.is_full
    assert calls._held_bytes == 0


async def test_long_frames_are_decoded_in_a_thread(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_loop: dict[int, bool] = {}
    for module, name in ((_calls, "read_call"), (_frames, "read_done")):
        read = getattr(module, name)

        def watched(frame: wire.Frame, read: Any = read, **named: Any) -> Any:
            on_loop[frame.size_bytes] = threading.current_thread() is threading.main_thread()
            return read(frame, **named)

        monkeypatch.setattr(module, name, watched)
    cell = await begun_cell(ends)
    for number, size in enumerate((10, 300_000), 1):
        await ends.send(wire.CALL, number, b"llm", LLM, b"x" * size)
        await ends.receive()
    await ends.send(wire.DONE, 2, DONE[0], b"", b"x" * 900_000, b"", b"")
    assert len((await cell).stdout) == 900_000
    assert [is_on for size, is_on in sorted(on_loop.items())] == [True, False, False]


async def test_the_bytes_of_pending_calls_are_limited(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_calls, "_MAX_PENDING_BYTES", 1 << 20)
    ends.host.may_answer.clear()
    cell = await begun_cell(ends)

    async def flood() -> None:
        for number in range(1, 41):
            await ends.send(wire.CALL, number, b"llm", LLM, b"x" * 100_000)

    flooding = asyncio.create_task(flood())
    for _ in range(2_000):
        await asyncio.sleep(0)
        assert ends.session._calls._pending_bytes <= (1 << 20) + 200_000
    assert ends.host.asked < 15
    ends.host.may_answer.set()
    answers = [await ends.receive() for _ in range(40)]
    await flooding
    assert sorted(frame.id for frame in answers) == list(range(1, 41))
    assert ends.session._calls._pending_bytes == 0
    await ends.send(wire.DONE, 2, *DONE)
    assert (await cell).calls == 40


async def test_a_flood_of_frames_lets_other_tasks_run(ends: Ends) -> None:
    cell = await begun_cell(ends)
    one = wire.encode(wire.CALL, 1, [b"budget", b"{}"])
    frames = [one[:5] + struct.pack("<I", number) + one[9:] for number in range(1, 1_501)]
    ends.end.sendall(b"".join(frames)[: 60_000 // len(one) * len(one)])
    turns = 0
    while ends.host.asked < 1_000:
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 1_000 // _session._MAX_FRAMES_AT_ONCE
    cell.cancel()


FORGED_ENDS: dict[str, tuple[int, list[bytes]]] = {
    "very many names": (0, [b"", b"", b"", b"\0".join([b"a"] * 500_000)]),
    "more new ones than are reported": (1_001, [b"", b"", b"", b"\0".join([b"a"] * 2_002)]),
    "names of a megabyte": (1, [b"", b"", b"", b"a" * (2 << 20) + b"\0int"]),
    "metadata of a megabyte": (0, [b'{"x": "' + b"a" * (1 << 20) + b'"}', b"", b"", b""]),
    "many texts": (0, [b"", b"", b"", b"", *[b"x"] * 20]),
}


@pytest.mark.parametrize(("new", "parts"), FORGED_ENDS.values(), ids=FORGED_ENDS)
def test_forged_cell_results_are_violations(new: int, parts: list[bytes]) -> None:
    counts = wire.DONE_COUNTS.pack(0, 0, new, 0, False)
    with pytest.raises(ProtocolViolation):
        _frames.read_done(wire.Frame(wire.DONE, 1, [counts, *parts]), calls=0, seconds=0.0)


def read_end(within: _frames.SessionBounds, meta: Any, *parts: bytes, counts: Any = (0, 0)) -> Any:
    packed = wire.DONE_COUNTS.pack(*counts, 0, 0, False)
    frame = wire.Frame(wire.DONE, 1, [packed, wire.to_json(meta) if meta else b"", *parts])
    return _frames.read_done(frame, calls=0, seconds=0.0, within=within).result


def test_output_and_errors_are_cut_to_what_the_caller_keeps() -> None:
    within = _frames.SessionBounds.of({"kept_output_chars": 1_000})
    error = {"type": "T" * 9_000, "message": "m" * 60_000, "traceback": "t" * 60_000}
    meta: dict[str, Any] = {"error": error, "how": None, "texts": []}
    result = read_end(
        within, meta, b"x" * (30 << 20), b"\xed\xa0\x80" * 150_000, b"", counts=(2**64 - 1, 0)
    )
    assert 1_000 <= len(result.stdout) <= 1_100
    assert 1_000 <= len(result.stderr) <= 1_100
    assert result.stdout_chars == bounds.MAX_REPORTED_CHARS
    assert len(result.error.type) < 300
    assert len(result.error.message) < bounds.MAX_MESSAGE_CHARS + 100
    assert len(result.error.traceback) < bounds.MAX_TRACEBACK_CHARS + 100


def test_an_answer_that_is_too_long_is_an_error_in_the_cell() -> None:
    within = _frames.SessionBounds.of({"max_submission_chars": 100})
    meta = {"error": None, "how": "FINAL", "texts": ["submission", "answer_content"]}
    for size in (101, 200_000):
        result = read_end(within, meta, b"", b"", b"", b"x" * size, b"y" * size)
        assert result.submission is None
        assert result.error.type == "ValueError"
        assert "at most 100 are allowed" in result.error.message
        assert len(result.answer_content) == 100
    kept = read_end(within, meta, b"", b"", b"", b"x" * 100, b"y")
    assert (kept.submission.text, kept.error) == ("x" * 100, None)


async def test_the_size_of_a_response_is_bounded_by_the_request(ends: Ends) -> None:
    """A list of files can't be as long as a variable, nor that as long as the end of a cell."""
    listing = asyncio.create_task(ends.session.list_files("/"))
    await ends.receive()
    await asyncio.get_running_loop().sock_sendall(
        ends.end, struct.pack("<IBII", 30 << 20, wire.VALUE, 2, 2)
    )
    with pytest.raises(ProtocolViolation, match="a frame of type 36 can have"):
        await listing


def test_more_files_than_may_be_listed_are_a_violation() -> None:
    listed = json.dumps([["a", 1]] * (bounds.MAX_FILES + 1)).encode()
    with pytest.raises(ProtocolViolation):
        _frames.read_files(wire.Frame(wire.VALUE, 1, [b"{}", listed]))


# -- what cells get to know of it -----------------------------------------------------------------


async def test_a_cell_is_told_what_is_too_large_and_continues(repl: Repl) -> None:
    kind, message = await repl.fail("rlm_query('p', context='x' * (49 << 20))")
    assert (kind, "allowed: send less at once" in message) == ("TooLarge", True)
    kind, message = await repl.fail("lookup(a=list(range(250_000)))")
    assert kind == "ToolFailed"
    assert "200,000 are allowed" in message
    kind, message = await repl.fail(
        "class " + "N" * 5_000 + "(Exception): pass\nraise " + "N" * 5_000
    )
    assert len(kind) == bounds.MAX_ERROR_TYPE_CHARS
    assert await repl.show("len(llm_query('x' * 20_000_000))") == "20000003"


async def test_variables_beyond_the_reporting_limit_are_omitted(repl: Repl) -> None:
    await repl.run("for n in range(20_000): globals()['v' * 200 + str(n)] = n")
    result = await repl.run("for n in range(20_000): del globals()['v' * 200 + str(n)]")
    assert result.error is None
    assert len(repl.session.variables) <= bounds.MAX_CHANGED_VARIABLES + 1
    await repl.run("globals()['w' * 5_000] = 1; short = 2")
    assert "short" in repl.session.variables
    assert max(map(len, repl.session.variables)) <= bounds.MAX_NAME_CHARS


def test_a_report_on_variables_fits_its_limits() -> None:
    new = {"é" * 200 + str(n): "int" for n in range(1_000)}
    changed = {"ü" * 200 + str(n): "int" for n in range(1_000)}
    deleted = ["ö" * 200 + str(n) for n in range(30_000)]
    _fit(new, changed, deleted)
    words = [*new, *new.values(), *changed, *changed.values(), *deleted]
    assert len("\0".join(words).encode()) <= bounds.MAX_VARIABLES_BYTES
    assert (len(new), len(changed)) == (1_000, 1_000)
    assert 0 < len(deleted) <= bounds.MAX_DELETED_VARIABLES


# -- text and JSON --------------------------------------------------------------------------------

SOME = JsonBounds(1_000_000, 1_000)
TOO_MUCH = {
    "bytes": b'"' + b"x" * 1_000_000 + b'"',
    "values": b"[" + b"1," * 1_000 + b"1]",
    "lists": b"[" + b"[]," * 300 + b"[]]",
    "strings": b"[" + b'"",' * 3_000 + b"1]",
    "depth": b"[" * 200 + b"]" * 200 + b" " * 512,
    "a number": b"1" * 1_001,
    "brackets that do not match": b"[" * 200 + b" " * 512,
    "text": '["' + "é" * 600_000 + '"]',
}


@pytest.mark.parametrize("document", TOO_MUCH.values(), ids=TOO_MUCH)
def test_oversized_json_is_not_decoded(document: bytes | str) -> None:
    with pytest.raises(TooLarge):
        check_json(document, SOME)


@pytest.mark.parametrize(
    "value",
    [
        {"text": "a, [b] {c}: \"d\" \\ 'e' " * 5_000},
        [[f'"{n}\\', {"a": [n, -n, n / 7, None, True]}] for n in range(80)],
        "\ud800" * 1_000,
        ["[" * 5_000, "]" * 5_000, "\\" * 5_000, '"' * 5_000],
    ],
)
def test_json_within_bounds_is_read_as_python_reads_it(value: Any) -> None:
    """What looks like structure inside strings does not count."""
    for ascii_only in (True, False):
        text = json.dumps(value, ensure_ascii=ascii_only)
        assert read_json(text, SOME) == value
        assert read_json(text.encode("utf-8", "surrogatepass"), SOME) == value


def test_lone_surrogates_are_counted_over_all_texts() -> None:
    lone = "\ud800".encode("utf-8", "surrogatepass")
    assert read_texts([lone * 3, "퟿é".encode()]) == ["\ud800" * 3, "퟿é"]
    with pytest.raises(TooLarge):
        read_texts([lone] * (bounds.MAX_SURROGATES + 1))
    with pytest.raises(ValueError, match="utf-8"):
        read_texts([b"\xff"])


# -- side channels --------------------------------------------------------------------------------

LINES = [
    b"[]", b"5", b"null", b'"x"', b"[" * 20_000, b'{"status": "x"}', b'{"status": [1]}', b"{",
    b'{"signalled": {}}', b'{"x": 1}', b'{"error": 5}', b"\xff\xfe", b'{"status": 1e999}',
]  # fmt: skip


@pytest.mark.parametrize("line", LINES)
async def test_a_malformed_report_ends_only_its_handle(line: bytes) -> None:
    ours, theirs = socket.socketpair()
    handle = WorkerHandle(ours)
    theirs.send(line + b"\n")
    await handle.until_over()
    assert handle._is_over
    theirs.close()


async def test_the_reason_of_a_death_is_truncated() -> None:
    ours, theirs = socket.socketpair()
    handle = WorkerHandle(ours)
    theirs.send(b'{"signalled": true}\n' * 5 + b'{"lost": "' + b"x" * 30_000 + b'"}\n')
    theirs.close()
    await handle.until_over()
    assert len(await handle.wait()) == bounds.MAX_REASON_CHARS
    assert handle._unconfirmed_signals == 0


@pytest.mark.parametrize("name", list(report_of_a_zygote()))
def test_a_report_with_a_field_of_the_wrong_type_is_a_violation(name: str) -> None:
    def framed(report: Any) -> bytes:
        data = json.dumps(report).encode()
        return struct.pack("<I", len(data)) + data

    assert report_in(framed(report_of_a_zygote())) == report_of_a_zygote()
    for wrong in ({"x": 1}, 7.5):
        with pytest.raises(ProtocolViolation):
            report_in(framed({**report_of_a_zygote(), name: wrong}))


def test_a_file_name_that_no_system_allows_is_omitted() -> None:
    assert not _is_harmless("a\ud800b")
    assert _is_harmless("a/b.txt")


def test_a_call_refused_for_its_size_says_so() -> None:
    with pytest.raises(CallRefused, match=r"have .* bytes; .* are allowed"):
        _calls.read_call(wire.Frame(wire.CALL, 1, [b"rlm", LLM, b"x" * (49 << 20)]))


async def test_a_small_output_limit_is_applied_in_the_session(open_repl: Opener) -> None:
    repl = await open_repl(kept_output_chars=1_000)
    result = await repl.run("print('x' * 100_000)")
    assert len(result.stdout) < 1_100
    assert result.stdout_chars == 100_001
