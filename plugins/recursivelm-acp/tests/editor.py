"""An editor: the SDK's own client, connected to a real `rlm acp`."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
from acp.client.connection import ClientSideConnection
from acp.connection import StreamEvent
from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

from rlm.testing.fake_server import FakeServer

PROGRAM = str(Path(sys.executable).parent / "rlm")
MODEL = "openai/gpt-5-mini"


def cell(code: str) -> str:
    return f"```repl\n{code}\n```"


def shown(server: FakeServer, number: int) -> str:
    """Return what the model was shown by a request."""
    asked = server.requests[number].asked
    assert asked is not None
    return asked.text


def variables(server: FakeServer, home: Path) -> dict[str, str]:
    """What `rlm acp` needs to ask the fake server, and to keep its files in a test's folder."""
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "DEEPSEEK_API_KEY": "fake",
        "DEEPSEEK_BASE_URL": server.openai_url,
        "OPENAI_API_KEY": "fake",
        "OPENAI_BASE_URL": server.openai_url,
        "RLM_STATE_DIR": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "config"),
    }


class Editor:
    """Implements `acp.Client`: it keeps every update, and answers questions from a script."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.answers: list[str | None] = []
        self.messages: list[tuple[str, dict[str, Any]]] = []
        self.on_update: Callable[[Any], None] = lambda update: None
        self.agent: ClientSideConnection
        self.process: asyncio.subprocess.Process

    def on_connect(self, conn: Any) -> None:
        self.agent = conn

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self.on_update(update)

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **_: Any
    ) -> RequestPermissionResponse:
        self.asked.append((tool_call, len(self.updates)))
        answer = self.answers.pop(0)
        if answer is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(
            outcome=AllowedOutcome(outcome="selected", option_id=answer)
        )

    def observe(self, event: StreamEvent) -> None:
        self.messages.append((event.direction.value, event.message))

    # -- what it saw -------------------------------------------------------------------------

    @property
    def kinds(self) -> list[str]:
        return [update.session_update for update in self.updates]

    @property
    def said(self) -> str:
        return "".join(
            update.content.text
            for update in self.updates
            if update.session_update == "agent_message_chunk"
        )

    @property
    def tool_calls(self) -> list[tuple[str, str | None]]:
        """The titles and statuses of tool calls, in order."""
        titles: dict[str, str] = {}
        found = []
        for update in self.updates:
            if update.session_update in ("tool_call", "tool_call_update"):
                titles.setdefault(update.tool_call_id, getattr(update, "title", "") or "")
                found.append((titles[update.tool_call_id], update.status))
        return found

    async def new(self, cwd: Path, servers: list[Any] | None = None) -> str:
        made = await self.agent.new_session(cwd=str(cwd), mcp_servers=servers or [])
        return made.session_id

    async def ask(self, session_id: str, *blocks: Any) -> Any:
        prompt = [acp.text_block(each) if isinstance(each, str) else each for each in blocks]
        return await self.agent.prompt(session_id=session_id, prompt=prompt)


@asynccontextmanager
async def editor(
    server: FakeServer, home: Path, *options: str, ready: bool = True, model: str = MODEL
) -> AsyncGenerator[Editor, None]:
    """Start `rlm acp` and connect to it; what it prints to stderr is not read."""
    client: Any = Editor()
    command = (PROGRAM, "acp", *(("-m", model) if model else ()), *options)
    async with acp.spawn_agent_process(
        client,
        *command,
        env=variables(server, home),
        cwd=home,
        transport_kwargs={"limit": 1 << 26, "stderr": None},
        use_unstable_protocol=True,
    ) as (connection, process):
        connection._conn.add_observer(client.observe)
        client.agent, client.process = connection, process
        if ready:
            await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
        yield client


def log_of(client: Editor) -> list[str]:
    """Return the messages as the README shows them: one line each, and who sent it."""
    sent = {"outgoing": "editor", "incoming": "rlm"}
    return [f"{sent[who]}: {json.dumps(message)}" for who, message in client.messages]
