"""Files that a page sends to be opened: shown like the viewer's own, bounded, and removed."""

import asyncio
import io
import json
import os
import shutil
import signal
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from rlm.logger import encoded
from rlm.viewer import opened
from tests.records.trajectories.samples import REFERENCE_LOG, one_run, started, written
from tests.viewer.serving import Answer, Client, log_shelf, serving
from tests.viewer.test_view_command import viewing


@pytest.fixture(autouse=True)
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that copies are made in."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def is_empty(folder: Path) -> bool:
    return not list(folder.iterdir())


def log_of(run_id: str, steps: int = 1) -> bytes:
    return b"".join(encoded(event) + b"\n" for event in one_run(run_id, steps))


async def sent(client: Client, data: Any, name: str = "a.jsonl", **headers: str) -> Answer:
    own = {"Origin": client.base, "X-RLM-Token": client.server.access.token.value}
    path = f"/api/opened?name={quote(name, safe='')}"
    body = io.BytesIO(data) if isinstance(data, bytes) else data
    return await client.ask(path, "POST", data=body, headers={**own, **headers})


async def open_id(client: Client, data: Any, name: str = "a.jsonl") -> str:
    answer = await sent(client, data, name)
    assert answer.status == 200, answer
    assert list(answer.json) == ["id"]
    opened_id: str = answer.json["id"]
    return opened_id


async def closed(client: Client, opened_id: str) -> Answer:
    own = {"Origin": client.base, "X-RLM-Token": client.server.access.token.value}
    return await client.ask(f"/api/opened/{opened_id}", "DELETE", headers=own)


async def run_ids(client: Client, opened_id: str) -> list[str]:
    found = await client.get(f"/api/opened/{opened_id}/runs")
    assert "reading" not in found
    return [run["run_id"] for run in found["runs"]]


def is_open(client: Client, *opened_ids: str) -> list[bool]:
    """Whether files are open, without using them."""
    known = client.server._app._opened._files
    return [each in known for each in opened_ids]


def empty_log(folder: Path) -> Any:
    return log_shelf(written(folder / "own.jsonl", one_run("own")))


# -- the same answers -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ours", "reference"])
async def test_an_opened_file_is_served_like_one_of_the_library(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "log.jsonl"
    if kind == "ours":
        written(path, [*one_run("r", 3), *one_run("r-1", parent_id="r", depth=1)])
    else:
        shutil.copy(REFERENCE_LOG, path)
    os.utime(path, (0, 0))
    async with serving(log_shelf(path), tmp_path) as client:
        opened_id = await open_id(client, path.read_bytes(), "log.jsonl")
        found = await client.get("/api/runs")
        assert found == await client.get(f"/api/opened/{opened_id}/runs")
        assert found["runs"]
        for run in found["runs"]:
            run_id = run["run_id"]
            steps = (await client.get(f"/api/runs/{run_id}"))["steps"]
            below = [f"/steps/{row['step']}" for row in steps]
            below += ["", "/calls", "/usage", "/coverage", "/search?q=e", "/events/0/text/query"]
            for place in below:
                own = await client.ask(f"/api/runs/{run_id}{place}")
                same = await client.ask(f"/api/opened/{opened_id}/runs/{run_id}{place}")
                assert (own.status, own.json) == (same.status, same.json), place
                assert own.status == 200
        async with (
            client.stream(f"/api/runs/{run_id}/live?after=-") as own_stream,
            client.stream(f"/api/opened/{opened_id}/runs/{run_id}/live?after=-") as same_stream,
        ):
            messages = [each async for each in own_stream]
            assert messages == [each async for each in same_stream]
            assert messages[-1]["event"] == "end"


async def test_the_facts_of_an_opened_file(tmp_path: Path) -> None:
    async with serving(empty_log(tmp_path), tmp_path) as client:
        opened_id = await open_id(client, log_of("r"), "my log.jsonl")
        answer = await client.ask(f"/api/opened/{opened_id}/viewer")
        assert (answer.json["title"], answer.json["live"]) == ("my log.jsonl", False)
        assert answer.json["can_fork"] is False
        assert "rlm view" in answer.json["why_not_fork"]
        assert "Set-Cookie" not in answer.headers, "the id of a file is no way to the token"
        assert (await client.get("/api/opened")) == {"max_bytes": opened.MAX_FILE_BYTES}


async def test_an_unfinished_run_in_a_copy_is_not_running(tmp_path: Path) -> None:
    async with serving(empty_log(tmp_path), tmp_path) as client:
        for data in (encoded(started("r")) + b"\n", encoded(started("r"))):
            opened_id = await open_id(client, data)
            page = await client.get(f"/api/opened/{opened_id}/runs/r")
            assert page["run"]["status"] == "interrupted"


async def test_opened_files_are_separate_from_each_other_and_the_library(tmp_path: Path) -> None:
    async with serving(empty_log(tmp_path), tmp_path) as client:
        one, other = await open_id(client, log_of("r", 1)), await open_id(client, log_of("r", 2))
        assert len({one, other}) == 2
        assert min(len(one), len(other)) >= 32
        for opened_id, steps in ((one, 1), (other, 2)):
            assert await run_ids(client, opened_id) == ["r"]
            page = await client.get(f"/api/opened/{opened_id}/runs/r")
            assert page["run"]["steps"] == steps
            assert (await client.ask(f"/api/opened/{opened_id}/runs/own")).status == 404
        assert (await client.ask("/api/runs/r")).status == 404


# -- names and bytes of any kind ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("reference.jsonl", "reference"),
        ("../../etc/passwd", "passwd"),
        ("..", "log"),
        ("", "log"),
        ("C:\\logs\\run.jsonl", "run"),
        ("\x00\n\u202e", "log"),
        ("<img src=x>.jsonl", "img_src_x_"),
        ("x" * 5_000, "x" * 100),
        ("\u00fcber uns.jsonl", "ber_uns"),
    ],
)
async def test_the_name_of_an_uploaded_file_is_not_a_path(
    tmp_path: Path, copies: Path, name: str, stem: str
) -> None:
    async with serving(empty_log(tmp_path), tmp_path) as client:
        opened_id = await open_id(client, REFERENCE_LOG.read_bytes(), name)
        assert stem in await run_ids(client, opened_id)
        (path,) = files_in(copies)
        assert path.stem == stem
        title = (await client.get(f"/api/opened/{opened_id}/viewer"))["title"]
        assert title in {name, name[:100], name.replace("\\", "/").split("/")[-1], "log.jsonl"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n\n",
        b"not a log",
        b"\xff\xfe\x00\x01\n",
        b"{" * 200_000 + b"\n",
        b'{"type":' * 50_000 + b"\n",
        b'{"type":"iteration","prompt":' + b"[" * 100_000 + b"\n",
        b"SQLite format 3\0 and nothing else",
        b'{"type":"run_started"}\n[1]\nnull\n',
        b"x" * 3_000_000,
    ],
)
async def test_a_file_that_is_not_a_log_has_no_runs(tmp_path: Path, data: bytes) -> None:
    async with serving(empty_log(tmp_path), tmp_path) as client:
        opened_id = await open_id(client, data)
        answer = await client.ask(f"/api/opened/{opened_id}/runs")
        assert (answer.status, answer.json["runs"]) == (200, [])
        assert str(tmp_path) not in answer.text
        assert (await client.ask(f"/api/opened/{opened_id}/runs/r")).status == 404


async def test_a_line_that_is_too_long_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlm.viewer.record_files.MAX_LINE_BYTES", 1_000)
    monkeypatch.setattr(
        "rlm.records.trajectories.decoding.lines_of.__kwdefaults__", {"max_bytes": 1_000}
    )
    async with serving(empty_log(tmp_path), tmp_path) as client:
        opened_id = await open_id(client, b"x" * 500_000 + b"\n" + log_of("r"))
        found = await client.get(f"/api/opened/{opened_id}/runs")
        assert [run["run_id"] for run in found["runs"]] == ["r"]
        assert found["skipped"]["count"] == 1


async def test_a_journal_can_be_opened(tmp_path: Path) -> None:
    from rlm.records.journal import Journal, Places

    places = Places(tmp_path / "state")
    places.prepare()
    path = places.journal_of("r")
    journal = Journal(path)
    for event in one_run("r"):
        journal.record(event)
    journal.close()
    async with serving(empty_log(tmp_path), tmp_path) as client:
        opened_id = await open_id(client, path.read_bytes(), path.name)
        assert await run_ids(client, opened_id) == ["r"]


# -- access ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"X-RLM-Token": "wrong"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Authorization": "Bearer wrong"},
    ],
)
async def test_other_websites_can_neither_open_nor_close_files(
    tmp_path: Path, copies: Path, headers: dict[str, str]
) -> None:
    async with serving(empty_log(tmp_path), tmp_path) as client:
        assert (await sent(client, log_of("r"), **headers)).status == 403
        assert files_in(copies) == []
        opened_id = await open_id(client, log_of("r"))
        own = {"Origin": client.base, "X-RLM-Token": client.server.access.token.value}
        path = f"/api/opened/{opened_id}"
        assert (await client.ask(path, "DELETE", headers={**own, **headers})).status == 403
        assert await run_ids(client, opened_id) == ["r"]


async def test_an_unknown_file_is_reported_as_no_longer_open(tmp_path: Path) -> None:
    async with serving(empty_log(tmp_path), tmp_path) as client:
        for place in ("viewer", "runs", "live", "runs/own", "runs/own/live", "runs/own/calls"):
            answer = await client.ask(f"/api/opened/{'x' * 32}/{place}")
            assert answer.status == 404
            assert "no longer open" in answer.json["error"]
        assert (await closed(client, "x" * 32)).status == 200
        assert (await client.ask("/api/opened", "PUT")).status == 403
        assert (await client.ask("/api/opened/..%2f../runs")).status == 404


# -- limits ---------------------------------------------------------------------------------------


async def in_pieces(*pieces: bytes) -> AsyncIterator[bytes]:
    """A body of unknown length."""
    for piece in pieces:
        yield piece


@pytest.mark.parametrize("is_claimed", [True, False])
async def test_the_size_of_an_opened_file_is_limited(
    tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch, is_claimed: bool
) -> None:
    monkeypatch.setattr(opened, "MAX_FILE_BYTES", 3_000_000)
    async with serving(empty_log(tmp_path), tmp_path) as client:
        data = b" " * 1_000_000
        body = data * 3 + b" " if is_claimed else in_pieces(data, data, data, b" ")
        answer = await sent(client, body)
        assert answer.status == 413
        assert "larger than 3 MB" in answer.json["error"]
        assert "rlm view FILE" in answer.json["error"]
        assert files_in(copies) == []
        await open_id(client, in_pieces(data, data, data))
        assert [path.stat().st_size for path in files_in(copies)] == [3_000_000]


async def test_the_least_recently_used_file_is_closed_first(
    tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened, "MAX_FILES", 2)
    async with serving(empty_log(tmp_path), tmp_path) as client:
        one, two = await open_id(client, log_of("one")), await open_id(client, log_of("two"))
        assert await run_ids(client, one) == ["one"]
        three = await open_id(client, log_of("three"))
        assert is_open(client, one, two, three) == [True, False, True]
        assert (await client.ask(f"/api/opened/{two}/runs")).status == 404
        assert len(files_in(copies)) == 2


async def test_the_total_size_of_opened_files_is_limited(
    tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened, "MAX_TOTAL_BYTES", 2_500_000)
    async with serving(empty_log(tmp_path), tmp_path) as client:
        ids = [await open_id(client, b"\n" * 1_000_000) for _ in range(4)]
        assert is_open(client, *ids) == [False, False, True, True]
        assert sum(path.stat().st_size for path in files_in(copies)) == 2_000_000
        answer = await sent(client, in_pieces(b" " * 2_000_000, b" " * 600_000))
        assert answer.status == 503
        assert "too large together" in answer.json["error"]
        assert files_in(copies) == []


async def test_the_total_size_of_indexes_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened, "MAX_KEPT_EVENTS", 12)
    async with serving(empty_log(tmp_path), tmp_path) as client:
        one = await open_id(client, log_of("one", 2))  # 10 events
        assert await run_ids(client, one) == ["one"]
        two = await open_id(client, log_of("two", 2))
        assert await run_ids(client, two) == ["two"]
        assert await run_ids(client, two) == ["two"]
        assert is_open(client, one, two) == [False, True]


async def test_a_stalled_upload_ends_and_leaves_nothing(
    tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened, "STALL_SECONDS", 0.05)
    waiting = asyncio.Event()

    async def stalls() -> AsyncIterator[bytes]:
        yield b"{"
        await waiting.wait()

    async with serving(empty_log(tmp_path), tmp_path) as client:
        answer = await sent(client, stalls())
        waiting.set()
        assert answer.status == 503
        assert "in time" in answer.json["error"]
        assert files_in(copies) == []


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_concurrent_uploads_are_limited_and_abandoned_ones_removed(
    tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened, "MAX_UPLOADS", 2)
    waiting = asyncio.Event()

    async def never_ends() -> AsyncIterator[bytes]:
        yield b" " * (2 << 20)
        await waiting.wait()

    async with serving(empty_log(tmp_path), tmp_path) as client:
        uploads = client.server._app._opened._uploads
        tasks = [asyncio.create_task(sent(client, never_ends())) for _ in range(2)]
        await until(lambda: len(uploads) == 2)
        answer = await sent(client, log_of("r"))
        assert answer.status == 503
        assert "wait for one of them" in answer.json["error"]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: not uploads)
        assert files_in(copies) == []
        await open_id(client, log_of("r"))


async def test_a_full_disk_is_reported_in_one_sentence(
    tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async with serving(empty_log(tmp_path), tmp_path) as client:
        monkeypatch.setattr(opened._Upload, "finish", fails)
        answer = await sent(client, log_of("r"))
        assert answer.status == 503
        assert "No space left" in answer.json["error"]
        assert files_in(copies) == []


# -- removal --------------------------------------------------------------------------------------


async def test_closing_a_file_removes_its_copy(tmp_path: Path, copies: Path) -> None:
    async with serving(empty_log(tmp_path), tmp_path) as client:
        one, other = await open_id(client, log_of("r")), await open_id(client, log_of("s"))
        for path in files_in(copies):
            assert path.parent.parent.stat().st_mode & 0o077 == 0
        assert (await closed(client, one)).status == 200
        assert (await client.ask(f"/api/opened/{one}/runs")).status == 404
        assert len(files_in(copies)) == 1
        assert await run_ids(client, other) == ["s"]
    assert is_empty(copies)


async def test_the_viewer_can_stop_during_an_upload(tmp_path: Path, copies: Path) -> None:
    async def never_ends() -> AsyncIterator[bytes]:
        yield b" " * (2 << 20)
        await asyncio.Event().wait()

    async with serving(empty_log(tmp_path), tmp_path) as client:
        task = asyncio.create_task(sent(client, never_ends()))
        await until(lambda: len(client.server._app._opened._uploads) == 1)
        client.server._app.stop()
        await until(lambda: not client.server._app._opened._uploads)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert is_empty(copies)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_leaves_nothing_when_it_ends(
    tmp_path: Path, copies: Path, number: signal.Signals
) -> None:
    path = written(tmp_path / "a.jsonl", one_run("r"))
    with viewing(tmp_path, str(path), TMPDIR=str(copies)) as (address, process):
        base, _, token = address.partition("/?token=")
        headers = {"Authorization": f"Bearer {token}", "Origin": base, "X-RLM-Token": token}
        order = urllib.request.Request(
            f"{base}/api/opened?name=a.jsonl", data=log_of("r"), headers=headers, method="POST"
        )
        with urllib.request.urlopen(order, timeout=60) as response:
            assert json.load(response)["id"]
        assert len(files_in(copies)) == 1
        process.send_signal(number)
        assert process.wait(60) == 0
    assert is_empty(copies)
