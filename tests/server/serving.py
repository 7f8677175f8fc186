"""A real server on a free port of this machine, the real engine behind it, and a client."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from rlm.api import RLM
from rlm.limits import Limits
from rlm.messages import Reply, Request
from rlm.protocols import Client as ModelClient
from rlm.protocols import Environment
from rlm.records.journal import Archive, Places
from rlm.server.engines import Engines
from rlm.server.service import Service
from rlm.server.serving import listening
from rlm.server.settings import Settings
from rlm.server.tokens import Token, Tokens
from rlm.testing.scripted import ScriptedClient
from rlm.web.hosts import HostPolicy
from rlm.web.serving import open_socket
from rlm.wiring.registry import make_environment

MODEL = "test/small"
WITH_REPL = f"rlm/{MODEL}"
LARGE = "\n\n".join(f"Line {number}: nothing of interest." for number in range(800))
"""More than `context_over` characters."""

SUBMIT = "```repl\nFINAL({answer!r})\n```"


def submits(answer: object) -> str:
    """A reply whose cell ends the run."""
    return SUBMIT.format(answer=answer)


class Held(ScriptedClient):
    """Answers no request before the test says so."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.gate = asyncio.Event()
        self.waiting = 0

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1
        return await super().complete(request, timeout_seconds=timeout_seconds)


class Answer(NamedTuple):
    status: int
    json: Any
    headers: Any
    text: str


class Client:
    """Asks a server over HTTP; everything can be said differently."""

    def __init__(self, session: aiohttp.ClientSession, base: str, service: Service) -> None:
        self.session = session
        self.base = base
        self.service = service

    async def ask(self, method: str, path: str, **options: Any) -> Answer:
        async with self.session.request(method, self.base + path, **options) as response:
            text = (await response.read()).decode("utf-8", "replace")
            try:
                value = json.loads(text)
            except ValueError:
                value = None
            return Answer(response.status, value, response.headers, text)

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.ask("GET", path, **options)

    async def post(self, path: str, body: Any, **options: Any) -> Answer:
        return await self.ask("POST", path, json=body, **options)

    async def chat(self, content: Any = "hello", model: str = WITH_REPL, **more: Any) -> Answer:
        headers = more.pop("headers", None)
        messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
        body = {"model": model, "messages": messages, **more}
        return await self.post("/v1/chat/completions", body, headers=headers)

    async def run(self, **body: Any) -> Answer:
        headers = body.pop("headers", None)
        return await self.post("/v1/runs", {"model": WITH_REPL, **body}, headers=headers)

    @asynccontextmanager
    async def stream(
        self, path: str, body: Any = None, **options: Any
    ) -> AsyncGenerator[AsyncIterator[dict[str, str]], None]:
        """Server-sent events, each as its fields; comments have the name ""."""
        method = "GET" if body is None else "POST"
        async with self.session.request(method, self.base + path, json=body, **options) as response:
            assert response.status == 200, await response.text()
            assert response.content_type == "text/event-stream"
            yield _events(response)

    async def chunks(self, body: Any, path: str = "/v1/chat/completions") -> list[Any]:
        """What a streamed completion consists of, without its last word."""
        async with self.stream(path, {**body, "stream": True}) as events:
            data = [event["data"] async for event in events if "data" in event]
        if path == "/v1/chat/completions":
            assert data.pop() == "[DONE]"
        return [json.loads(each) for each in data]


async def until_done(tasks: Sequence["asyncio.Task[Any]"], count: int) -> None:
    """Wait until this number of them are through."""
    async with asyncio.timeout(60):
        while sum(task.done() for task in tasks) < count:
            await asyncio.sleep(0.01)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, str]]:
    fields: dict[str, str] = {}
    async for raw in response.content:
        line = raw.decode().rstrip("\n")
        if not line:
            if fields:
                yield fields
            fields = {}
            continue
        name, _, value = line.partition(":")
        fields[name] = value.removeprefix(" ")


def engines_of(
    client: ModelClient, archive: Archive, environments: dict[str, Environment], **options: Any
) -> Engines:
    def make(model: str, environment: Environment) -> RLM:
        return RLM(
            model,
            clients={"test": client},
            environment=environment,
            journal=archive.places.root,
            **options,
        )

    return Engines([MODEL], environments, make)


@asynccontextmanager
async def server(
    folder: Path,
    client: ModelClient | None = None,
    *,
    tokens: Sequence[Token] = (),
    environments: dict[str, Environment] | None = None,
    limits: Limits | None = None,
    engine: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
    **settings: Any,
) -> AsyncGenerator[Client, None]:
    """A server that answers from a script; the offline default says hello to everything."""
    client = client or ScriptedClient(rules=[("", "hello there")])
    archive = Archive(Places(folder / "state"))
    settings.setdefault("grace_seconds", 2.0)
    chosen = Settings(
        folder=folder / "state" / "server",
        limits=limits or Limits(max_seconds=60.0, max_steps=6),
        **settings,
    )
    bound = open_socket("127.0.0.1", 0)
    hosts = HostPolicy("127.0.0.1", bound.getsockname()[1])
    environments = environments or {"local": make_environment("local", {})}
    engines = engines_of(client, archive, environments, **(engine or {}))
    with bound:
        service = Service(chosen, engines, Tokens(tokens), archive, hosts)
        async with (
            listening(service, bound) as base,
            aiohttp.ClientSession(headers=headers) as session,
        ):
            yield Client(session, base, service)
