"""Save a chat and load it again."""

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any

from msgspec import Struct

from rlm.chat.saved import About, SavedTurn, SavedVariables, TurnSummary
from rlm.chat.turns import Spending
from rlm.chat.variables import HELD_BYTES, Variables, bring_back, take
from rlm.context import StoredContext
from rlm.errors import SessionError
from rlm.messages import Usage
from rlm.prompts import nudges
from rlm.protocols import Session

if TYPE_CHECKING:  # imported when a file is used; most chats have none
    from rlm.chat.file import SavedFile

__all__ = ["ChatStorage", "Loaded"]

NAMES_SHOWN = 10
RESTORE_SECONDS = 120.0
CHAT_ID = re.compile(r"[0-9a-f]{12}")


class Loaded(Struct):
    """The content of a file, for a chat."""

    turns: list[dict[str, Any]]
    summaries: list[TurnSummary]
    contexts: dict[str, StoredContext]
    usage: Usage
    kept: Usage


class ChatStorage:
    """Saves and loads one chat. `may_read` is False if unpickling would happen on the host."""

    def __init__(
        self,
        *,
        model: str = "",
        environment: str = "",
        may_read: bool = True,
        tools: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._model = model
        self._environment = environment
        self._may_read = may_read
        self._tools = tools
        self._file: SavedFile | None = None
        self._waiting: SavedVariables | None = None
        """Variables of the file that no session has loaded yet."""
        self._lost = ""
        self.chat_id = secrets.token_hex(6)
        """Kept when saving and loading, so that a chat stays one group in the viewer."""
        self.notices: list[str] = []
        """Messages about what could not be saved or restored; each once."""

    # -- saving ------------------------------------------------------------------------------

    async def save(
        self,
        path: Path,
        turns: Sequence[dict[str, Any]],
        summaries: Sequence[TurnSummary],
        spending: Spending,
        contexts: Mapping[str, StoredContext],
        worker: Session | None,
    ) -> None:
        """Write everything that can be saved."""
        from rlm.chat.file import write_saved

        texts = list(_texts(turns))
        variables = await self._variables(worker, contexts)
        about = About(
            saved=time.time(),
            chat_id=self.chat_id,
            model=self._model,
            environment=self._environment,
            tools=tuple(self._tools()),
            turns=tuple(_saved_turn(turn) for turn in turns),
            summaries=tuple(summaries),
            usage=spending.used,
            kept=spending.kept,
            variables=variables.facts,
        )
        held = dict(contexts)
        try:
            await asyncio.to_thread(write_saved, path, about, texts, held, variables.data)
        finally:
            if variables.data is not None:
                variables.data.close()
        self._notice(*_notices_of(variables))

    def _notice(self, *texts: str) -> None:
        self.notices += [text for text in texts if text not in self.notices]

    async def _variables(
        self, worker: Session | None, contexts: Mapping[str, StoredContext]
    ) -> Variables:
        if self._waiting is not None and self._file is not None:
            data = await asyncio.to_thread(_copied, self._file.variables())
            return Variables(self._waiting, data)
        if worker is None:
            return Variables()
        if not self._may_read:
            why = (
                f"in the environment {self._environment!r} they would have to be read outside of it"
            )
            return Variables(SavedVariables(names=worker.variables), problem=why)
        names = ["context_0" if name == "context" else name for name in contexts]
        return await take(worker, names)

    # -- loading -----------------------------------------------------------------------------

    def load(self, path: Path) -> Loaded:
        """Open a file; the next session loads its variables."""
        from rlm.chat.file import SavedFile

        file = SavedFile(path)
        try:
            about = file.about
            turns = [
                _turn(query, answer, saved.ended)
                for (query, answer), saved in zip(file.texts(), about.turns, strict=True)
            ]
            contexts = file.contexts()
        except BaseException:
            file.close()
            raise
        self._file = file
        if CHAT_ID.fullmatch(about.chat_id):  # Files of older versions have none.
            self.chat_id = about.chat_id
        facts = about.variables or SavedVariables()
        lost = tuple(facts.lost)
        self._notice(*_missing_tools(about.tools, self._tools()))
        if not self._may_read and facts.names:
            lost = (*facts.names, *lost)
            self._notice(
                f"the variables of {path} are not read in the environment {self._environment!r}: "
                "the author of that file could run code outside of any sandbox"
            )
        elif facts.names:
            self._waiting = facts
        if lost:
            self._lost = nudges.variables_lost(lost)
            self._notice(f"these variables are no longer available: {_join_names(lost)}")
        return Loaded(turns, list(about.summaries), contexts, about.usage, about.kept)

    def waiting_variables(self) -> dict[str, str]:
        """Return the variables that are restored with the next turn."""
        names = () if self._waiting is None else self._waiting.names
        return dict.fromkeys(names, "saved; the next turn restores it")

    def take_lost(self) -> str:
        """Return, once, what the model must know about lost variables."""
        lost, self._lost = self._lost, ""
        return lost

    def restorer(self) -> Callable[[Session], Awaitable[str]] | None:
        """Return a function that restores the variables of the file in a session, if any."""
        return None if self._waiting is None else self._restore

    async def _restore(self, session: Session) -> str:
        assert self._waiting is not None
        assert self._file is not None
        try:
            async with asyncio.timeout(RESTORE_SECONDS):
                lost = await bring_back(session, self._waiting, self._file.variables())
        except (SessionError, TimeoutError) as error:
            lost = dict.fromkeys(self._waiting.names, str(error) or "it took too long")
        self._waiting = None
        if not lost:
            return ""
        self._notice(f"these variables could not be restored: {_with_reasons(lost)}")
        return nudges.variables_lost(tuple(lost))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _texts(turns: Sequence[dict[str, Any]]) -> Iterator[bytes]:
    for turn in turns:
        yield turn["query"].encode("utf-8", "surrogatepass")
        yield (turn["answer"] or "").encode("utf-8", "surrogatepass")


def _saved_turn(turn: dict[str, Any]) -> SavedTurn:
    query, answer = (len(each) for each in _texts([turn]))
    said = None if turn["answer"] is None else answer
    return SavedTurn(query_bytes=query, answer_bytes=said, ended=turn.get("ended"))


def _turn(query: str, answer: str | None, ended: str | None) -> dict[str, Any]:
    turn: dict[str, Any] = {"query": query, "answer": answer}
    return turn if ended is None else {**turn, "ended": ended}


def _copied(stored: StoredContext) -> IO[bytes]:
    data: IO[bytes] = SpooledTemporaryFile(HELD_BYTES)  # noqa: SIM115 - its reader closes it
    for chunk in stored.chunks(1 << 20):
        data.write(chunk)
    return data


def _notices_of(variables: Variables) -> list[str]:
    if variables.problem:
        return [f"the variables could not be saved: {variables.problem}"]
    lost = variables.facts.lost
    if not lost:
        return []
    return [f"these variables could not be saved: {_with_reasons(lost)}"]


def _with_reasons(lost: Mapping[str, str]) -> str:
    return _join_names([f"{name} ({reason})" for name, reason in lost.items()])


def _missing_tools(before: Sequence[str], now: Sequence[str]) -> list[str]:
    missing = [name for name in before if name not in now]
    return [f"this chat had tools that are now missing: {_join_names(missing)}"] if missing else []


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more
