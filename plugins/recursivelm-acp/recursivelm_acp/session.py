"""One session of an editor: a chat over its folder, one prompt at a time."""

import asyncio
import logging
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from acp import RequestError, helpers
from acp.interfaces import Client
from acp.schema import (
    Cost,
    PermissionOption,
    SessionInfoUpdate,
    ToolCallUpdate,
    Usage,
    UsageUpdate,
)

from recursivelm_acp.endings import Ended, problem_of, stop_reason_at, stop_reason_of
from recursivelm_acp.folder import MOST_CHANGES, Changes, Folder, State
from recursivelm_acp.options import AgentOptions
from recursivelm_acp.permissions import Gate, tools_of
from recursivelm_acp.prompts import Prompt, read_prompt
from recursivelm_acp.saved import MAX_CONTEXT_BYTES, Saved, SessionStore
from recursivelm_acp.updates import TurnView, UpdateQueue, clean
from rlm import RLM, RunResult
from rlm.chat.chat import Chat
from rlm.context import ContextValue
from rlm.data.corpus.folder import is_corpus
from rlm.errors import CallRefused, ConfigError, RLMError

__all__ = ["EditorSession"]

TITLE_CHARS = 80
NAMES_SHOWN = 20

_log = logging.getLogger("rlm.acp")


class EditorSession:
    """A chat whose context is a folder. `open` comes first, `aclose` last."""

    def __init__(
        self,
        session_id: str,
        folder: Folder,
        options: AgentOptions,
        store: SessionStore,
        client: Client,
    ) -> None:
        self.id = session_id
        self.folder = folder
        self.title = ""
        self._options = options
        self._store = store
        self._client = client
        self._gate = Gate(self._request_permission)
        self._tools: list[Any] = []
        self._notices: list[str] = []
        self._files: State | None = None
        self._prompts: dict[str, str] = {}
        self._engine: RLM | None = None
        self._chat: Chat | None = None
        self._turn: asyncio.Task[Ended] | None = None
        self._is_busy = False
        self._copies = tempfile.TemporaryDirectory(prefix="rlm-acp-", ignore_cleanup_errors=True)

    # -- beginning and ending ----------------------------------------------------------------

    async def open(self, servers: Sequence[Any], saved: Saved | None = None) -> None:
        """Start the engine and the MCP servers; continue a saved session."""
        cwd = str(self.folder.path)
        self._tools, self._notices = await tools_of(servers, cwd, self._gate)
        load = None
        if saved is not None:
            load = self._store.chat_path(self.id)
            self.title, self._files = saved.title, dict(saved.files)
            self._prompts = dict(saved.prompts)
        self._engine, self._chat = await self._started(None, load)

    async def _started(self, model: str | None, load: Path | None) -> tuple[RLM, Chat]:
        options = self._options
        engine = await asyncio.to_thread(options.engine, model, self._tools)
        try:
            chat = engine.chat(
                load=load, max_tokens=options.max_tokens, max_cost_usd=options.budget_usd
            )
        except BaseException:
            await engine.aclose()
            raise
        return engine, chat

    async def aclose(self) -> None:
        """End the prompt that is being answered, the chat, and the servers."""
        self.cancel()
        if self._turn is not None:
            await asyncio.wait([self._turn])
        if self._chat is not None and self._engine is not None:
            await self._chat.aclose()
            await self._engine.aclose()
        for tool in self._tools:
            await tool.release()
        await asyncio.to_thread(self._copies.cleanup)

    @property
    def model(self) -> str:
        assert self._engine is not None
        return self._engine.config.model

    async def switch(self, model: str) -> None:
        """Continue with another model, which gets the chat as a saved one is loaded."""
        if model == self.model:
            return
        assert self._chat is not None
        assert self._engine is not None
        self._begin()
        before = self._engine, self._chat
        try:
            with tempfile.TemporaryDirectory(prefix="rlm-acp-") as folder:
                between = await self._chat.asave(Path(folder) / "chat.rlm")
                self._engine, self._chat = await self._started(model, between)
        finally:
            self._is_busy = False
        await before[1].aclose()
        await before[0].aclose()

    # -- a prompt ----------------------------------------------------------------------------

    async def prompt(self, blocks: Sequence[Any]) -> Ended:
        """Answer a prompt, and tell the client about it meanwhile."""
        self._begin()
        turn = self._turn = asyncio.create_task(self._answer(blocks))
        try:
            await asyncio.wait([turn])
        finally:  # The connection may have ended, too.
            if not turn.done():
                turn.cancel()
                await asyncio.wait([turn])
            self._turn, self._is_busy = None, False
        return Ended("cancelled") if turn.cancelled() else turn.result()

    def cancel(self) -> None:
        """End the prompt that is being answered, if there is one."""
        if self._turn is not None:
            self._turn.cancel()

    def _begin(self) -> None:
        if self._is_busy:
            raise RequestError(
                -32600, "this session is busy with another prompt: wait, or send session/cancel"
            )
        self._is_busy = True

    async def _answer(self, blocks: Sequence[Any]) -> Ended:
        updates = UpdateQueue(self._update)
        view = TurnView(updates)
        self._gate.updates = updates
        try:
            for notice in self._notices:
                view.think(notice)
            self._notices = []
            prompt = await asyncio.to_thread(read_prompt, blocks, self.folder)
            try:
                result = await self._ask(prompt, view)
            except CallRefused as error:  # Earlier prompts have used everything.
                view.say(f"{error}.")
                return Ended(stop_reason_at(error.limit))
            view.say(_rest(view.streamed, result))
            ended = Ended(
                stop_reason_of(result, view.last_reply), _usage(result), problem_of(result)
            )
            self._tell_figures(view, updates)
            await self._save(prompt.query, updates)
            return ended
        finally:
            self._gate.updates = None
            view.end_all()
            await updates.close()

    async def _ask(self, prompt: Prompt, view: TurnView) -> RunResult:
        assert self._chat is not None
        notes = [*await self._refresh(), *await self._add(prompt)]
        query = "\n\n".join([prompt.query, *notes])
        before = len(self._chat.turns)
        result = await self._chat.aask(clean(query), recorders=(view,))
        if len(self._chat.turns) > before:
            self._prompts[str(len(self._chat.turns))] = clean(prompt.query)
        return result

    async def _refresh(self) -> list[str]:
        """Read the folder, or what changed in it; return what the model has to know."""
        assert self._chat is not None
        now = await self.folder.look()
        before, is_first = self._files or {}, not self._chat.contexts
        changes = Changes.between(before, now)
        notes = []
        if changes.changed:
            is_whole = is_first or len(changes.changed) > MOST_CHANGES
            try:
                name = await self._chat.aadd_context(
                    await self._context(now, None if is_whole else changes.changed)
                )
            except ConfigError:
                if is_first:
                    raise
                name = None  # Nothing that changed is a text.
            if not is_first and name is not None:
                notes.append(_about_changes(name, changes))
        if changes.deleted:
            notes.append(f"(Deleted in the meantime: {_names(changes.deleted)}.)")
        self._files = now
        return notes

    async def _context(self, files: State, changed: Sequence[str] | None) -> ContextValue:
        """Return the folder, or what changed in it, as it is now.

        It is copied, because a chat reads its contexts again when it is saved; if it is too large
        to be saved, it is not.
        """
        names = list(files) if changed is None else changed
        size_bytes = sum(files[name][1] for name in names)
        if size_bytes > MAX_CONTEXT_BYTES or is_corpus(self.folder.path):
            return self.folder.context(changed)
        return await asyncio.to_thread(self.folder.copy, names, Path(self._copies.name))

    async def _add(self, prompt: Prompt) -> list[str]:
        """Add what came with a prompt as contexts."""
        assert self._chat is not None
        notes = []
        known = self._files or {}
        if unread := [name for name in prompt.linked if name not in known]:
            copies = await asyncio.to_thread(self.folder.copy, unread, Path(self._copies.name))
            paths = [copies / name for name in unread]
            name = await self._chat.aadd_context(paths if len(paths) > 1 else paths[0])
            notes.append(f"(`{name}` contains {_names(unread)}.)")
        if prompt.texts:
            name = await self._chat.aadd_context(
                {clean(uri): clean(text) for uri, text in prompt.texts.items()}
            )
            notes.append(f"(`{name}` contains {_names(list(prompt.texts))}, by these names.)")
        for uri, data in prompt.blobs:
            name = await self._chat.aadd_context(data)
            notes.append(f"(`{name}` contains the bytes of {uri[:200]}.)")
        return notes

    # -- after a prompt ----------------------------------------------------------------------

    def _tell_figures(self, view: TurnView, updates: UpdateQueue) -> None:
        """Tell the client how full the model's window is, if both are known, and the cost."""
        assert self._engine is not None
        assert self._chat is not None
        window = self._engine.runner.resources.info(self.model).window_tokens
        last = view.last_reply.usage if view.last_reply is not None else None
        if window is None or last is None:
            return
        cost_usd = self._chat.cost_usd
        cost = None if cost_usd is None else Cost(amount=cost_usd, currency="USD")
        updates.put(
            UsageUpdate(
                session_update="usage_update", used=last.total_tokens, size=window, cost=cost
            )
        )

    async def _save(self, query: str, updates: UpdateQueue) -> None:
        """Save the session, so that the client can load it later; a failure is only logged."""
        assert self._chat is not None
        if not self.title:
            self.title = clean(" ".join(query.split())[:TITLE_CHARS])
            updates.put(SessionInfoUpdate(session_update="session_info_update", title=self.title))
        if not self._store.is_on or self._chat.context_bytes > MAX_CONTEXT_BYTES:
            return
        saved = Saved(
            self.id,
            str(self.folder.path),
            self.title,
            time.time(),
            dict(self._files or {}),
            dict(self._prompts),
        )
        try:
            await self._chat.asave(self._store.chat_path(self.id))
            await asyncio.to_thread(self._store.note, saved)
        except (RLMError, OSError) as error:
            _log.warning("session %s was not saved: %s", self.id, error)

    async def replay(self) -> None:
        """Send the conversation so far, as a client that loads a session expects."""
        assert self._chat is not None
        for number, turn in enumerate(self._chat.turns, 1):
            query = self._prompts.get(str(number), turn["query"])
            await self._update(helpers.update_user_message_text(clean(query)))
            if turn["answer"]:
                await self._update(helpers.update_agent_message_text(clean(turn["answer"])))

    # -- the client --------------------------------------------------------------------------

    async def _update(self, update: Any) -> None:
        await self._client.session_update(session_id=self.id, update=update)

    async def _request_permission(
        self, tool_call: ToolCallUpdate, options: list[PermissionOption]
    ) -> Any:
        return await self._client.request_permission(
            session_id=self.id, tool_call=tool_call, options=options
        )


def _about_changes(name: str, changes: Changes) -> str:
    return (
        f"(Files have changed since they were read. `{name}` contains their current versions, by "
        f"the same names; use them instead of the older ones: {_names(changes.changed)}.)"
    )


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(repr(name[:200]) for name in names[:NAMES_SHOWN]) + more


def _rest(streamed: str, result: RunResult) -> str:
    """Return what is left to say of an answer; what was streamed can't be taken back."""
    text = str(result) if result.answer is not None else ""
    if result.answer is None and result.stop_reason in ("steps", "limit"):
        text = f"No answer: {result.detail}."
    if text.startswith(streamed):
        return text[len(streamed) :]
    return "" if streamed.endswith(text) else f"\n\n{text}"


def _usage(result: RunResult) -> Usage:
    used = result.usage.total
    return Usage(
        total_tokens=used.total_tokens,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cached_read_tokens=used.cached_tokens,
    )
