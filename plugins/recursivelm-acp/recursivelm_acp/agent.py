"""The agent of the Agent Client Protocol: its capabilities, its sessions, and its errors."""

import asyncio
import os
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, RequestError
from acp.interfaces import Client
from acp.schema import (
    AgentCapabilities,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
)

import rlm
from recursivelm_acp.folder import Folder
from recursivelm_acp.options import AgentOptions
from recursivelm_acp.saved import Saved, SessionStore
from recursivelm_acp.session import EditorSession
from rlm.errors import ConfigError, RLMError

__all__ = ["EditorAgent"]

MAX_SESSIONS = 64
"""Each has a process for its code."""
MODEL = "model"


class EditorAgent:
    """Implements `acp.Agent` for one client; `store` is the folder of saved sessions."""

    def __init__(self, options: AgentOptions, store: Path | None = None) -> None:
        self._options = options
        self._store = SessionStore(store if options.save else None)
        self._sessions: dict[str, EditorSession] = {}
        self._opening: dict[str, asyncio.Task[None]] = {}
        self._client: Client | None = None
        self._is_ready = False

    def on_connect(self, conn: Client) -> None:
        """Remember the client, which updates are sent to."""
        self._client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        """Say what this agent can do; a client with another version decides itself."""
        self._is_ready = True
        sessions = SessionCapabilities(close=SessionCloseCapabilities())
        if self._store.is_on:
            sessions.list, sessions.resume = SessionListCapabilities(), SessionResumeCapabilities()
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session=self._store.is_on,
                prompt_capabilities=PromptCapabilities(
                    image=False, audio=False, embedded_context=True
                ),
                mcp_capabilities=McpCapabilities(http=True, sse=True),
                session_capabilities=sessions,
            ),
            auth_methods=[],
            agent_info=Implementation(name="rlm", title="rlm", version=rlm.__version__),
        )

    # -- sessions ----------------------------------------------------------------------------

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **_: Any,
    ) -> NewSessionResponse:
        """Begin a session whose context is the folder `cwd`."""
        session_id = secrets.token_hex(16)
        session = await self._open(session_id, cwd, additional_directories, mcp_servers)
        return NewSessionResponse(session_id=session_id, config_options=self._choices(session))

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[Any] | None = None,
        additional_directories: list[str] | None = None,
        **_: Any,
    ) -> LoadSessionResponse:
        """Continue a saved session, and send its conversation first."""
        session = await self._open_saved(session_id, cwd, additional_directories, mcp_servers)
        await session.replay()
        return LoadSessionResponse(config_options=self._choices(session))

    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **_: Any,
    ) -> ResumeSessionResponse:
        """Continue a saved session without sending its conversation."""
        session = await self._open_saved(session_id, cwd, additional_directories, mcp_servers)
        return ResumeSessionResponse(config_options=self._choices(session))

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> ListSessionsResponse:
        """List the saved sessions, newest first, of one folder if it is given."""
        found = await asyncio.to_thread(lambda: list(self._store.listed()))
        try:
            wanted = None if cwd is None else await asyncio.to_thread(os.path.realpath, cwd)
        except ValueError as error:
            raise RequestError(-32602, f"cwd is not a path: {error}") from None
        return ListSessionsResponse(
            sessions=[
                SessionInfo(
                    session_id=each.session_id,
                    cwd=each.cwd,
                    title=each.title,
                    updated_at=each.updated_at,
                )
                for each in found
                if wanted in (None, each.cwd)
            ]
        )

    async def close_session(self, session_id: str, **_: Any) -> None:
        """End a session; a saved one can be loaded again."""
        session = self._find(session_id)
        del self._sessions[session_id]
        await session.aclose()

    async def aclose(self) -> None:
        """End all sessions."""
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        if opening:
            await asyncio.wait(opening)
        sessions, self._sessions = list(self._sessions.values()), {}
        await asyncio.gather(*(each.aclose() for each in sessions), return_exceptions=True)

    # -- prompts -----------------------------------------------------------------------------

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        """Answer a prompt. Limits are stop reasons; what a user has to repair is an error."""
        session = self._find(session_id)
        async with _told():
            ended = await session.prompt(prompt)
        if ended.problem:
            raise RequestError(-32603, ended.problem)
        return PromptResponse(stop_reason=ended.stop_reason, usage=ended.usage)

    async def cancel(self, session_id: str, **_: Any) -> None:
        """End the prompt that a session answers; that request returns `cancelled`."""
        if (session := self._sessions.get(session_id)) is not None:
            session.cancel()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> SetSessionConfigOptionResponse:
        """Change the model of a session."""
        session = self._find(session_id)
        if config_id != MODEL or value not in self._models(session):
            raise RequestError(
                -32602, f"no such option; {MODEL}: {', '.join(self._models(session))}"
            )
        async with _told():
            await session.switch(str(value))
        return SetSessionConfigOptionResponse(config_options=self._choices(session))

    # -- parts -------------------------------------------------------------------------------

    async def _open_saved(
        self, session_id: str, cwd: str, others: Sequence[str] | None, servers: Sequence[Any] | None
    ) -> EditorSession:
        if session_id in self._sessions or session_id in self._opening:
            raise RequestError(-32602, "this session is already open")
        saved = await asyncio.to_thread(self._store.find, session_id)
        return await self._open(session_id, cwd, others, servers, saved)

    async def _open(
        self,
        session_id: str,
        cwd: str,
        others: Sequence[str] | None,
        servers: Sequence[Any] | None,
        saved: Saved | None = None,
    ) -> EditorSession:
        if not self._is_ready or self._client is None:
            raise RequestError(-32600, "send `initialize` first")
        if others:
            raise RequestError(
                -32602, "a session can have only one folder: additionalDirectories must be empty"
            )
        if len(self._sessions) + len(self._opening) >= MAX_SESSIONS:
            raise RequestError(-32000, f"{MAX_SESSIONS} sessions are open: close one first")
        folder = Folder(cwd)
        if saved is not None and saved.cwd != str(folder.path):
            raise RequestError(-32602, f"this session belongs to the folder {saved.cwd}")
        if session_id in self._opening:
            raise RequestError(-32602, "this session is already open")
        session = EditorSession(session_id, folder, self._options, self._store, self._client)
        task = self._opening[session_id] = asyncio.ensure_future(session.open(servers or (), saved))
        try:
            async with _told():
                await task
        except BaseException:
            await session.aclose()
            raise
        finally:
            del self._opening[session_id]
        self._sessions[session_id] = session
        return session

    def _find(self, session_id: str) -> EditorSession:
        if (session := self._sessions.get(session_id)) is None:
            raise RequestError(
                -32002,
                f"no open session {session_id[:100]!r}: session/new begins one, session/load "
                "continues one",
            )
        return session

    def _models(self, session: EditorSession) -> list[str]:
        return list(dict.fromkeys([*self._options.models, session.model]))

    def _choices(self, session: EditorSession) -> list[Any]:
        return [
            SessionConfigOptionSelect(
                type="select",
                id=MODEL,
                name="Model",
                category="model",
                current_value=session.model,
                options=[
                    SessionConfigSelectOption(value=name, name=name)
                    for name in self._models(session)
                ],
            )
        ]


@asynccontextmanager
async def _told() -> AsyncGenerator[None, None]:
    """Turn errors of the engine and the system into errors of the protocol, with their words."""
    try:
        yield
    except ConfigError as error:
        raise RequestError(-32602, str(error)) from error
    except RLMError as error:
        raise RequestError(-32603, str(error)) from error
    except OSError as error:
        raise RequestError(-32603, f"{error.filename or ''}: {error.strerror or error}") from error
