"""Several runs over one session: variables, contexts and earlier turns stay."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from rlm._util.loop_end import LoopEnd, at_loop_end
from rlm._util.public_calls import public_call
from rlm.chat import ChatStorage, Spending, TurnSummary, messages_in
from rlm.config import RunChanges
from rlm.context import ContextValue, StoredContext, store_context, warn_of_path
from rlm.engine.repl_values import ChangingValue
from rlm.engine.sessions import RunSession
from rlm.engine.task import Task
from rlm.errors import ConfigError
from rlm.events import Event
from rlm.limits import Budget
from rlm.messages import Usage
from rlm.portal import inside, portal
from rlm.prompts import FIXED_QUERY
from rlm.protocols import Recorder
from rlm.records.recorders.in_process import events_of
from rlm.results import RunResult

__all__ = ["Chat"]

with_context = public_call(ConfigError, before=warn_of_path)
"""Mark a public call that takes a context; warn if the context is the name of a file."""

TURNS_SHOWN = 5
TURN_CHARS = 500

OnBudget = Callable[[Budget], None]
StartRun = Callable[
    [Task, RunSession, Any, Sequence[Recorder], RunChanges, OnBudget], Awaitable[RunResult]
]
NewSession = Callable[[Task], RunSession]
Store = Callable[[ContextValue], Awaitable[StoredContext]]
Self = TypeVar("Self", bound="Chat")


class Chat:
    """A conversation. `context` is its first context; further ones are `context_1`, `context_2` …

    In the REPL, `history` holds the earlier turns. Turns run one at a time, on one event loop.
    """

    def __init__(
        self,
        start_run: StartRun,
        new_session: NewSession,
        store: Store,
        context: ContextValue = None,
        *,
        spending: Spending | None = None,
        storage: ChatStorage | None = None,
        keeps_messages: bool = False,
    ) -> None:
        self._start_run = start_run
        self._new_session = new_session
        self._store = store
        self._pending = [] if context is None else [context]
        self._session: RunSession | None = None
        self._end: LoopEnd | None = None
        self._values: dict[str, StoredContext] = {}
        self._shown_values: dict[str, str] = {}
        self._stored: dict[str, StoredContext] = {}
        self._one_turn = asyncio.Lock()
        self._closed = False
        self._spending = spending or Spending()
        self._storage = storage or ChatStorage()
        self._keeps_messages = keeps_messages  # as `history_0` …, like the reference engine
        self.turns: list[dict[str, Any]] = []
        self.summaries: list[TurnSummary] = []
        self.notices = self._storage.notices

    # -- asking ------------------------------------------------------------------------------

    @with_context
    async def aask(
        self,
        query: str | None = None,
        context: ContextValue = None,
        *,
        response_model: Any = None,
        recorders: Sequence[Recorder] = (),
        sampling: Mapping[str, Any] | None = None,
        sub_sampling: Mapping[str, Any] | None = None,
        strict: bool = False,
    ) -> RunResult:
        """Run one turn, with a further context if given; without a query, that context holds the
        task.

        `sampling`, `sub_sampling` and `strict` are those of `RLM.aask`, for this turn; a turn
        without an answer still counts. Cancelling it keeps the chat and its variables. A turn
        that failed or was cancelled is not recorded.
        """
        async with self._turn():
            limits = self._spending.limits_left()
            new_name = await self._add_contexts(context)
            if query is None:
                query = FIXED_QUERY.replace("`context`", f"`{new_name or 'context'}`")
            session = await self._ready()
            parts = [self._earlier_turns(), session.take_loss(), self._storage.take_lost()]
            task = Task(
                query,
                self._stored["context"],
                description=self._description(),
                prologue="\n".join(filter(None, parts)),
                settings={"group": {"kind": "chat", "name": self._storage.chat_id}},
            )
            budgets = list[Budget]()  # empty until the run has begun
            try:
                changes = RunChanges(limits=limits, sampling=sampling, sub_sampling=sub_sampling)
                result = await self._start_run(
                    task, session, response_model, recorders, changes, budgets.append
                )
            finally:
                for each in budgets:
                    self._spending.count(each)
            await self._note(query, result)
            return result.strictly(strict)

    @with_context
    def ask(
        self,
        query: str | None = None,
        context: ContextValue = None,
        *,
        response_model: Any = None,
        sampling: Mapping[str, Any] | None = None,
        sub_sampling: Mapping[str, Any] | None = None,
        strict: bool = False,
    ) -> RunResult:
        """The blocking form of `aask`; Ctrl-C cancels the turn and keeps the chat."""
        given: dict[str, Any] = {"sampling": sampling, "sub_sampling": sub_sampling}
        given |= {"response_model": response_model, "strict": strict}
        return portal().call(lambda: self.aask(query, context, **given))

    @with_context
    async def stream(
        self,
        query: str | None = None,
        context: ContextValue = None,
        *,
        response_model: Any = None,
        sampling: Mapping[str, Any] | None = None,
        sub_sampling: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Yield every event of a turn as it happens; leaving the loop cancels the turn."""

        def start(recorder: Recorder) -> Coroutine[Any, Any, RunResult]:
            return self.aask(
                query,
                context,
                response_model=response_model,
                recorders=(recorder,),
                sampling=sampling,
                sub_sampling=sub_sampling,
            )

        async with aclosing(events_of(start)) as events:
            async for event in events:
                yield event

    @with_context
    def iter(
        self,
        query: str | None = None,
        context: ContextValue = None,
        *,
        response_model: Any = None,
        sampling: Mapping[str, Any] | None = None,
        sub_sampling: Mapping[str, Any] | None = None,
    ) -> Generator[Event, None, None]:
        """The blocking form of `stream`; leaving the loop cancels the turn and keeps the chat."""
        named: dict[str, Any] = {"response_model": response_model, "sampling": sampling}
        named["sub_sampling"] = sub_sampling
        return portal().iterate(lambda: self.stream(query, context, **named))

    @with_context
    async def aadd_context(self, context: ContextValue) -> str:
        """Add a context without a turn; return its name in the REPL."""
        async with self._turn():
            name = await self._add_contexts("" if context is None else context)
            assert name is not None
            return name

    @with_context
    def add_context(self, context: ContextValue) -> str:
        """The blocking form of `aadd_context`."""
        return portal().call(lambda: self.aadd_context(context))

    def bind(self, name: str, value: ContextValue | StoredContext) -> None:
        """Bind a variable from the next turn on; the model is shown its structure."""
        self._values[name] = store_context(value)

    def keep(self, name: str, value: ContextValue | ChangingValue) -> None:
        """Set the value of this variable in a new session, if the current session is lost."""
        if self._session is not None:
            kept = value if isinstance(value, ChangingValue) else store_context(value)
            self._session.contexts[name] = kept

    # -- what there is -----------------------------------------------------------------------

    @property
    def contexts(self) -> dict[str, str]:
        """The contexts by name, and the description that the model is shown."""
        return {n: each.description for n, each in self._stored.items() if n.startswith("context")}

    @property
    def context_bytes(self) -> int:
        """The size of all contexts together."""
        return sum(each.size_bytes for each in self._stored.values())

    @property
    def usage(self) -> Usage:
        """Tokens and money of all turns, including those that failed."""
        return self._spending.used

    @property
    def cost_usd(self) -> float | None:
        return self.usage.cost_usd

    async def avariables(self) -> dict[str, str]:
        """Return the variables of the REPL by name, with descriptions such as `list[3]`."""
        async with self._turn():
            if self._session is None or self._session.worker is None:
                return self._storage.waiting_variables()
            return await self._session.described_variables()

    def variables(self) -> dict[str, str]:
        """The blocking form of `avariables`."""
        return portal().call(self.avariables)

    async def afetch(self, name: str) -> str | None:
        """Return the text of a variable or context of the REPL; None if it does not exist."""
        async with self._turn():
            return None if self._session is None else await self._session.lookup(name)

    def fetch(self, name: str) -> str | None:
        """The blocking form of `afetch`."""
        return portal().call(lambda: self.afetch(name))

    # -- keeping -----------------------------------------------------------------------------

    async def asave(self, path: str | Path) -> Path:
        """Write turns, contexts and variables to one file; `notices` says what could not be saved.

        An existing file is replaced when the new one is complete.
        """
        async with self._turn():
            await self._add_contexts(None)
            worker = None if self._session is None else self._session.worker
            saving = asyncio.create_task(
                self._storage.save(
                    Path(path), self.turns, self.summaries, self._spending, self._stored, worker
                )
            )
            try:
                await asyncio.shield(saving)
            except asyncio.CancelledError:  # Interrupting it would lose the variables.
                await asyncio.wait([saving])
                raise
            return Path(path)

    def save(self, path: str | Path) -> Path:
        """The blocking form of `asave`."""
        return portal().call(lambda: self.asave(path))

    def load(self, path: str | Path) -> None:
        """Continue a saved chat in this new one. Its variables are restored with the first turn."""
        if self.turns or self._stored:
            raise ConfigError("only a new chat can be loaded: use rlm.chat(load=path)")
        loaded = self._storage.load(Path(path))
        self.turns, self.summaries = loaded.turns, loaded.summaries
        self._stored = loaded.contexts
        self._spending.note(loaded.usage, loaded.kept)

    # -- ending ------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """End the session; its variables are lost, `turns` stays."""
        self._closed = True
        self._storage.close()
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

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called; further turns are refused."""
        return self._closed

    @property
    def waits_for_this(self) -> bool:
        """Whether the calling code works for a turn of this chat, such as a tool of its cells."""
        return self in inside.get().turns

    @asynccontextmanager
    async def _turn(self) -> AsyncGenerator[None, None]:
        """Use the session alone; refuse to wait for a turn that waits for the caller."""
        if self.waits_for_this:
            raise ConfigError(
                "a turn of this chat is waiting for the code that asks it (a tool?), so it can't "
                "be asked: use `rlm.ask(...)` or another chat there"
            )
        async with self._one_turn:
            here = inside.get()
            token = inside.set(here._replace(turns=(*here.turns, self)))
            try:
                yield
            finally:
                inside.reset(token)

    async def _add_contexts(self, context: ContextValue) -> str | None:
        """Store the contexts that were passed in; return the name of the newest, if any."""
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
        """Return the session, with the earlier turns bound to `history`."""
        if "context" not in self._stored:
            self._stored["context"] = store_context("")
        if self._session is None:
            self._session = self._new_session(Task("", self._stored["context"]))
            self._session.outlives_runs = True
            self._session.restore = self._storage.restorer()
            self._end = await at_loop_end(self._session.close)
            for name, stored in self._stored.items():
                await self._session.add_context(name, stored)
        while self._values:
            name, stored = self._values.popitem()
            self._shown_values[name] = stored.description
            await self._session.add_context(name, stored)
        if self.turns:
            await self._session.add_context("history", store_context(list(self.turns)))
        return self._session

    async def _note(self, query: str, result: RunResult) -> None:
        """Record a turn: with its answer, the best answer at a limit, or none."""
        answer = str(result.answer) if result.has_answer else None
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
        shown = {**self.contexts, **self._shown_values}
        if len(shown) == 1:
            return shown["context"]
        if not self._stored["context"].size_bytes:
            del shown["context"]
        both = "`context`, also `context_0`" if self._keeps_messages else "`context`"
        names = {name: f"`{name}`" for name in shown} | {"context": both}
        return "\n" + "\n".join(f"- {names[name]}: {text}" for name, text in shown.items())

    def _earlier_turns(self) -> str:
        """Return the last few turns in brief, because a query may refer to them."""
        if not self.turns:
            return ""
        text = "`history` holds all earlier turns. Variables are still there."
        if self._keeps_messages:
            text += " The messages of each turn are in `history_0`, `history_1` and so on."
        return "\n".join([text, *map(_summary, self.turns[-TURNS_SHOWN:])])


def _summary(turn: dict[str, Any]) -> str:
    answer, ended = turn["answer"], turn.get("ended")
    if answer is None:
        said = f"You gave no answer (the run ended: {ended})."
    else:
        said = f"Your answer: {_short(answer)}"
        said += f" (the best there was when the run ended: {ended})" if ended else ""
    return f"Earlier query: {_short(turn['query'])}\n{said}"


def _short(text: str) -> str:
    return text if len(text) <= TURN_CHARS else text[:TURN_CHARS] + " …"
