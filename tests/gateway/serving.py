"""Gateways in processes of their own, and clients that talk to them."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.cli.running import SECONDS, command, environment

TEXT = "".join(f"line {number} of the notes\n" for number in range(1, 301))


def make_tree(folder: Path) -> Path:
    """A root with some files, one of them denied."""
    root = folder / "tree"
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "notes.txt").write_text(TEXT, "utf-8")
    (root / "main.py").write_text("print('hello, silver dolphin')\n", "utf-8")
    (root / ".env").write_text("PASSWORD=swordfish\n", "utf-8")
    (root / "server.pem").write_text("a certificate\n", "utf-8")
    return root


class Served(NamedTuple):
    """A gateway over HTTP that listens."""

    url: str
    process: "subprocess.Popen[str]"

    @property
    def base(self) -> str:
        return self.url.removesuffix("/mcp")

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """End it: its exit code, and what else it said."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, said


@contextlib.contextmanager
def over_http(*options: str, **variables: str) -> Generator[Served]:
    process = subprocess.Popen(
        command("mcp", "--http", "--port", "0", *options),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(variables),
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert line.startswith("Gateway: http://"), line + process.stderr.read()
        yield Served(line.split()[1], process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(SECONDS)
        process.stderr.close()


@contextlib.asynccontextmanager
async def http_client(url: str, token: str | None, **options: Any) -> AsyncGenerator[Client]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), **options) as client,
    ):
        yield client


def stdio(*options: str, variables: dict[str, str] | None = None, noise: str = "") -> Any:
    """The transport of a client that starts a gateway itself; `noise` is a program that does."""
    given = StdioServerParameters(
        command=sys.executable,
        args=[*(("-c", noise) if noise else ("-m", "rlm")), "mcp", *options],
        env=environment(variables or {}),
    )
    return stdio_client(given)


async def answer(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the answer of a tool that must not refuse."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return str(getattr(result.content[0], "text", ""))
