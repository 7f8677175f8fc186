"""Bytes are counted: bodies that arrive, wait and are read, and files that are uploaded."""

import asyncio
import gc
import io
import json
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from rlm.limits import Limits
from rlm.server.decoding import weight_of
from tests.server.serving import WITH_REPL, Answer, Client, Held, server, submits, until_done
from tests.server.test_files import _upload
from tests.server.test_slow_clients import _connect
from tests.server.test_tokens import ADA, BOB, _as, _token

LISTS = 100_000


def _body(count: int = LISTS, **more: Any) -> bytes:
    """A request that is small until it is decoded: each of its lists takes 20 times its text."""
    asked = {"model": WITH_REPL, "messages": [{"role": "user", "content": "hi"}], **more}
    start = json.dumps({**asked, "rlm": {"context": []}}).encode()
    return start.removesuffix(b"]}}") + b",".join([b"[]"] * count) + b"]}}"


def _lists() -> int:
    gc.collect()
    return sum(type(each) is list and not each for each in gc.get_objects())


async def _send(client: Client, body: bytes, path: str = "/v1/chat/completions") -> Answer:
    headers = {"Content-Type": "application/json"}
    return await client.ask("POST", path, data=body, headers=headers)


async def _send_in_chunks(client: Client, body: bytes) -> Answer:
    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 10_000):
            yield body[at : at + 10_000]

    headers = {"Content-Type": "application/json"}
    return await client.ask("POST", "/v1/chat/completions", data=chunks(), headers=headers)


async def _until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


# -- bodies ---------------------------------------------------------------------------------------


async def test_bodies_waiting_for_a_slot_are_not_decoded(tmp_path: Path) -> None:
    model = Held(rules=[("", submits("done"))])
    async with server(tmp_path, model, max_concurrent_runs=1) as client:
        before = _lists()
        asked = [asyncio.create_task(_send(client, _body())) for _ in range(4)]
        await _until(lambda: model.waiting and client.service.admission.queued == 3)
        assert _lists() - before < LISTS, "one body at a time becomes values, and not for long"
        model.gate.set()
        answers = await asyncio.gather(*asked)
        assert [answer.status for answer in answers] == [200] * 4
        assert client.service.bodies.memory.used == client.service.bodies.disk.used == 0


@pytest.mark.parametrize("send", [_send, _send_in_chunks])
async def test_a_body_that_needs_too_much_memory_is_refused_before_decoding(
    tmp_path: Path, send: Any
) -> None:
    size = weight_of(_body()).total
    async with server(tmp_path, max_memory_bytes=size - 1) as client:
        refused = await send(client, _body())
        assert (refused.status, refused.json["error"]["code"]) == (413, "request_too_large")
        assert "/v1/files" in refused.json["error"]["message"]
        assert client.service.bodies.memory.used == client.service.bodies.disk.used == 0
        assert client.service.admission.running == 0
    model = Held(rules=[("", submits("done"))])
    model.gate.set()
    async with server(tmp_path, model, max_memory_bytes=size) as client:
        assert (await send(client, _body())).status == 200


@pytest.mark.heavy
async def test_bodies_that_do_not_fit_in_memory_together_are_read_in_turn(
    tmp_path: Path,
) -> None:
    model = Held(rules=[("", submits("done"))])
    most = weight_of(_body()).total + len(_body())
    async with server(tmp_path, model, max_memory_bytes=most) as client:
        seen = 0
        asked = [asyncio.create_task(_send(client, _body())) for _ in range(3)]
        model.gate.set()
        while not all(task.done() for task in asked):
            seen = max(seen, client.service.bodies.memory.used)
            await asyncio.sleep(0)
        assert [task.result().status for task in asked] == [200] * 3
    assert 0 < seen <= most


async def test_a_body_that_waits_too_long_gets_a_retry_after(tmp_path: Path) -> None:
    model = Held(rules=[("", submits("done"))])
    most = weight_of(_body()).total + len(_body())
    options: dict[str, Any] = {"max_memory_bytes": most, "queue_seconds": 0.05}
    async with server(tmp_path, model, **options) as client:
        asked = [asyncio.create_task(_send(client, _body())) for _ in range(2)]
        await until_done(asked, 1)
        refused = next(task.result() for task in asked if task.done())
        assert (refused.status, refused.json["error"]["code"]) == (503, "bytes_exceeded")
        assert int(refused.headers["Retry-After"]) >= 1
        model.gate.set()
        assert sorted(task.status for task in await asyncio.gather(*asked)) == [200, 503]
        assert client.service.bodies.memory.used == 0


async def test_an_announced_body_that_never_arrives_reserves_no_memory(tmp_path: Path) -> None:
    model = Held(rules=[("", submits("done"))])
    model.gate.set()
    most = weight_of(_body()).total + len(_body())
    async with server(tmp_path, model, max_memory_bytes=most, body_seconds=20) as client:
        host = client.base.removeprefix("http://")
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\n"
            "Content-Type: application/json\r\nContent-Length: 60000000\r\n\r\n"
        ).encode()
        slow = [await _connect(client) for _ in range(20)]
        for _, writer in slow:
            writer.write(head + b"{" * 100_000)
        await _until(lambda: client.service.bodies.disk.used >= 20 * 100_000)
        assert (await _send(client, _body())).status == 200
        for _, writer in slow:
            writer.close()
        await _until(lambda: client.service.bodies.disk.used == 0)


@pytest.mark.parametrize("send", [_send, _send_in_chunks])
async def test_waiting_bodies_share_a_disk_quota(tmp_path: Path, send: Any) -> None:
    model = Held(rules=[("", submits("done"))])
    most = 2 * len(_body()) + 1_000
    async with server(tmp_path, model, max_concurrent_runs=1, max_bodies_bytes=most) as client:
        asked = [asyncio.create_task(send(client, _body())) for _ in range(6)]
        await until_done(asked, 3)
        assert client.service.bodies.disk.used <= most
        model.gate.set()
        answers = await asyncio.gather(*asked)
        refused = [answer for answer in answers if answer.status != 200]
        assert {answer.status for answer in refused} == {503}
        assert all(int(answer.headers["Retry-After"]) >= 1 for answer in refused)
        assert client.service.bodies.disk.used == 0


async def test_one_token_cannot_take_all_the_memory(tmp_path: Path) -> None:
    model = Held(rules=[("", submits("done"))])
    tokens = [_token("ada", ADA), _token("bob", BOB)]
    size = weight_of(_body()).total
    async with server(tmp_path, model, tokens=tokens, max_memory_bytes=2 * size + 1) as client:
        headers = {"Content-Type": "application/json"}

        async def send(secret: str) -> Answer:
            return await client.ask(
                "POST", "/v1/chat/completions", data=_body(), headers={**headers, **_as(secret)}
            )

        hers = [asyncio.create_task(send(ADA)) for _ in range(3)]
        await _until(lambda: model.waiting >= 1)
        his = asyncio.create_task(send(BOB))
        await _until(lambda: model.waiting >= 2)
        model.gate.set()
        answers = await asyncio.gather(*hers, his)
    assert [answer.status for answer in answers] == [200] * 4


async def test_a_background_run_is_charged_for_the_memory_it_keeps(tmp_path: Path) -> None:
    model = Held(rules=[("", submits("done"))])
    context = b",".join([b"[]"] * LISTS)
    body = b'{"model":"%s","query":"hi","context":[%s]}' % (WITH_REPL.encode(), context)
    async with server(tmp_path, model, limits=Limits(max_seconds=60, max_steps=2)) as client:
        begun = await _send(client, body, "/v1/runs")
        assert begun.status == 202, begun.text
        await _until(lambda: model.waiting)
        assert len(body) <= client.service.bodies.memory.used <= 4 * len(body)
        model.gate.set()
        await _until(lambda: not client.service.bodies.memory.used)


async def test_errors_in_a_large_body_are_reported_and_its_memory_is_released(
    tmp_path: Path,
) -> None:
    async with server(tmp_path) as client:
        for body in (_body()[:-1], _body(model=7), b"[" * 200_000, b'"' + b"x" * 200_000):
            answer = await _send(client, body)
            assert answer.status == 400, answer.text
        service = client.service
        assert service.bodies.memory.used == service.bodies.disk.used == 0
        assert service.admission.running == 0


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b",".join([b"[]"] * 20_000) + b"]",
        b"[" + b",".join([b"{}"] * 20_000) + b"]",
        b"[" + b",".join([b'{"a":1}'] * 20_000) + b"]",
        b"[" + b",".join([b"1.25"] * 20_000) + b"]",
        b"[" + b",".join([b'"ab"'] * 20_000) + b"]",
        b"[" + b",".join([b"[[[[[[[[]]]]]]]]"] * 2_000) + b"]",
        b"{" + b",".join(b'"key%d":%d' % (n, n) for n in range(20_000)) + b"}",
        b'["' + b"x" * 300_000 + b'"]',
        ('["' + "x" * 300_000 + '\U0001f600"]').encode(),
        b'["' + b"x" * 300_000 + b'\\ud83d\\ude00"]',
        b'["' + b'{\\"a\\":[1,2]}' * 20_000 + b'"]',
        b'["' + b"\\u4e00" * 50_000 + b'"]',
    ],
    ids=lambda body: body[:24].decode(),
)
def test_decoding_a_body_never_takes_more_memory_than_estimated(body: bytes) -> None:
    tracemalloc.start()
    value = msgspec.json.decode(body)
    peak = tracemalloc.get_traced_memory()[1] + len(body)
    tracemalloc.stop()
    assert value
    assert peak <= weight_of(body).total <= 4 * peak


# -- files ----------------------------------------------------------------------------------------

QUOTA = 3_000_000


def _kept(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "state/server/files").rglob("data"))


async def _upload_in_chunks(client: Client, data: bytes) -> Answer:
    form = aiohttp.FormData(quote_fields=False)
    form.add_field("purpose", "user_data")
    form.add_field("file", io.BytesIO(data), filename="a.txt", content_type="text/plain")
    made = form()

    async def chunks() -> AsyncIterator[bytes]:
        written: Any = _Written()
        await made.write(written)
        for at in range(0, len(written.data), 50_000):
            yield bytes(written.data[at : at + 50_000])

    headers = {"Content-Type": made.content_type}
    return await client.ask("POST", "/v1/files", data=chunks(), headers=headers)


class _Written:
    def __init__(self) -> None:
        self.data = bytearray()

    async def write(self, data: bytes) -> None:
        self.data += data


@pytest.mark.parametrize("upload", [_upload, _upload_in_chunks])
async def test_concurrent_uploads_share_one_quota(tmp_path: Path, upload: Any) -> None:
    async with server(tmp_path, max_files_bytes=QUOTA) as client:
        answers = await asyncio.gather(*(upload(client, b"x" * 1_000_000) for _ in range(12)))
        statuses = [answer.status for answer in answers]
        assert statuses.count(200) <= 3
        assert set(statuses) <= {200, 413}
        assert _kept(tmp_path) <= QUOTA
        left = QUOTA // 1_000_000 - statuses.count(200)
        for _ in range(left):
            assert (await upload(client, b"x" * 1_000_000)).status == 200, "nothing stays reserved"
        assert (await upload(client, b"x")).status == 413
        assert _kept(tmp_path) == QUOTA


async def test_an_upload_that_fails_releases_its_quota(tmp_path: Path) -> None:
    async with server(tmp_path, max_files_bytes=QUOTA, max_file_bytes=QUOTA) as client:
        host = client.base.removeprefix("http://")
        head = (
            f"POST /v1/files HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2900000\r\n"
            "Content-Type: multipart/form-data; boundary=x\r\n\r\n"
            '--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        ).encode()
        _, writer = await _connect(client)
        writer.write(head + b"x" * 2_000_000)
        await writer.drain()
        files = client.service.files
        await _until(lambda: sum(files._bytes.values()) >= 1_900_000)
        assert (await _upload(client, b"x" * 1_500_000)).status == 413
        writer.close()
        await _until(lambda: sum(files._bytes.values()) == 0)
        assert (await client.ask("POST", "/v1/files", data={"purpose": "user_data"})).status == 415
        assert (await _upload(client, b"x" * QUOTA)).status == 200
        assert not list((tmp_path / "state/server/files").rglob(".*"))


async def test_a_deleted_file_releases_quota_once_and_a_restart_recounts(tmp_path: Path) -> None:
    async with server(tmp_path, max_files_bytes=QUOTA) as client:
        ids = [(await _upload(client, b"x" * 1_000_000)).json["id"] for _ in range(3)]
        gone = await asyncio.gather(
            *(client.ask("DELETE", f"/v1/files/{ids[0]}") for _ in range(5))
        )
        assert sorted(answer.status for answer in gone) == [200, 404, 404, 404, 404]
        assert (await _upload(client, b"x" * 1_000_001)).status == 413
    (home,) = (tmp_path / "state/server/files").iterdir()
    left = home / f".{ids[0]}"
    left.mkdir()
    (left / "data").write_bytes(b"x" * 1_000_000)
    async with server(tmp_path, max_files_bytes=QUOTA) as client:
        assert not left.exists(), "what a killed server was receiving is gone"
        assert (await _upload(client, b"x" * 1_000_001)).status == 413
        assert (await _upload(client, b"x" * 1_000_000)).status == 200
        assert (await _upload(client, b"x")).status == 413
