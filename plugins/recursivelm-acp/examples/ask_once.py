"""Ask `rlm acp` one question about a folder, and print every message: `ask_once.py FOLDER QUERY …`.

What follows the query are options of `rlm acp`, such as `-m offline/extractive`.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import acp
from acp.connection import StreamEvent


class Editor:
    """The least that a client has to do: take updates, and refuse permissions."""

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        pass


def show(event: StreamEvent) -> None:
    print(json.dumps(event.message, separators=(",", ":")))


async def main(folder: Path, query: str, *options: str) -> None:
    client: Any = Editor()
    program = str(Path(sys.executable).parent / "rlm")
    connected = acp.spawn_agent_process(
        client, program, "acp", *options, env=os.environ, observers=[show]
    )
    async with connected as (agent, _):
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        session = await agent.new_session(cwd=str(folder), mcp_servers=[])
        await agent.prompt(session_id=session.session_id, prompt=[acp.text_block(query)])


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).resolve(), *sys.argv[2:]))
