"""Several runs over one session: variables, contexts and earlier turns stay."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from rlm.context import ContextValue, StoredContext, store_context
from rlm.errors import ConfigError
from rlm.loop_end import LoopEnd, at_loop_end
from rlm.portal import portal
from rlm.prompts import FIXED_QUERY
from rlm.protocols import Recorder
from rlm.results import RunResult
from rlm.run import Task
from rlm.sessions import RunSession

__all__ = ["Chat"]

TURNS_SHOWN = 5
TURN_CHARS = 500

StartRun = Callable[[Task, RunSession, Any, Sequence[Recorder]], Awaitable[RunResult]]
NewSession = Callable[[Task], RunSession]
Self = TypeVar("Self", bound="Chat")


class Chat:
    """A conversation. `context` is its first context; further ones are `context_1`, `context_2` …

    In the REPL, `history` holds the earlier turns. One turn at a time, on one event loop.
    """

    def __init__(
        self, start_run: StartRun, new_session: NewSession, context: ContextValue = None
    ) -> None:
        self._start_run = start_run
        self._new_session = new_session
        self._pending = [] if context is None else [context]
        self._session: RunSession | None = None
        self._end: LoopEnd | None = None
        self._descriptions: dict[str, str] = {}
        self._values: dict[str, StoredContext] = {}
        self._told_values: dict[str, str] = {}
        self._one_turn = asyncio.Lock()
        self._closed = False
        self.turns: list[dict[str, str]] = []

    async def aask(
        self,
        query: str | None = None,
        context: ContextValue = None,
        *,
        response_model: Any = None,
        recorders: Sequence[Recorder] = (),
    ) -> RunResult:
        """One turn, with one more context if given; with no query, that context holds the task."""
        async with self._one_turn:
            if self._closed:
                raise ConfigError("this chat is closed; start another with rlm.chat()")
            new_name = await self._add_contexts(context)
            if query is None:
                query = FIXED_QUERY.replace("`context`", f"`{new_name or 'context'}`")
            session = await self._ready()
            told = [self._earlier_turns(), session.loss]
            session.loss = ""
            task = Task(
                query,
                self._first,
                description=self._description(),
                prologue="\n".join(filter(None, told)),
            )
            result = await self._start_run(task, session, response_model, recorders)
            answer = "" if result.answer is None else str(result.answer)
            self.turns.append({"query": query, "answer": answer})
            return result

    def ask(
        self, query: str | None = None, context: ContextValue = None, *, response_model: Any = None
    ) -> RunResult:
        """The blocking form of `aask`."""
        return portal().call(lambda: self.aask(query, context, response_model=response_model))

    def bind(self, name: str, value: ContextValue) -> None:
        """Have a variable of this name from the next turn on, told by its structure."""
        self._values[name] = store_context(value)

    def keep(self, name: str, value: ContextValue) -> None:
        """Say what a fresh session has under this name, should the one in use be lost."""
        if self._session is not None:
            self._session.contexts[name] = store_context(value)

    async def aclose(self) -> None:
        """End the session; its variables are gone, `turns` stays."""
        self._closed = True
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()
        if self._end is not None:
            await self._end.aclose()

    def close(self) -> None:
        portal().call(self.aclose)

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _add_contexts(self, context: ContextValue) -> str | None:
        """Store what was handed in; the name of the newest context, if there is a new one."""
        values = [*self._pending, *([] if context is None else [context])]
        self._pending = []
        name = None
        for value in values:
            stored = await asyncio.to_thread(store_context, value)
            name = f"context_{len(self._descriptions)}" if self._descriptions else "context"
            self._descriptions[name] = stored.description
            if name == "context":
                self._first = stored
            elif self._session is not None:
                await self._session.add_context(name, stored)
            else:
                raise ConfigError("a chat's second context comes with its second turn")
        return name

    async def _ready(self) -> RunSession:
        """The session, with the earlier turns bound to `history`."""
        if not self._descriptions:
            self._first = store_context("")
            self._descriptions["context"] = self._first.description
        if self._session is None:
            self._session = self._new_session(Task("", self._first))
            self._end = await at_loop_end(self._session.close)
        while self._values:
            name, stored = self._values.popitem()
            self._told_values[name] = stored.description
            await self._session.add_context(name, stored)
        if self.turns:
            await self._session.add_context("history", store_context(list(self.turns)))
        return self._session

    def _description(self) -> str:
        told = {**self._descriptions, **self._told_values}
        if len(told) == 1:
            return told["context"]
        if not self._first.size_bytes:
            del told["context"]
        return "\n" + "\n".join(f"- `{name}`: {text}" for name, text in told.items())

    def _earlier_turns(self) -> str:
        """The last few turns in short: a question may refer to them without naming them."""
        if not self.turns:
            return ""
        shown = [
            f"Earlier query: {_short(turn['query'])}\nYour answer: {_short(turn['answer'])}"
            for turn in self.turns[-TURNS_SHOWN:]
        ]
        told = "`history` holds all earlier turns. Variables are still there."
        return "\n".join([told, *shown])


def _short(text: str) -> str:
    return text if len(text) <= TURN_CHARS else text[:TURN_CHARS] + " …"
