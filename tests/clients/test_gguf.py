"""GGUF files: what their heads say, damaged ones, and the client on a stand-in for the library.

The library itself, with a real model, is in tests/local_model.
"""

import asyncio
import contextlib
import struct
import sys
import tempfile
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.clients.gguf import GGUFClient, read_header
from rlm.errors import ConfigError, ModelError
from rlm.messages import Price, Reply, Usage
from rlm.protocols import Client
from tests.clients.misbehaving import asked, delta

# -- files ----------------------------------------------------------------------------------------


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def entry(key: str, kind: int, data: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + data


def gguf(
    *, window: int = 4_096, rows: int = 1_000, more: bytes = b"", entries: int = 0, version: int = 3
) -> bytes:
    """A small file of one tensor, as the format has it."""
    facts = [
        entry("general.architecture", 8, text("toy")),
        entry("general.name", 8, text("Toy 1B")),
        entry("toy.context_length", 4, struct.pack("<I", window)),
        entry("tokenizer.chat_template", 8, text("{{ messages }}")),
        entry("tokenizer.tokens", 9, struct.pack("<IQ", 8, 2) + text("a") + text("b")),
        entry("tokenizer.scores", 9, struct.pack("<IQ", 6, 3) + b"\0" * 12),
        entry("toy.flag", 7, b"\1"),
    ]
    shape = text("weights") + struct.pack("<IQQIQ", 2, rows, 1_000, 0, 0)
    head = b"GGUF" + struct.pack("<IQQ", version, 1, len(facts) + entries)
    return head + b"".join(facts) + more + shape + b"\0" * 64


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "toy.gguf"
    path.write_bytes(gguf())
    return path


def test_the_header_has_the_window_and_size(model: Path) -> None:
    header = read_header(model)
    assert header.name == "Toy 1B"
    assert (header.window_tokens, header.parameters) == (4_096, 1_000_000)


@pytest.mark.parametrize("end", [4, 20, 60, 200, 300])
def test_a_truncated_file_is_reported(model: Path, end: int) -> None:
    model.write_bytes(gguf()[:end])
    with pytest.raises(ValueError, match=r"download complete|room for"):
        read_header(model)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"PK\3\4 not a model at all", "does not begin"),
        (gguf(version=1), "version 1"),
        (gguf(more=entry("x", 77, b""), entries=1), "type 77"),
        (gguf(more=entry("x", 9, struct.pack("<IQ", 9, 1)), entries=1), "nested arrays"),
        (gguf(more=entry("x", 9, struct.pack("<IQ", 0, 1 << 60)), entries=1), "room for"),
        (gguf(more=text("x")[:-1] + b"\xff", entries=1), r"damaged|download complete"),
    ],
)
def test_a_damaged_file_is_reported(model: Path, data: bytes, words: str) -> None:
    model.write_bytes(data)
    with pytest.raises(ValueError, match=words):
        read_header(model)


@given(st.binary(max_size=400), st.integers(0, 400))
def test_any_file_content_is_read_or_refused(data: bytes, place: int) -> None:
    whole = gguf()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any.gguf"
        for content in (data, b"GGUF\3\0\0\0" + data, whole[:place] + data + whole[place:]):
            path.write_bytes(content)
            with contextlib.suppress(ValueError):
                assert read_header(path).parameters >= 0


# -- the client -----------------------------------------------------------------------------------


class StandIn:
    """What we use of xllamacpp. `answers` writes the chunks of one request."""

    def __init__(self) -> None:
        self.loads = 0
        self.freed = threading.Event()
        self.fails = False
        self.settings: Any = None
        self.bodies: list[dict[str, Any]] = []
        self.answers: Callable[[dict[str, Any], Callable[[Any], bool]], object] = hello

    def install(self, monkeypatch: pytest.MonkeyPatch) -> "StandIn":
        outer = self

        class CommonParams:
            def __init__(self) -> None:
                for name in ("model", "mmproj", "cpuparams", "cpuparams_batch"):
                    setattr(self, name, types.SimpleNamespace())

        class Server:
            def __init__(self, settings: Any) -> None:
                outer.loads += 1
                outer.settings = settings
                if outer.fails:
                    raise RuntimeError("Failed to init server.")
                assert Path(settings.hostnames[0]).parent.stat().st_mode & 0o077 == 0

            def handle_chat_completions(self, body: Any, take: Callable[[Any], bool]) -> None:
                outer.bodies.append(body)
                outer.answers(body, take)

            def __del__(self) -> None:
                outer.freed.set()

        module = types.ModuleType("xllamacpp")
        vars(module).update(CommonParams=CommonParams, Server=Server)
        monkeypatch.setitem(sys.modules, "xllamacpp", module)
        return self


def hello(body: dict[str, Any], take: Callable[[Any], bool]) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    chunks = [delta("hel"), delta("lo"), delta(finish="stop"), {"choices": [], "usage": usage}]
    for chunk in chunks:
        if take(chunk):
            return


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return StandIn().install(monkeypatch)


def test_without_the_library_the_error_says_what_to_install(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ConfigError, match=r"pip install 'recursivelm\[gguf\]'"):
        GGUFClient.for_model(str(model))


async def test_the_first_request_loads_the_model_and_streams(library: StandIn, model: Path) -> None:
    client: Client = GGUFClient.for_model(str(model), threads=3)
    assert library.loads == 0
    parts = [part async for part in client.stream(asked(), timeout_seconds=5)]
    assert parts[:2] == ["hel", "lo"]
    assert await client.complete(asked(grows=True), timeout_seconds=5) == parts[2]
    assert isinstance(parts[2], Reply)
    assert (parts[2].text, parts[2].usage) == ("hello", Usage(5, 2, requests=1))
    first, second = library.bodies
    assert first["messages"] == [{"role": "user", "content": "hi"}]
    assert (first["max_tokens"], first["stream"], first["cache_prompt"]) == (50, True, False)
    assert second["cache_prompt"]
    assert (library.loads, library.settings.n_ctx) == (1, 4_096)
    assert library.settings.cpuparams.n_threads == 3
    assert not Path(library.settings.hostnames[0]).parent.exists()  # nobody else can connect
    await client.close()
    assert library.freed.is_set()
    await client.close()
    await client.complete(asked(), timeout_seconds=5)
    assert library.loads == 2


@pytest.mark.parametrize(
    ("rows", "profile"),
    [(500_000, "tiny"), (3_100_000, "tiny"), (8_000_000, "small"), (70_000_000, "standard")],
)
def test_the_profile_depends_on_the_size(
    library: StandIn, model: Path, rows: int, profile: str
) -> None:
    model.write_bytes(gguf(rows=rows))
    info = GGUFClient(model).info("any")
    assert (info.profile, info.price, info.window_tokens) == (profile, Price(0.0, 0.0), 4_096)


def test_a_changed_file_has_another_identity(library: StandIn, model: Path) -> None:
    first = GGUFClient(model).identity
    assert GGUFClient(model).identity == first
    assert GGUFClient(model, window_tokens=99).identity != first
    model.write_bytes(gguf(window=5_000) + b"\0")
    assert GGUFClient(model).identity != first


def test_large_windows_are_capped_unless_requested(library: StandIn, model: Path) -> None:
    model.write_bytes(gguf(window=1_000_000))
    assert GGUFClient(model).info("").window_tokens == 32_768
    assert GGUFClient(model, window_tokens=100_000, profile="small").info("").profile == "small"


@pytest.mark.parametrize("option", ["slots", "window_tokens", "threads"])
def test_options_below_one_are_refused(library: StandIn, model: Path, option: str) -> None:
    options: dict[str, Any] = {option: 0}
    with pytest.raises(ConfigError, match=option):
        GGUFClient(model, **options)


def test_a_path_that_is_not_a_model_is_refused_before_loading(
    library: StandIn, model: Path
) -> None:
    for path, words in (
        (model.with_name("none.gguf"), "does not exist"),
        (model.parent, "cannot be used"),
    ):
        with pytest.raises(ConfigError, match=words):
            GGUFClient(path)
    with pytest.raises(ConfigError, match="does not exist"):
        GGUFClient(model, projector=model.with_name("none.gguf"))
    model.write_bytes(gguf()[:100])
    with pytest.raises(ConfigError, match="download complete"):
        GGUFClient(model)


async def test_loading_a_broken_model_is_tried_once(library: StandIn, model: Path) -> None:
    library.fails = True
    client = GGUFClient(model)
    for _ in range(2):
        with pytest.raises(ConfigError, match="could not be loaded"):
            await client.complete(asked(), timeout_seconds=5)
    assert library.loads == 1


@pytest.mark.parametrize(
    ("chunk", "status", "words"),
    [
        ({"error": {"code": 400, "type": "exceed_context_size_error"}}, 400, "raise window"),
        ({"error": {"code": 503, "message": "busy"}}, 503, "busy"),
        ({"error": "odd"}, None, "odd"),
        ({"error": {"code": "x", "message": None}}, None, "unknown"),
    ],
)
async def test_an_error_reported_by_the_library_is_a_model_error(
    library: StandIn, model: Path, chunk: Any, status: int | None, words: str
) -> None:
    library.answers = lambda body, take: take(chunk)
    with pytest.raises(ModelError, match=words) as caught:
        await GGUFClient(model).complete(asked(), timeout_seconds=5)
    assert (caught.value.status, caught.value.ambiguous) == (status, False)
    assert caught.value.retryable == (status == 503)


@pytest.mark.parametrize("error", [ValueError("bad field"), RuntimeError("native trouble")])
async def test_an_exception_of_the_library_is_a_model_error(
    library: StandIn, model: Path, error: Exception
) -> None:
    def fails(body: Any, take: Any) -> None:
        raise error

    library.answers = fails
    with pytest.raises(ModelError, match=str(error)):
        await GGUFClient(model).complete(asked(), timeout_seconds=5)


@pytest.mark.parametrize("chunk", [None, [], "x", {}, {"choices": 3}, {"choices": [{"delta": 1}]}])
async def test_odd_chunks_are_a_model_error_and_not_a_crash(
    library: StandIn, model: Path, chunk: Any
) -> None:
    library.answers = lambda body, take: take(chunk)
    with pytest.raises(ModelError, match="broke off"):
        await GGUFClient(model).complete(asked(), timeout_seconds=5)


async def test_a_cancelled_request_tells_the_library_to_stop(library: StandIn, model: Path) -> None:
    writing, stopped = threading.Event(), threading.Event()

    def endless(body: Any, take: Callable[[Any], bool]) -> None:
        while not take(delta("word ")):
            writing.set()
        stopped.set()

    library.answers = endless
    client = GGUFClient(model)
    task = asyncio.create_task(client.complete(asked(), timeout_seconds=60))
    await asyncio.to_thread(writing.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(stopped.wait, 10)


async def test_requests_wait_for_a_slot_and_those_that_timed_out_never_start(
    library: StandIn, model: Path
) -> None:
    release = threading.Event()

    def slow(body: Any, take: Callable[[Any], bool]) -> None:
        release.wait()
        hello(body, take)

    library.answers = slow
    client = GGUFClient(model)
    first = asyncio.create_task(client.complete(asked("first"), timeout_seconds=60))
    while not library.bodies:
        await asyncio.sleep(0.01)
    with pytest.raises(ModelError, match="1 request at a time") as caught:
        await client.complete(asked("late"), timeout_seconds=0.05)
    assert caught.value.retryable
    release.set()
    assert (await first).text == "hello"
    assert (await client.complete(asked("third"), timeout_seconds=10)).text == "hello"
    assert [body["messages"][0]["content"] for body in library.bodies] == ["first", "third"]
