"""MCP servers as tools: `mcp("npx -y some-server")` or `mcp("https://host/mcp")`.

What a server sends is untrusted. Names, descriptions and schemas are cut and cleaned before a model
reads them, and its environment contains none of our keys.
"""

import importlib.util
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from rlm._util.distribution import install_command
from rlm.errors import ConfigError
from rlm.tools._mcp.address import Transport, check_seconds, parse_address
from rlm.tools._mcp.server import McpServer
from rlm.tools._mcp.tool import McpTool, free_name, python_name

__all__ = ["McpServer", "McpTool", "mcp", "tools_of_all"]


def mcp(
    server: str | Sequence[str],
    *,
    prefix: str = "",
    only: Sequence[str] | None = None,
    without: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    headers: Mapping[str, str] | None = None,
    transport: Transport | None = None,
    timeout_seconds: float = 60.0,
    start_seconds: float = 60.0,
) -> McpServer:
    """Return the tools of an MCP server: a command, started without a shell, or a URL.

    `only` and `without` choose tools by the server's names; `prefix` is put before all names. A
    command gets `env` besides PATH, HOME and the like, and `cwd`; a URL gets `headers`, and
    transport="sse" for older servers. A call has `timeout_seconds`; the server has `start_seconds`
    to start and list its tools, which happens when an RLM is created.
    """
    if importlib.util.find_spec("mcp") is None:
        raise ConfigError(f"MCP servers need a package: {install_command('mcp')}")
    check_seconds("timeout_seconds", timeout_seconds)
    if not isinstance(prefix, str) or (prefix and not prefix.isidentifier()):
        raise ConfigError(f"mcp: prefix must be a Python name, not {prefix!r}")
    for name, given in (("only", only), ("without", without)):
        if isinstance(given, str):
            raise ConfigError(f"mcp: {name} must be a list of names, not a str")
    address = parse_address(
        server,
        transport=transport,
        env=env,
        cwd=cwd,
        headers=headers,
        start_seconds=start_seconds,
    )
    return McpServer(
        address,
        prefix=prefix.strip("_"),
        only=None if only is None else tuple(only),
        without=tuple(without),
        timeout_seconds=timeout_seconds,
    )


def tools_of_all(servers: Sequence[tuple[str, McpServer]], used: Collection[str]) -> list[McpTool]:
    """Return the tools of servers, each with a prefix, under names that are free.

    The tools of one server share one lease of it. If one server fails, none stays open.
    """
    taken, made, leases = set(used), [], []
    try:
        for prefix, server in servers:
            leases.append(lease := server.lease())
            for listed in server.listed():
                name = free_name(python_name(listed.name, prefix or server.prefix), taken)
                taken.add(name)
                made.append(McpTool(listed, name, lease))
    except BaseException:
        for lease in leases:
            lease.drop()
        raise
    return made
