"""A gateway on stdin and stdout, made by a recipe: what tests of the stdio transport start."""

import asyncio
import sys

from mcp.server.stdio import stdio_server

from rlm.gateway.server import make_server
from tests.gateway.recipes import Recipe


async def main() -> None:
    gateway = Recipe.read(sys.argv[1]).gateway()
    server = make_server(gateway, lambda _: "local")
    try:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    finally:
        await gateway.close()


if __name__ == "__main__":
    asyncio.run(main())
