"""The JSON-lines server as another program sees it: a process and two pipes."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from models import ECHO, cell

pytest.importorskip("rlm.testing.fake_server", reason="needs recursivelm")
from rlm.testing.fake_server import Answer, Asked, FakeServer

LARGEST_LINE = 64 * 1024**2


@pytest.fixture
def model() -> Iterator[FakeServer]:
    def answer(asked: Asked) -> Answer:
        return Answer(reply=ECHO, delay_seconds=60 if asked.model == "slow" else 0)

    with FakeServer(rules=[("", answer)]) as server:
        yield server


class Served:
    """A running server."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def send(self, *requests: Any) -> None:
        assert self.process.stdin is not None
        for request in requests:
            line = request if isinstance(request, bytes) else json.dumps(request).encode()
            self.process.stdin.write(line + b"\n")

    async def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(await self.process.stdout.readline())

    async def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await self.process.wait()


@asynccontextmanager
async def served(model: FakeServer | None = None, **more: str) -> AsyncGenerator[Served, None]:
    keep = {
        name: os.environ[name] for name in ("PATH", "HOME", "RLM_STATE_DIR") if name in os.environ
    }
    settings = {"ELIZA_RLM_BACKEND": "openai", **model.variables} if model else {}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "elizaos_plugin_rlm.server"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**keep, **settings, **more},
        limit=LARGEST_LINE,
    )
    try:
        yield Served(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def infer(identity: Any, **params: Any) -> dict[str, Any]:
    return {"id": identity, "method": "infer", "params": params}


async def test_the_server_announces_itself_answers_and_ends_with_its_input(
    model: FakeServer,
) -> None:
    async with served(model) as server:
        assert await server.answer() == {"ready": True, "protocol": 1, "available": True}
        server.send(infer(1, prompt="hello"))
        answer = await server.answer()
        assert answer["id"] == 1
        assert answer["result"]["text"] == "hello"
        assert answer["result"]["metadata"]["stub"] is False
        assert answer["result"]["cost"]["requests"] == 1
        assert answer["result"]["trajectory"]["total_iterations"] == 1
        assert await server.end() == 0


async def test_requests_sent_before_the_input_ended_are_answered(model: FakeServer) -> None:
    async with served(model) as server:
        server.send(*(infer(number, prompt=f"p{number}") for number in range(5)))
        assert server.process.stdin is not None
        server.process.stdin.close()
        answers = [await server.answer() for _ in range(6)][1:]
        assert {each["id"]: each["result"]["text"] for each in answers} == {
            number: f"p{number}" for number in range(5)
        }
        assert await server.process.wait() == 0


async def test_status_reports_the_configuration_and_totals(model: FakeServer) -> None:
    async with served(model, ELIZA_RLM_MAX_DEPTH="2") as server:
        await server.answer()
        server.send({"id": "s", "method": "status"})
        answer = await server.answer()
        assert answer["id"] == "s"
        status = answer["result"]
        assert (status["available"], status["backend"], status["max_depth"]) == (True, "openai", 2)
        assert status["cost"]["answers"] == 0


async def test_without_a_key_the_server_answers_with_the_stub_and_says_why() -> None:
    async with served() as server:
        assert (await server.answer())["available"] is False
        server.send({"id": 1, "method": "status"})
        assert "GEMINI_API_KEY" in (await server.answer())["result"]["reason"]
        server.send(infer(2, prompt="hello"))
        assert (await server.answer())["result"]["text"] == "[RLM STUB] RLM backend not available"


async def test_a_slow_request_delays_no_other_and_shutdown_ends_it(
    model: FakeServer,
) -> None:
    async with served(model) as server:
        await server.answer()
        server.send(infer("stuck", prompt="x", model="slow"))
        while not model.in_flight:
            await asyncio.sleep(0.01)
        server.send(*(infer(number, prompt="x") for number in range(3)))
        assert {(await server.answer())["id"] for _ in range(3)} == {0, 1, 2}
        server.send({"id": "bye", "method": "shutdown"})
        answers = [await server.answer(), await server.answer()]
        assert await server.process.wait() == 0
    assert {"id": "bye", "result": {"shutdown": True}} in answers
    assert {"id": "stuck", "error": "the server was shut down"} in answers


async def test_a_line_of_many_megabytes_is_one_request(model: FakeServer) -> None:
    text = "lighthouse é " * 1_000_000
    with FakeServer(rules=[("", cell("FINAL([len(context), context[-3:]])"))]) as measure:
        async with served(measure) as server:
            await server.answer()
            server.send(infer("long", prompt=text))
            assert (await server.answer())["result"]["text"] == "[13000000, ' é ']"


async def test_many_requests_are_answered_under_their_ids(model: FakeServer) -> None:
    identities: list[Any] = [*range(30), "text", None, {"a": [1]}, 2.5, True]
    async with served(model) as server:
        await server.answer()
        server.send(*(infer(identity, prompt=json.dumps(identity)) for identity in identities))
        answers = [await server.answer() for _ in identities]
    for answer in answers:
        assert answer["result"]["text"] == json.dumps(answer["id"])
    assert sorted(map(repr, identities)) == sorted(repr(each["id"]) for each in answers)


NO_REQUESTS: list[tuple[bytes, Any, str]] = [
    (b"nonsense", None, "not JSON"),
    (b"[1]", None, "must be an object"),
    (b'{"id": 7}', 7, "unknown method"),
    (b'{"id": 7, "method": "explode"}', 7, "explode"),
    (b'{"id": 7, "method": {"a": 1}}', 7, "unknown method"),
    (b'{"id": 7, "method": "infer", "params": 3}', 7, "params must be an object"),
    (b'{"id": 7, "method": "infer", "params": {"opts": 3}}', 7, "opts must be an object"),
    (b'{"id": NaN}', None, "NaN"),
    (b"\xff\xfe", None, "not JSON"),
    (b"[" * 100_000, None, "nested"),
    (b"1" * 10_000, None, "not JSON"),
]


async def test_an_invalid_line_is_answered_and_the_next_is_served(
    model: FakeServer,
) -> None:
    async with served(model) as server:
        await server.answer()
        for line, identity, words in NO_REQUESTS:
            server.send(line)
            answer = await server.answer()
            assert answer["id"] == identity
            assert words in answer["error"]
            assert "Traceback" not in answer["error"]
        server.send(infer("next", prompt="still here"))
        assert (await server.answer())["result"]["text"] == "still here"


async def test_output_of_libraries_stays_out_of_the_protocol(model: FakeServer) -> None:
    async with served(model, ELIZA_RLM_VERBOSE="true") as server:
        await server.answer()
        server.send(infer(1, prompt="hello"))
        assert (await server.answer())["result"]["text"] == "hello"


async def test_the_server_ends_when_its_reader_disappears(model: FakeServer) -> None:
    async with served(model) as server:
        await server.answer()
        stdout: Any = server.process.stdout
        stdout._transport.close()
        server.send(*(infer(number, prompt="x") for number in range(3)))
        assert await server.end() == 0
