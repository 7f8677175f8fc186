"""`rlm serve` with two tokens: one for ordinary requests, one for attacks."""

import asyncio
import io
import json
import re
import zipfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.hostile.parts import Ask, Attack, Part, process, raw, slow_clients

__all__ = ["attacks", "part"]

MODEL = "rlm/openai/gpt-x"
TOKENS = """
[[tokens]]
name = "other"
token = "the-token-of-the-others"
[[tokens]]
name = "hostile"
token = "the-token-of-the-hostile"
max_concurrent_runs = 2
max_tokens = 1000000000
"""
SCRIPT = """
[[answers]]
when = "answer with a cell"
reply = '''```repl
FINAL(len(context))
```'''
[[answers]]
when = "/(?s).*/"
reply = '{"a": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"}'
"""
LATENCY_MS = "50"
BODY_BYTES = 10_000_000
FLOOD = 100
_LISTENING = re.compile(r"Listening at (http://\S+)/v1 ")


@asynccontextmanager
async def _session(name: str) -> AsyncGenerator[aiohttp.ClientSession, None]:
    headers = {"Authorization": f"Bearer the-token-of-the-{name}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:
        yield session


def _asked(content: str = "hello", **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], **more}


def _nested(depth: int = 24) -> dict[str, Any]:
    """Return a schema that doubles with each level when its references are followed."""
    levels: dict[str, Any] = {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(depth)
    }
    return {"$defs": {**levels, f"d{depth}": {"type": "object"}}, "$ref": "#/$defs/d0"}


@cache
def _bomb() -> bytes:
    """Return a spreadsheet of a few kilobytes that has millions of cells."""
    row = b'<row r="1">' + b"<c><v>1</v></c>" * 1_000 + b"</row>"
    sheet = b"<worksheet><sheetData>" + row * 2_000 + b"</sheetData></worksheet>"
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("xl/workbook.xml", "<workbook><sheets/></workbook>")
        archive.writestr("xl/worksheets/sheet1.xml", sheet)
    return made.getvalue()


class Hostile:
    """The attacks of one tenant."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self._session = session
        self._base = base

    async def _post(self, path: str, **options: Any) -> str:
        async with self._session.post(f"{self._base}{path}", **options) as response:
            await response.read()
            return str(response.status)

    async def _chat(self, **more: Any) -> str:
        return await self._post("/v1/chat/completions", json=_asked(**more))

    async def schemas(self) -> str:
        return await self._schema(_nested())

    async def patterns(self) -> str:
        slow = {"type": "string", "pattern": "^(a+)+$"}
        return await self._schema({"type": "object", "properties": {"a": slow}})

    async def _schema(self, schema: dict[str, Any]) -> str:
        named = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        return await self._chat(response_format=named, rlm={"context": "x", "route": "rlm"})

    async def documents(self) -> str:
        identity = await self._upload(_bomb(), "bomb.xlsx")
        if not identity.startswith("file-"):
            return identity
        try:
            return await self._chat(rlm={"file_ids": [identity]})
        finally:
            await self._session.delete(f"{self._base}/v1/files/{identity}")

    async def _upload(self, data: bytes, name: str) -> str:
        form = aiohttp.FormData()
        form.add_field("purpose", "user_data")
        form.add_field("file", data, filename=name)
        async with self._session.post(f"{self._base}/v1/files", data=form) as response:
            answer = await response.json()
            return str(answer.get("id", response.status))

    async def bodies(self) -> str:
        start = json.dumps({**_asked(), "rlm": {"context": []}}).encode().removesuffix(b"]}}")
        body = start + b"[]," * (BODY_BYTES // 3) + b"[]]}}"
        headers = {"Content-Type": "application/json"}
        sent = (self._post("/v1/chat/completions", data=body, headers=headers) for _ in range(4))
        return " ".join(sorted(set(await asyncio.gather(*sent))))

    async def numbers(self) -> str:
        """Small bodies whose numbers take a thousand times as long to read as others."""
        start = json.dumps({**_asked(), "rlm": {"context": []}}).encode().removesuffix(b"]}}")
        body = start + b"1e300," * 10_500 + b"1]}}"
        headers = {"Content-Type": "application/json"}
        sent = (self._post("/v1/chat/completions", data=body, headers=headers) for _ in range(4))
        return " ".join(sorted(set(await asyncio.gather(*sent))))

    async def uploads(self) -> str:
        kept = await asyncio.gather(*(self._upload(b"x" * 1_000_000, "a.txt") for _ in range(8)))
        for identity in kept:
            await self._session.delete(f"{self._base}/v1/files/{identity}")
        return "uploaded and deleted"

    async def streams(self) -> str:
        asked = _asked("answer with a cell", stream=True, rlm={"context": "x"})
        async with self._session.post(f"{self._base}/v1/chat/completions", json=asked) as response:
            await response.content.readany()
            response.close()
            return f"{response.status}, dropped"

    async def names(self) -> str:
        rlm = {"context": "x", "run_id": "the-same-name"}
        sent = (self._chat(content="answer with a cell", rlm=rlm) for _ in range(4))
        return " ".join(sorted(await asyncio.gather(*sent)))

    async def floods(self) -> str:
        answers = await asyncio.gather(*(self._chat() for _ in range(FLOOD)))
        return f"{FLOOD} requests: {' '.join(sorted(set(answers)))}"

    async def forged(self) -> str:
        headers = {"Authorization": f"Bearer {'x' * 900}"}
        return await self._post("/v1/chat/completions", json=_asked(), headers=headers)

    async def slow(self) -> str:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {self._base}\r\n".encode()
        return await slow_clients(self._base, head)

    async def garbage(self) -> str:
        return await raw(self._base, b"\x16\x03\x01" + b"\xff" * 50_000 + b"\r\n\r\n")


@asynccontextmanager
async def _serving(folder: Path) -> AsyncGenerator[str, None]:
    (folder / "script.toml").write_text(SCRIPT, "utf-8")
    (folder / "tokens.toml").write_text(TOKENS, "utf-8")
    fake = ["fake-server", str(folder / "script.toml"), "--latency-ms", LATENCY_MS, "--quiet"]
    with process(fake) as model:
        assert model.stdout is not None
        variables = {
            "OPENAI_BASE_URL": f"{model.stdout.readline().strip()}/v1",
            "OPENAI_API_KEY": "fake",
            "RLM_STATE_DIR": str(folder / "state"),
        }
        command = ["serve", "--port", "0", "-m", "openai/gpt-x", "--price", "1,1", "--quiet"]
        command += ["--tokens-file", str(folder / "tokens.toml"), "--max-steps", "2"]
        with process(command, **variables) as server:
            assert server.stderr is not None
            while (found := _LISTENING.match(line := server.stderr.readline())) is None:
                if not line:
                    raise SystemExit("rlm serve did not start")
            yield found[1]


async def part(folder: Path) -> AsyncGenerator[Part, None]:
    async with _serving(folder) as base:

        @asynccontextmanager
        async def other() -> AsyncGenerator[Ask, None]:
            async with _session("others") as own:

                async def ask() -> bool:
                    place = f"{base}/v1/chat/completions"
                    async with own.post(place, json=_asked()) as response:
                        await response.read()
                        return response.status == 200

                yield ask

        yield Part(base, other)


@asynccontextmanager
async def attacks(base: str, _folder: Path) -> AsyncGenerator[list[Attack], None]:
    async with _session("hostile") as session:
        hostile = Hostile(session, base)
        yield [
            Attack("schemas", hostile.schemas),
            Attack("patterns", hostile.patterns),
            Attack("documents", hostile.documents),
            Attack("bodies", hostile.bodies, max_seconds=30),
            Attack("numbers", hostile.numbers, max_seconds=30),
            Attack("uploads", hostile.uploads),
            Attack("streams", hostile.streams),
            Attack("names", hostile.names),
            Attack("floods", hostile.floods, max_seconds=30),
            Attack("forged tokens", hostile.forged),
            Attack("slow clients", hostile.slow),
            Attack("garbage", hostile.garbage),
        ]
