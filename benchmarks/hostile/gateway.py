"""`rlm mcp --http` with two tokens: one for ordinary reads, one for attacks."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from benchmarks.hostile.parts import Ask, Attack, Part, process, raw, slow_clients

__all__ = ["attacks", "part"]

TOKENS = "other:the-token-of-the-others\nhostile:the-token-of-the-hostile\n"
FILES = 200
SLOW_PATTERN = "(a+)+$"
IGNORED = "*a" * 15 + "b\n"


def _tree(folder: Path) -> Path:
    """Make a root with ordinary files, and a folder that one tenant made."""
    root = folder / "root"
    for number in range(FILES):
        path = root / f"folder{number % 10}" / f"file{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"line {number} of the silver dolphin\n" * 100)
    hostile = root / "hostile"
    hostile.mkdir()
    (hostile / ".gitignore").write_text(IGNORED * 20)
    for number in range(20):
        (hostile / ("a" * 100 + str(number))).write_text("a" * 5_000 + "!\n")
    return root


@asynccontextmanager
async def _client(url: str, name: str) -> AsyncGenerator[Client, None]:
    headers = {"Authorization": f"Bearer the-token-of-the-{name}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


async def _answer(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    return None if result.is_error else result.structured_content


class Hostile:
    """The attacks of one tenant; a session of the gateway ends when its budget is spent."""

    def __init__(self, client: Client, base: str, folder: Path) -> None:
        self._client = client
        self._base = base
        self._folder = folder

    async def _call(self, tool: str, **arguments: Any) -> str:
        session = (await _answer(self._client, "rlm_session_create"))["session"]
        try:
            answer = await _answer(self._client, tool, session=session, **arguments)
            return "refused" if answer is None else "answered"
        finally:
            await _answer(self._client, "rlm_session_close", session=session)

    async def patterns(self) -> str:
        return await self._call("rlm_search", query=SLOW_PATTERN, mode="regex", path="hostile")

    async def ignore_files(self) -> str:
        return await self._call("rlm_list", path="hostile")

    async def outputs(self) -> str:
        return await self._call("rlm_exec", code="print('x' * 12_000_000)")

    async def errors(self) -> str:
        return await self._call("rlm_exec", code="raise ValueError('File \"/a/' * 1_000_000)")

    async def interpreters(self) -> str:
        return await self._call("rlm_exec", code="while True: pass")

    async def roots(self) -> str:
        """Replace the root by a link to another folder while it is searched, and back."""
        root, aside = self._folder / "swapped", self._folder / "aside"
        root.rename(aside)
        root.symlink_to(self._folder)
        try:
            return await self._call("rlm_search", query="silver", root="swapped")
        finally:
            root.unlink()
            aside.rename(root)

    async def queries(self) -> str:
        return await self._call("rlm_search", query="silver " * 100_000)

    async def forged(self) -> str:
        head = f"POST /mcp HTTP/1.1\r\nHost: {self._base.removeprefix('http://')}\r\n"
        return await raw(self._base, f"{head}Authorization: Bearer {'x' * 400}\r\n\r\n".encode())

    async def slow(self) -> str:
        head = f"POST /mcp HTTP/1.1\r\nHost: {self._base}\r\n".encode()
        return await slow_clients(self._base, head)


@asynccontextmanager
async def _serving(folder: Path) -> AsyncGenerator[str, None]:
    tokens = folder / "tokens.txt"
    tokens.write_text(TOKENS)
    tokens.chmod(0o600)
    (folder / "swapped").mkdir()
    (folder / "swapped" / "a.txt").write_text("silver\n")
    command = ["mcp", "--http", "--port", "0", "--root", f"root={_tree(folder)}"]
    command += ["--root", f"swapped={folder / 'swapped'}", "--token-file", str(tokens)]
    command += ["--provenance", str(folder / "record.jsonl")]
    with process(command, RLM_STATE_DIR=str(folder / "state")) as gateway:
        assert gateway.stderr is not None
        line = gateway.stderr.readline()
        if not line.startswith("Gateway: http://"):
            raise SystemExit(f"rlm mcp did not start: {line}{gateway.stderr.read()}")
        yield line.split()[1]


async def part(folder: Path) -> AsyncGenerator[Part, None]:
    async with _serving(folder) as url:

        @asynccontextmanager
        async def other() -> AsyncGenerator[Ask, None]:
            async with _client(url, "others") as own:
                session = (await _answer(own, "rlm_session_create"))["session"]
                opened = await _answer(own, "rlm_open", session=session, path="folder1/file1.txt")
                number = 0

                async def ask() -> bool:
                    nonlocal number
                    number += 1
                    if number % 10 == 0:
                        answer = await _answer(own, "rlm_list", session=session, path="folder2")
                    else:
                        handle = opened["handle"]
                        answer = await _answer(own, "rlm_read", session=session, handle=handle)
                    return answer is not None

                yield ask

        yield Part(url, other)


@asynccontextmanager
async def attacks(url: str, folder: Path) -> AsyncGenerator[list[Attack], None]:
    async with _client(url, "hostile") as client:
        hostile = Hostile(client, url.removesuffix("/mcp"), folder)
        yield [
            Attack("patterns", hostile.patterns, max_seconds=30),
            Attack("ignore files", hostile.ignore_files, max_seconds=30),
            Attack("outputs", hostile.outputs, max_seconds=30),
            Attack("errors", hostile.errors, max_seconds=30),
            Attack("interpreters", hostile.interpreters, max_seconds=60),
            Attack("roots", hostile.roots),
            Attack("queries", hostile.queries),
            Attack("forged tokens", hostile.forged),
            Attack("slow clients", hostile.slow),
        ]
