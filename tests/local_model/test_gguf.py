"""The client on the real library and a real model: stopping, repeating, freeing, damaged files."""

import asyncio
import ctypes
import signal
from pathlib import Path
from typing import Any

import pytest

from rlm.clients.gguf import GGUFClient
from rlm.errors import ConfigError, ModelError
from rlm.messages import Reply
from tests.clients.misbehaving import asked

pytestmark = pytest.mark.heavy
SECONDS = 1_800.0
"""No test here is about time; this only ends one that would never end."""


def anonymous_kib() -> int:
    """Return anonymous memory of this process, which a loaded model uses besides its weights."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def handler_of(number: int) -> bytes:
    """The native handler of a signal, which Python itself can't see being replaced."""
    found = ctypes.create_string_buffer(256)
    ctypes.CDLL(None).sigaction(number, None, found)
    return found.raw[:8]


def listening_ports() -> list[str]:
    """Inodes of this process's sockets that accept connections from the network."""
    own = {str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.is_socket()}
    rows = [row.split() for row in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]]
    return [row[9] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own]


async def test_the_chat_template_is_applied_and_usage_reported(client: GGUFClient) -> None:
    before = [handler_of(number) for number in (signal.SIGINT, signal.SIGTERM)]
    ports = listening_ports()
    request = asked("Say hello.", sampling={"temperature": 0, "seed": 1})
    parts = [part async for part in client.stream(request, timeout_seconds=SECONDS)]
    reply = parts[-1]
    assert isinstance(reply, Reply)
    assert "hello" in reply.text.lower()
    assert "<|im" not in reply.text
    assert reply.finish_reason == "stop"
    assert "".join(part for part in parts if isinstance(part, str)) == reply.text
    assert reply.usage is not None
    assert 1 <= reply.usage.output_tokens <= 50
    assert 3 < reply.usage.input_tokens < 100
    assert [handler_of(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert listening_ports() == ports


async def test_the_same_seed_gives_the_same_reply_and_the_cap_holds(client: GGUFClient) -> None:
    texts = []
    for seed in (5, 6, 5):
        request = asked(
            "Write three random words.",
            max_output_tokens=12,
            sampling={"temperature": 1.5, "seed": seed},
        )
        reply = await client.complete(request, timeout_seconds=SECONDS)
        assert reply.usage is not None
        assert reply.usage.output_tokens <= 12
        texts.append(reply.text)
    assert texts[0] == texts[2] != texts[1]


@pytest.mark.parametrize("while_reading", [False, True])
async def test_cancelling_a_request_stops_generation(
    client: GGUFClient, while_reading: bool
) -> None:
    prompt = "word " * 3_000 if while_reading else "Write a very long story."
    written: list[Any] = []

    async def follow() -> None:
        request = asked(prompt, max_output_tokens=900)
        async for part in client.stream(request, timeout_seconds=SECONDS):
            written.append(part)  # noqa: PERF401 - it is looked at before the stream ends

    task = asyncio.create_task(follow())
    while not (written or (while_reading and client._threads._running and client._server)):
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await client._threads.ended(SECONDS)
    assert not any(isinstance(part, Reply) for part in written)
    short = asked("Say hello.", max_output_tokens=5)
    assert (await client.complete(short, timeout_seconds=SECONDS)).text


async def test_a_prompt_that_does_not_fit_the_window_is_refused(client: GGUFClient) -> None:
    with pytest.raises(ModelError, match="raise window_tokens") as caught:
        await client.complete(asked("x " * 9_000), timeout_seconds=SECONDS)
    assert (caught.value.status, caught.value.retryable) == (400, False)
    for wrong in ({"temperature": "hot"}, {"grammar": "root ::= ("}):
        with pytest.raises(ModelError):
            await client.complete(asked(sampling=wrong), timeout_seconds=SECONDS)


async def test_closing_frees_the_memory(model_path: Path) -> None:
    client = GGUFClient(model_path, window_tokens=16_384)
    await client.complete(asked("Hi", max_output_tokens=2), timeout_seconds=SECONDS)
    loaded = anonymous_kib()
    await client.close()
    assert anonymous_kib() < loaded - 100_000  # the window alone takes 190 MiB


async def test_a_damaged_file_is_reported_and_does_not_end_the_process(
    model_path: Path, tmp_path: Path
) -> None:
    whole = await asyncio.to_thread(model_path.read_bytes)
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ConfigError, match="download complete"):
        GGUFClient(cut)
    cut.write_bytes(whole[:-1_000_000])  # the last tensor is incomplete
    with pytest.raises(ConfigError, match=r"could not be loaded|download complete"):
        await GGUFClient(cut).complete(asked(), timeout_seconds=SECONDS)
    odd = tmp_path / "odd.gguf"
    odd.write_bytes(whole.replace(b"qwen2", b"qwenX"))
    with pytest.raises(ConfigError, match="could not be loaded"):
        await GGUFClient(odd).complete(asked(), timeout_seconds=SECONDS)
