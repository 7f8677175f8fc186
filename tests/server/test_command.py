"""`rlm serve` as users start and end it: with a signal, with a kill, and with wrong options."""

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rlm.testing.fake_server import Answer, FakeServer
from tests.cli.running import command
from tests.processes import descendants, is_running
from tests.server.command import MODEL, served, variables_of
from tests.server.serving import submits

GOES_ON = "```repl\nprint('reading')\n```"


def _body(content: str = "hello", **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], **more}


async def _until_asked(model: FakeServer, count: int) -> None:
    async with asyncio.timeout(60):
        while model.in_flight + model.count < count:
            await asyncio.sleep(0.02)


async def test_a_server_answers_and_ends_without_leaving_anything(tmp_path: Path) -> None:
    script = ["hello there", submits("the answer")]
    with FakeServer(script) as model, served(tmp_path, model, "--token", "a-long-token") as one:
        headers = {"Authorization": "Bearer a-long-token"}
        async with aiohttp.ClientSession(headers=headers) as session:
            address = f"{one.base}/v1/chat/completions"
            async with session.post(address, json=_body()) as response:
                direct = await response.json()
            async with session.post(address, json=_body(rlm={"context": "x"})) as response:
                answered = await response.json()
        below = descendants(one.process.pid)
        code = await asyncio.to_thread(one.end)
    assert direct["choices"][0]["message"]["content"] == "hello there"
    assert answered["choices"][0]["message"]["content"] == "the answer"
    assert code == 0
    assert below, "cells ran in processes of their own"
    assert not [pid for pid in below if is_running(pid)]
    said = "\n".join(one.lines)
    assert "curl http" in said
    assert said.count("POST /v1/chat/completions 200") == 2
    assert "a-long-token" not in said
    assert "hello there" not in said
    assert one.lines[-1] == "The server has stopped."


async def test_a_stream_is_completed_before_the_server_ends(tmp_path: Path) -> None:
    slow = Answer(reply="one two three", delay_seconds=1.0)
    with FakeServer([slow]) as model, served(tmp_path, model) as one:
        async with aiohttp.ClientSession() as session:
            address = f"{one.base}/v1/chat/completions"
            async with session.post(address, json=_body(stream=True)) as response:
                await _until_asked(model, 1)
                one.process.send_signal(signal.SIGTERM)
                text = await response.text()
        assert await asyncio.to_thread(one.end) == 0
    assert "three" in text
    assert text.endswith("data: [DONE]\n\n")


@pytest.mark.heavy
async def test_after_the_grace_period_a_stream_says_why_it_ends(tmp_path: Path) -> None:
    never = Answer(reply="never", delay_seconds=60.0)
    with FakeServer([never]) as model, served(tmp_path, model, "--grace", "0.5") as one:
        async with aiohttp.ClientSession() as session:
            address = f"{one.base}/v1/chat/completions"
            async with session.post(address, json=_body(stream=True)) as response:
                await _until_asked(model, 1)
                one.process.send_signal(signal.SIGTERM)
                text = await response.text()
        assert await asyncio.to_thread(one.end) == 0
    assert '"code":"shutting_down"' in text


@pytest.mark.heavy
async def test_further_signals_do_not_shorten_the_grace_period(tmp_path: Path) -> None:
    with FakeServer(["hello"]) as model, served(tmp_path, model) as one:
        address = f"{one.base}/health"
        async with aiohttp.ClientSession() as session, session.get(address) as response:
            assert response.status == 200  # By now it handles signals.
        while one.process.poll() is None:
            one.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.001)
        assert await asyncio.to_thread(one.end) == 0


async def _run(session: aiohttp.ClientSession, base: str, run_id: str) -> Any:
    async with session.get(f"{base}/v1/runs/{run_id}") as response:
        return await response.json()


@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGTERM, marks=pytest.mark.heavy), signal.SIGKILL]
)
async def test_a_background_run_continues_in_the_next_server(
    tmp_path: Path, how: signal.Signals
) -> None:
    first: list[str | Answer] = [GOES_ON, Answer(reply="never", delay_seconds=60.0)]
    async with aiohttp.ClientSession() as session:
        with FakeServer(first) as model, served(tmp_path, model, "--grace", "0.2") as one:
            body = {"model": MODEL, "query": "what?", "context": "some text"}
            async with session.post(f"{one.base}/v1/runs", json=body) as response:
                assert response.status == 202
                run_id = (await response.json())["id"]
            await _until_asked(model, 2)
            await asyncio.to_thread(one.end, how)
        with FakeServer([submits("at last")]) as model, served(tmp_path, model) as one:
            async with asyncio.timeout(60):
                while (run := await _run(session, one.base, run_id))["status"] != "completed":
                    await asyncio.sleep(0.05)
            async with session.get(f"{one.base}/v1/runs/{run_id}/events") as response:
                lines = [line async for line in response.content if line.startswith(b"data: {")]
            events = [json.loads(line[6:]) for line in lines]
            assert model.count == 1, "what was paid for is not asked for again"
            await asyncio.to_thread(one.end)
    assert run["answer"] == "at last"
    assert [event["type"] for event in events[:-1]].count("run_started") == 2


def _fails(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        command("serve", "-m", "offline/extractive", *arguments),
        env=variables_of(folder, None),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in {1, 2}, done
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


@pytest.mark.heavy
def test_wrong_options_are_reported_in_one_line(tmp_path: Path) -> None:
    assert "--token" in _fails(tmp_path, "--host", "0.0.0.0")
    assert "No such file" in _fails(tmp_path, "--tokens-file", "nowhere.toml")
    assert "8 characters" in _fails(tmp_path, "--token", "short")
    assert "does not name a provider" in _fails(tmp_path, "-m", "nonsense")
    assert "nonsense" in _fails(tmp_path, "--environment", "nonsense")


@pytest.mark.heavy
def test_two_servers_do_not_share_a_folder(tmp_path: Path) -> None:
    with FakeServer(["hello"]) as model, served(tmp_path, model):
        assert "serves from" in _fails(tmp_path, "--port", "0")


@pytest.mark.heavy
def test_a_port_that_is_taken_is_reported(tmp_path: Path) -> None:
    with FakeServer(["hello"]) as model, served(tmp_path, model) as one:
        port = one.base.rpartition(":")[2]
        other = tmp_path / "other"
        other.mkdir()
        assert f"port {port} is taken" in _fails(other, "--port", port)
