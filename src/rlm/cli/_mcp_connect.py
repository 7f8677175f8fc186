"""Run `rlm mcp connect`: serve a client here by forwarding to a gateway elsewhere."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

import rlm
from rlm.cli._errors import say
from rlm.cli._mcp_serving import needs_the_extra
from rlm.errors import ConfigError
from rlm.gateway.stdio import StdioPipe

__all__ = ["connected", "stand_in", "token_for"]

LONGEST_CALL_SECONDS = 300.0
ADVICE = {
    401: "it requires a valid token (--token-env, --token-file)",
    403: "it does not allow this origin (--allowed-origin)",
    404: "no gateway is there; its address ends with /mcp",
    421: "it does not accept that host name (--allowed-host)",
}


def token_for(url: str, token_env: str | None, token_file: Path | None) -> str | None:
    """Return the token from its variable or file, and warn if it would travel unencrypted."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"--url {url!r} is not an address such as https://HOST/mcp")
    if token_env is not None and token_file is not None:
        raise click.UsageError("--token-env cannot be combined with --token-file")
    token = None
    if token_env is not None:
        token = os.environ.get(token_env, "").strip()
        if not token:
            raise ConfigError(f"the variable {token_env} contains no token; set it")
    elif token_file is not None:
        from rlm.gateway.principals import read_tokens

        token = next(iter(read_tokens(token_file).values()))
    if token is not None and parts.scheme == "http" and not _is_here(parts.hostname):
        say(f"Warning: the token is sent to {parts.hostname} unencrypted; use https or a tunnel.")
    return token


def _is_here(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


@asynccontextmanager
async def connected(url: str, token: str | None) -> AsyncGenerator[Any]:
    """Return a client of the gateway at an address; ConfigError says why it cannot connect."""
    import httpx2
    from mcp import Client, MCPError
    from mcp.client.streamable_http import streamable_http_client

    statuses: list[int] = []

    async def note(response: httpx2.Response) -> None:
        statuses.append(response.status_code)

    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    timeout = httpx2.Timeout(30.0, read=LONGEST_CALL_SECONDS)
    hooks: dict[str, list[Callable[..., Any]]] = {"response": [note]}
    try:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks=hooks) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            yield client
    except (BaseExceptionGroup, httpx2.HTTPError, MCPError, OSError) as error:
        first: BaseException = error
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        if not isinstance(first, httpx2.HTTPError | MCPError | OSError):
            raise first from error
        raise ConfigError(f"the gateway at {url} {_why_not(first, statuses)}") from error


def _why_not(error: BaseException, statuses: list[int]) -> str:
    code = statuses[-1] if statuses else 0
    if code in ADVICE:
        return f"answers {code}: {ADVICE[code]}"
    if code >= 400:
        return f"answers {code}; check the address"
    return f"can't be reached: {error or type(error).__name__}"


def stand_in(url: str, token_env: str | None, token_file: Path | None, pipe: StdioPipe) -> int:
    """Serve until the client closes the pipe."""
    needs_the_extra()
    asyncio.run(_stand_in(url, token_for(url, token_env, token_file), pipe))
    return 0


async def _stand_in(url: str, token: str | None, pipe: StdioPipe) -> None:
    from mcp import types
    from mcp.server.lowlevel import Server

    from rlm.gateway.stdio import serve_until_signal

    async with connected(url, token) as there:

        async def list_tools(_context: Any, params: Any) -> types.ListToolsResult:
            cursor = None if params is None else params.cursor
            found: types.ListToolsResult = await there.list_tools(cursor=cursor)
            return found

        async def call_tool(
            _context: Any, params: types.CallToolRequestParams
        ) -> types.CallToolResult:
            done: types.CallToolResult = await there.call_tool(params.name, params.arguments or {})
            return done

        server: Server[Any] = Server(
            "rlm-gateway",
            version=rlm.__version__,
            instructions=there.instructions,
            on_list_tools=list_tools,
            on_call_tool=call_tool,
        )
        await serve_until_signal(server, pipe)
