"""Several runs over one session: variables, contexts and earlier turns stay."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

from rlm._util.loop_end import LoopEnd, at_loop_end
from rlm.chat import Keeper, Meter, Spending, TurnSummary, messages_in
from rlm.context import ContextValue, StoredContext, store_context
from rlm.engine.sessions import RunSession
from rlm.engine.task import Task
from rlm.errors import ConfigError
from rlm.events import Event
from rlm.limits import Limits
from rlm.messages import Usage
from rlm.portal import portal
from rlm.prompts import FIXED_QUERY
from rlm.protocols import Recorder
from rlm.records.recorders.in_process import events_of
from rlm.results import RunResult

__all__ = ["Chat"]

TURNS_SHOWN = 5
TURN_CHARS = 500

StartRun = Callable[
    [Task, RunSession, Any, Sequence[Recorder], Limits | None], Awaitable[RunResult]
]
NewSession = Callable[[Task], RunSession]
Store = Callable[[ContextValue], Awaitable[StoredContext]]
Self = TypeVar("Self", bound="Chat")


class Chat:
    """A conversation. `context` is its first context; further ones are `context_1`, `context_2` …

    In the REPL, `history` holds the earlier turns. One turn at a time, on one event loop.
    """

    def __init__(
        self,
        start_run: StartRun,
        new_session: NewSession,
        store: Store,
        context: ContextValue = None,
        *,
        spending: Spending | None = None,
        keeper: Keeper | None = None,
        keeps_messages: bool = False,
    ) -> None:
        self._start_run = start_run
        self._new_session = new_session
        self._store = store
        self._pending = [] if context is None else [context]
        self._session: RunSession | None = None
        self._end: LoopEnd | None = None
        self._values: dict[str, StoredContext] = {}
        self._told_values: dict[str, str] = {}
        self._stored: dict[str, StoredContext] = {}
        self._one_turn = asyncio.Lock()
        self._closed = False
        self._spending = spending or Spending()
        self._keeper = keeper or Keeper()
        self._keeps_messages = keeps_messages  # as `history_0` …, which the reference engine does
        self.turns: list[dict[str, Any]] = []
        self.summaries: list[TurnSummary] = []
        self.notices = self._keeper.notices

    # -- asking ------------------------------------------------------------------------------

    async def aask(
        self,
        query: str | None = None,
        context: ContextValue = None,
        *,
        response_model: Any = None,
        recorders: Sequence[Recorder] = (),
        strict: bool = False,
    ) -> RunResult:
        """One turn, with one more context if given; with no query, that context holds the task.

        `strict` is that of `RLM.aask`; a turn without an answer is a turn all the same.
        Cancelling it keeps the chat and its variables. What failed or was cancelled is no turn.
        """
        async with self._one_turn:
            limits = self._spending.limits_left(self.usage)
            new_name = await self._add_contexts(context)
            if query is None:
                query = FIXED_QUERY.replace("`context`", f"`{new_name or 'context'}`")
            session = await self._ready()
            told = [self._earlier_turns(), session.take_loss(), self._keeper.told_once()]
            task = Task(
                query,
                self._stored["context"],
                description=self._description(),
                prologue="\n".join(filter(None, told)),
            )
            meter = Meter()
            try:
                result = await self._start_run(
                    task, session, response_model, (*recorders, meter), limits
                )
            finally:
                self._spending.note(meter.usage)
            await self._note(query, result)
            return result.strictly(strict)

    def ask(
        self,
        query: str | None = None,
        context: ContextValue = None,
        *,
        response_model: Any = None,
        strict: bool = False,
    ) -> RunResult:
        """The blocking form of `aask`; Ctrl-C cancels the turn and keeps the chat."""
        return portal().call(
            lambda: self.aask(query, context, response_model=response_model, strict=strict)
        )

    async def stream(
        self, query: str | None = None, context: ContextValue = None, *, response_model: Any = None
    ) -> AsyncGenerator[Event, None]:
        """Every event of a turn while it goes on; leaving the loop cancels the turn."""

        def start(recorder: Recorder) -> Coroutine[Any, Any, RunResult]:
            return self.aask(query, context, response_model=response_model, recorders=(recorder,))

        async with aclosing(events_of(start)) as events:
            async for event in events:
                yield event

    async def aadd_context(self, context: ContextValue) -> str:
        """One more context, without a turn; the name it has in the REPL."""
        async with self._one_turn:
            name = await self._add_contexts("" if context is None else context)
            assert name is not None
            return name

    def add_context(self, context: ContextValue) -> str:
        """The blocking form of `aadd_context`."""
        return portal().call(lambda: self.aadd_context(context))

    def bind(self, name: str, value: ContextValue) -> None:
        """Have a variable of this name from the next turn on, told by its structure."""
        self._values[name] = store_context(value)

    def keep(self, name: str, value: ContextValue) -> None:
        """Say what a fresh session has under this name, should the one in use be lost."""
        if self._session is not None:
            self._session.contexts[name] = store_context(value)

    # -- what there is -----------------------------------------------------------------------

    @property
    def contexts(self) -> dict[str, str]:
        """The contexts by name, and what the model is told of each."""
        return {n: each.description for n, each in self._stored.items() if n.startswith("context")}

    @property
    def context_bytes(self) -> int:
        """How large all contexts together are."""
        return sum(each.size_bytes for each in self._stored.values())

    @property
    def usage(self) -> Usage:
        """Tokens and money of all turns, those that failed included."""
        return self._spending.used

    @property
    def cost_usd(self) -> float | None:
        return self.usage.cost_usd

    async def avariables(self) -> dict[str, str]:
        """The variables of the REPL by name, and what they are, such as `list[3]`."""
        async with self._one_turn:
            if self._session is None or self._session.worker is None:
                return self._keeper.waiting_variables()
            return await self._session.described_variables()

    def variables(self) -> dict[str, str]:
        """The blocking form of `avariables`."""
        return portal().call(self.avariables)

    async def afetch(self, name: str) -> str | None:
        """The text of a variable or context of the REPL; None if there is none of that name."""
        async with self._one_turn:
            return None if self._session is None else await self._session.lookup(name)

    def fetch(self, name: str) -> str | None:
        """The blocking form of `afetch`."""
        return portal().call(lambda: self.afetch(name))

    # -- keeping -----------------------------------------------------------------------------

    async def asave(self, path: str | Path) -> Path:
        """Write turns, contexts and variables to one file; `notices` tells what could not be kept.

        What had that name before is replaced when the new file is whole, not earlier.
        """
        async with self._one_turn:
            await self._add_contexts(None)
            worker = None if self._session is None else self._session.worker
            saving = asyncio.create_task(
                self._keeper.save(
                    Path(path), self.turns, self.summaries, self.usage, self._stored, worker
                )
            )
            try:
                await asyncio.shield(saving)
            except asyncio.CancelledError:  # Breaking it off would cost the variables.
                await asyncio.wait([saving])
                raise
            return Path(path)

    def save(self, path: str | Path) -> Path:
        """The blocking form of `asave`."""
        return portal().call(lambda: self.asave(path))

    def load(self, path: str | Path) -> None:
        """Go on with a saved chat in this new one. Its variables come with the first turn."""
        if self.turns or self._stored:
            raise ConfigError("only a new chat can be loaded: use rlm.chat(load=path)")
        loaded = self._keeper.load(Path(path))
        self.turns, self.summaries = loaded.turns, loaded.summaries
        self._stored = loaded.contexts
        self._spending.note(loaded.usage)

    # -- ending ------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """End the session; its variables are gone, `turns` stays."""
        self._closed = True
        self._keeper.close()
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

    # -- one turn ----------------------------------------------------------------------------

    async def _add_contexts(self, context: ContextValue) -> str | None:
        """Store what was handed in; the name of the newest context, if there is a new one."""
        if self._closed:
            raise ConfigError("this chat is closed; start another with rlm.chat()")
        values = [*self._pending, *([] if context is None else [context])]
        name = None
        for value in values:
            stored = await self._store(value)
            self._pending = []
            known = len(self.contexts)
            name = f"context_{known}" if known else "context"
            self._stored[name] = stored
            if self._session is not None:
                await self._session.add_context(name, stored)
        return name

    async def _ready(self) -> RunSession:
        """The session, with the earlier turns bound to `history`."""
        if "context" not in self._stored:
            self._stored["context"] = store_context("")
        if self._session is None:
            self._session = self._new_session(Task("", self._stored["context"]))
            self._session.outlives_runs = True
            self._session.restore = self._keeper.restorer()
            self._end = await at_loop_end(self._session.close)
            for name, stored in self._stored.items():
                await self._session.add_context(name, stored)
        while self._values:
            name, stored = self._values.popitem()
            self._told_values[name] = stored.description
            await self._session.add_context(name, stored)
        if self.turns:
            await self._session.add_context("history", store_context(list(self.turns)))
        return self._session

    async def _note(self, query: str, result: RunResult) -> None:
        """Remember a turn as it was: an answer, the best one at a limit, or none."""
        answer = None if result.answer is None else str(result.answer)
        turn: dict[str, Any] = {"query": query, "answer": answer}
        if result.stop_reason != "answer":
            turn["ended"] = result.limit or result.stop_reason
        self.summaries.append(TurnSummary.of(result))
        self.turns.append(turn)
        if self._keeps_messages and self._session is not None:
            name = f"history_{len(self.turns) - 1}"
            self._stored[name] = stored = store_context(messages_in(result))
            await self._session.add_context(name, stored)

    def _description(self) -> str:
        told = {**self.contexts, **self._told_values}
        if len(told) == 1:
            return told["context"]
        if not self._stored["context"].size_bytes:
            del told["context"]
        return "\n" + "\n".join(f"- `{name}`: {text}" for name, text in told.items())

    def _earlier_turns(self) -> str:
        """The last few turns in short: a question may refer to them without naming them."""
        if not self.turns:
            return ""
        told = "`history` holds all earlier turns. Variables are still there."
        if self._keeps_messages:
            told += " The messages of each turn are in `history_0`, `history_1` and so on."
        return "\n".join([told, *map(_retold, self.turns[-TURNS_SHOWN:])])


def _retold(turn: dict[str, Any]) -> str:
    answer, ended = turn["answer"], turn.get("ended")
    if answer is None:
        said = f"You gave no answer (the run ended: {ended})."
    else:
        said = f"Your answer: {_short(answer)}"
        said += f" (the best there was when the run ended: {ended})" if ended else ""
    return f"Earlier query: {_short(turn['query'])}\n{said}"


def _short(text: str) -> str:
    return text if len(text) <= TURN_CHARS else text[:TURN_CHARS] + " …"
