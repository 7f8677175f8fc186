"""One tenant sends requests that take forever; the server still answers all others."""

import asyncio
import os
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rlm.testing.fake_server import FakeServer
from tests.hostile import NEVER_MATCHES, SLOW_PATTERN, reference_bomb
from tests.server.command import MODEL, Served, served
from tests.server.serving import submits

SECONDS = 60


def _body(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": "hello"}],
        "rlm": {"context": "x", "limits": {"max_steps": 1}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
        **more,
    }


async def _posted(session: aiohttp.ClientSession, one: Served, body: Any) -> tuple[int, Any]:
    async with session.post(f"{one.base}/v1/chat/completions", json=body) as response:
        return response.status, await response.json()


async def _models(session: aiohttp.ClientSession, one: Served) -> int:
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with session.get(f"{one.base}/v1/models", timeout=timeout) as response:
        return response.status


@pytest.mark.heavy
async def test_other_requests_are_answered_while_a_schema_is_checked(tmp_path: Path) -> None:
    with FakeServer(["unused"]) as model, served(tmp_path, model) as one:
        async with aiohttp.ClientSession() as session:
            body = _body(reference_bomb())
            hostile = [asyncio.create_task(_posted(session, one, body)) for _ in range(3)]
            await asyncio.sleep(0.5)  # They are there first, whatever that means for the others.
            assert [await _models(session, one) for _ in range(3)] == [200] * 3
            assert not any(task.done() for task in hostile)
            answers = await asyncio.gather(*hostile)
    for status, answer in answers:
        assert status == 400
        assert answer["error"]["param"] == "response_format"
        assert "too much time" in answer["error"]["message"]
    assert model.count == 0


@pytest.mark.heavy
async def test_other_requests_are_answered_while_an_answer_is_checked(tmp_path: Path) -> None:
    """A slow pattern, and a model that submits a text it never matches."""
    schema = {"type": "string", "pattern": SLOW_PATTERN}
    with FakeServer([submits(NEVER_MATCHES)] * 9) as model, served(tmp_path, model) as one:
        async with aiohttp.ClientSession() as session:
            hostile = asyncio.create_task(_posted(session, one, _body(schema)))
            async with asyncio.timeout(SECONDS):
                while not model.count:
                    await asyncio.sleep(0.02)
            await asyncio.sleep(1.0)  # Its cell runs, and then its answer is being checked.
            assert await _models(session, one) == 200
            assert not hostile.done()
            status, answer = await hostile
    assert status in {200, 500, 502}, answer


ENDLESS = """
import time

XLRDError = ValueError

def open_workbook(**options):
    time.sleep(10_000)
"""
"""In place of the package `xlrd`, which reads old workbooks."""


async def _uploaded(session: aiohttp.ClientSession, one: Served, name: str, data: bytes) -> str:
    form = aiohttp.FormData()
    form.add_field("purpose", "user_data")
    form.add_field("file", data, filename=name)
    async with session.post(f"{one.base}/v1/files", data=form) as response:
        assert response.status == 200, await response.text()
        return str((await response.json())["id"])


async def test_other_requests_are_answered_while_documents_are_converted(tmp_path: Path) -> None:
    """Documents whose conversion never ends, more than the server has threads."""
    packages = tmp_path / "installed"
    packages.mkdir()
    (packages / "xlrd.py").write_text(ENDLESS, "utf-8")
    (packages / "openpyxl.py").write_text("", "utf-8")
    path = os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])
    answers = ["```repl\nFINAL(context)\n```"]
    with (
        FakeServer(answers) as model,
        served(
            tmp_path, model, "--max-concurrent-runs", "100", "--grace", "600", PYTHONPATH=path
        ) as one,
    ):
        async with aiohttp.ClientSession() as session:
            bomb = await _uploaded(session, one, "a.xls", b"old")
            notes = await _uploaded(session, one, "a.txt", b"notes")
            body = {"model": MODEL, "messages": [{"role": "user", "content": "what is in it?"}]}
            hostile = [
                asyncio.create_task(_posted(session, one, {**body, "rlm": {"file_ids": [bomb]}}))
                for _ in range(40)
            ]
            await asyncio.sleep(2.0)
            async with asyncio.timeout(SECONDS):
                more = await _uploaded(session, one, "b.txt", b"more")
                status, answer = await _posted(
                    session, one, {**body, "rlm": {"file_ids": [notes, more]}}
                )
            assert not any(task.done() for task in hostile)
            assert status == 200, answer
            assert "notes" in answer["choices"][0]["message"]["content"]
            for task in hostile:
                task.cancel()
            await asyncio.gather(*hostile, return_exceptions=True)
        # Its end does not wait for abandoned requests.
        assert await asyncio.to_thread(one.end) == 0
