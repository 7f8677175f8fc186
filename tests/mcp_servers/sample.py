"""A real MCP server, made with the SDK; tests start it as a program, or within uvicorn."""

import asyncio
import base64
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ImageContent, TextContent
from pydantic import BaseModel, Field

PNG = b"\x89PNG\r\n\x1a\n"


class Berth(BaseModel):
    number: Annotated[int, Field(ge=1, le=40)]
    side: Literal["port", "starboard"] = "port"


def add(a: int, b: Annotated[int, Field(description="the other one")] = 2) -> int:
    """Add two numbers.

    There is more to say.
    """
    return a + b


def berth_of(berth: Berth, tags: list[str] | None = None) -> dict[str, Any]:
    """Look at a berth."""
    return {"berth": berth.number, "side": berth.side, "tags": tags or []}


def refuse(why: str) -> str:
    """Say no."""
    raise ToolError(f"it can't be done: {why}")


def letters(count: int) -> list[Any]:
    """Several texts."""
    return [f"letter {number}" for number in range(count)]


def picture() -> list[Any]:
    """A picture and what it shows."""
    data = base64.b64encode(PNG).decode()
    return [
        TextContent(type="text", text="a boat"),
        ImageContent(type="image", data=data, mime_type="image/png"),
    ]


def large(size: int) -> str:
    """Return this many characters."""
    return "x" * size


def variables() -> dict[str, str]:
    """What this process was started with."""
    return dict(os.environ)


def here() -> list[Any]:
    """The process, and its folder."""
    return [os.getpid(), str(Path.cwd())]


def die() -> str:
    """Leave without a word of farewell."""
    print("the tide is out", file=sys.stderr, flush=True)
    os._exit(3)


async def slow(notes: str, ctx: Context) -> str:
    """Wait forever; write to a file how that ended."""
    await ctx.report_progress(3, 10, "still at it")
    _note(notes, "begun")
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        _note(notes, "cancelled")
        raise
    return "done"


def _note(path: str, text: str) -> None:
    Path(path).write_text(text, "utf-8")


def sing(song: str) -> str:
    """New here."""
    return song


def make_server() -> MCPServer:
    server = MCPServer("harbour", log_level="CRITICAL")

    async def learn(ctx: Context) -> str:
        """Offer one tool less, and one more."""
        server.add_tool(sing)
        server.remove_tool("letters")
        await ctx.session.send_tool_list_changed()
        await ctx.notify_tools_changed()
        return "learnt"

    for function in (add, refuse, large, variables, here, die, slow, learn):
        server.add_tool(function)
    server.add_tool(berth_of, name="berth-of")
    for parts in (letters, picture):
        server.add_tool(parts, structured_output=False)
    return server


if __name__ == "__main__":
    make_server().run()
