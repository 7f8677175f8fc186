"""`AgentRLM`: a conversation whose answers are streamed, with tools and a memory.

A turn is a run in the session of the whole conversation. The memory of the agent is in the REPL
(`history`, `context_data`); the prompt shows only its structure.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from rlm.agent.context import AgentContext
from rlm.agent.departures import departures
from rlm.api import RLM
from rlm.chat.chat import Chat
from rlm.compat import raise_if_ended_early
from rlm.compat.backends import read_backend
from rlm.context import ContextValue, StoredContext, store_context
from rlm.engine.repl_values import ChangingValue
from rlm.errors import ConfigError, ModelError
from rlm.events import Event, Noted, OutputStreamed
from rlm.limits import Limits
from rlm.logger import RLMLogger
from rlm.protocols import Recorder, Tool
from rlm.records.recorders.in_process import events_of
from rlm.results import RunResult
from rlm.tools import as_tools
from rlm.wiring.resources import Model
from rlm.worker.agent_names import AGENT_NAMES

__all__ = ["AgentRLM", "Backend"]

Backend = Model
"""The name of a provider with `backend_kwargs`, the name of a model, a client, or a function."""

Self = TypeVar("Self", bound="AgentRLM")

log = logging.getLogger("rlm")


class AgentRLM:
    """An assistant: `async for chunk in agent.chat(message)`.

    `max_iterations`, `max_tokens` and `max_cost` apply to each turn. Further keywords are those of
    `RLM`; `tools` are registered as by `register_tool`. Turns run one at a time, on one event
    loop; a second turn waits.
    """

    def __init__(
        self,
        backend: Backend = "openai",
        backend_kwargs: dict[str, Any] | None = None,
        environment: Any = "agent",
        environment_kwargs: Mapping[str, Any] | None = None,
        max_depth: int = 1,
        max_iterations: int = 30,
        logger: RLMLogger | None = None,
        verbose: bool = False,
        agent_context: AgentContext | None = None,
        enable_tools: bool = True,
        enable_streaming: bool = True,
        max_tokens: int | None = None,
        max_cost: float | None = None,
        **options: Any,
    ) -> None:
        for setting, _ in departures(
            environment, environment_kwargs, enable_tools, enable_streaming
        ):
            log.warning("this agent has %s, which create_enforced_agent would refuse", setting)
        tools, self._sub_tools = _tools_in(options)
        options = {
            "compaction": True,
            **options,
            **_model_options(backend, backend_kwargs),
            "environment": environment,
            "environment_kwargs": environment_kwargs,
            "max_depth": max_depth,
            "max_iterations": max_iterations,
            "max_tokens": max_tokens,
            "limits": _with_cost(options.get("limits"), max_cost),
            "logger": logger,
            "verbose": verbose,
        }
        self._rlm = RLM(**options)
        self.context = AgentContext() if agent_context is None else agent_context
        self.last_result: RunResult | None = None
        self.missing_tools: tuple[str, ...] = ()
        self._tools_enabled = enable_tools
        self._streaming_enabled = enable_streaming
        self._tools: dict[str, Tool] = {}
        self._granted: dict[str, Any] = {}  # what `_tools` has from `context.tools`
        if tools and not enable_tools:
            raise ConfigError("tools= was given, but this agent was made with enable_tools=False")
        self._tools.update(_own_tools(tools))
        self.context.tools.update(self._tools)
        self._conversation: Chat | None = None
        self._is_new_conversation = False
        self._is_new_memory = True
        self._bound: dict[str, str] = {}  # `context_data` as the REPL has it, each value as JSON
        self._one_turn = asyncio.Lock()
        self._answer = ""

    # -- what it knows and may do ------------------------------------------------------------

    @property
    def agent_context(self) -> AgentContext:
        """The memory, `context`, under rlm-kit's name; changes count from the next turn on."""
        return self.context

    @agent_context.setter
    def agent_context(self, context: AgentContext) -> None:
        self.context = context
        self._is_new_memory = True

    def register_tool(self, name: str, function: Any) -> None:
        """Let cells call a function, or the methods of an object, from the next turn on.

        It may be a coroutine function. Its signature and docstring are shown to the model.
        """
        if not self._tools_enabled:
            raise ConfigError(f"tool {name!r}: this agent was made with enable_tools=False")
        self._tools.update(_own_tools({name: function}))
        self.context.tools[name] = function
        self.missing_tools = tuple(each for each in self.missing_tools if each != name)

    def add_context(self, key: str, data: Any) -> None:
        """Store a JSON value in `context_data`, from the next turn on."""
        self.context.add(key, data)
        self._is_new_memory = True

    def get_conversation_history(self) -> list[dict[str, str]]:
        """Return the messages as {"role": "user" or "assistant", "content": text}, oldest first.

        Those of `context.history` also have `timestamp` and `metadata`.
        """
        said = ("role", "content")
        return [{name: message[name] for name in said} for message in self.context.history]

    def save_context(self, path: str | Path) -> None:
        """Write the conversation, `context_data` and the names of tools to a JSON file."""
        names = dict.fromkeys((*self._tools, *self.context.tools, *self.missing_tools))
        self.context.save(path, list(names))

    def load_context(self, path: str | Path) -> None:
        """Continue what `save_context` wrote, in a new REPL from the next turn on.

        Files of rlm-kit are read too.
        `missing_tools` names the tools that the agent had and that must be registered again.
        """
        loaded, tools = AgentContext.load(path)
        loaded.tools.update(self.context.tools)  # functions are not in the file
        self.context = loaded
        known = self._tools.keys() | loaded.tools.keys()
        self.missing_tools = tuple(name for name in tools if name not in known)
        self._is_new_memory = True
        self._is_new_conversation = True

    # -- talking -----------------------------------------------------------------------------

    def chat(
        self,
        message: str,
        context: ContextValue = None,
        tools: Any = None,
        stream: bool = True,
    ) -> AsyncGenerator[str, None]:
        """Yield the answer in pieces during the run; joined, they are exactly the answer, unless a
        piece says that those before it are not.

        `context` is a further context, and `tools` are further tools for this turn only. Leaving
        the loop cancels the turn. With `stream=False`, the answer is one piece.
        """
        return self._pieces(message, context, tools, stream and self._streaming_enabled)

    async def _pieces(
        self, message: str, context: ContextValue, tools: Any, streams: bool
    ) -> AsyncGenerator[str, None]:
        streamed_chars = 0
        async with aclosing(self.events(message, context, tools)) as events:
            async for event in events:
                if isinstance(event, OutputStreamed) and event.depth == 0 and event.text:
                    streamed_chars += -event.taken_back_chars or len(event.text)
                    if streams:
                        yield event.text
        rest = self._answer[streamed_chars:] if streams else self._answer
        if rest:
            yield rest

    async def events(
        self, message: str, context: ContextValue = None, tools: Any = None
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of one turn, to show progress."""
        if self._conversation is not None and self._conversation.waits_for_this:
            raise ConfigError("a turn of this agent is waiting for the tool that is asking it")
        async with self._one_turn:
            self._grant(tools)
            chat = await self._ready()

            def start(recorder: Recorder) -> Coroutine[Any, Any, RunResult]:
                return self._turn(chat, message, context, recorder)

            async with aclosing(events_of(start)) as events:
                async for event in events:
                    yield event

    async def _turn(
        self, chat: Chat, message: str, context: ContextValue, recorder: Recorder
    ) -> RunResult:
        memory = _TurnMemory(self)
        try:
            result = await chat.aask(message, context, recorders=(memory, recorder))
        finally:
            await self.context.settle()
        streamed = memory.streamed()
        is_said = streamed and result.answer_source == "last_output"
        submitted = "" if is_said or result.answer is None else str(result.answer)
        answer = streamed + rest_of(streamed, submitted)
        if result.answer is None and not answer:
            raise_if_ended_early(result, self._rlm.config.limits)
            raise ModelError(f"the turn ended without an answer: {result.detail}")
        self._answer = answer
        self.last_result = replace(result, answer=answer)
        self.context.add_message("user", message)
        self.context.add_message("assistant", answer)
        chat.turns[:] = self.context.turns()
        return self.last_result

    # -- ending ------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Close the REPL and its connections; the memory stays."""
        await self._forget_session()
        await self._rlm.aclose()

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # -- one turn ----------------------------------------------------------------------------

    async def _ready(self) -> Chat:
        """Return the conversation, with the memory of the agent bound in its REPL."""
        if self._is_new_conversation:
            await self._forget_session()
            self._is_new_conversation = False
        if self._conversation is None:
            self._conversation = self._rlm.chat()
            self._is_new_memory = True
        chat = self._conversation
        chat.turns[:] = self.context.turns()
        known = await asyncio.to_thread(lambda: _as_json(self.context.snapshot()))
        if self._is_new_memory or known != self._bound:
            chat.bind("context_data", await asyncio.to_thread(self._stored_memory))
            self._is_new_memory, self._bound = False, known
        return chat

    async def _forget_session(self) -> None:
        if self._conversation is not None:
            conversation, self._conversation = self._conversation, None
            await conversation.aclose()

    def _grant(self, further: Any) -> None:
        """Set the tools of this turn; none if tools are disabled."""
        if further and not self._tools_enabled:
            raise ConfigError("tools= was given, but this agent was made with enable_tools=False")
        given = self.context.tools if self._tools_enabled else {}
        new = {name: tool for name, tool in given.items() if self._granted.get(name) is not tool}
        self._tools.update(_own_tools(new))
        self._granted.update(new)
        self._rlm.grant_tools({**self._tools, **_own_tools(further)}, self._sub_tools)

    def _note(self, event: Noted) -> None:
        """Store a note of a cell; a child's note is not in the REPL of its parent yet."""
        self.context.note(event.key, event.value)
        self._is_new_memory = self._is_new_memory or event.depth > 0
        self._bound[event.key] = event.value
        if self._conversation is not None:
            self._conversation.keep("context_data", ChangingValue(self._stored_memory))

    def _stored_memory(self) -> StoredContext:
        """Return `context_data` as it is now, measured. This takes long if there is much of it."""
        stored = store_context(self.context.snapshot())
        _ = stored.size_bytes
        return stored


class _TurnMemory:
    """Records what the cells of a turn stream and note, even if nobody reads the events."""

    wants_pieces = True

    def __init__(self, agent: AgentRLM) -> None:
        self._agent = agent
        self._pieces: list[str] = []  # Joined once: there may be very many.

    def record(self, event: Event) -> None:
        if isinstance(event, OutputStreamed) and event.depth == 0:
            if event.taken_back_chars:
                self._pieces = [self.streamed()[: -event.taken_back_chars]]
            else:
                self._pieces.append(event.text)
        elif isinstance(event, Noted):
            self._agent._note(event)

    def streamed(self) -> str:
        """Return what of the answer has been streamed."""
        return "".join(self._pieces)


def _model_options(backend: Backend, backend_kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """Return the options of `RLM` for a provider with its options, or for any other model."""
    if isinstance(backend, str) and (backend_kwargs is not None or "/" not in backend):
        if missing := read_backend(backend, backend_kwargs).missing_key:
            raise ConfigError(missing)  # Fail early: an agent may be used much later.
        return {"backend": backend, "backend_kwargs": backend_kwargs}
    if backend_kwargs:
        raise ConfigError("backend_kwargs needs the name of a provider")
    return {"model": backend}


def _as_json(data: dict[str, Any]) -> dict[str, str]:
    """Return each value of `context_data` as JSON; a program may have changed it directly."""
    try:
        return {key: json.dumps(value) for key, value in data.items()}
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"context_data can't be stored as JSON ({error}); use plain values"
        ) from error


def _with_cost(limits: Limits | None, max_cost: float | None) -> Limits | None:
    """Return the limits with a money limit, under which models of unknown price are refused."""
    return limits if max_cost is None else replace(limits or Limits(), max_cost_usd=max_cost)


def _own_tools(given: Any) -> dict[str, Tool]:
    """Return tools by name; values, and names that agents already have, are refused.

    An object is one tool; its methods are granted with it.
    """
    tools, values = as_tools(given)
    if values:
        name = next(iter(values))
        raise ConfigError(
            f"tool {name!r} is data, not callable or an object with methods; give data to the "
            "agent with add_context"
        )
    taken = {entry.name for entry in AGENT_NAMES}
    for tool in tools:
        if tool.name in taken:
            raise ConfigError(f"a tool can't be named {tool.name!r}: agents already use that name")
    return {tool.name: tool for tool in tools if "." not in tool.name}


def _tools_in(options: dict[str, Any]) -> tuple[Any, Any]:
    """Remove and return the tools of the agent and of child runs, in either spelling."""
    found = []
    for ours, theirs in (("tools", "custom_tools"), ("sub_tools", "custom_sub_tools")):
        given = [value for name in (ours, theirs) if (value := options.pop(name, None)) is not None]
        if len(given) > 1:
            raise ConfigError(f"{ours} and {theirs} are two spellings of one option: give one")
        found.append(given[0] if given else None)
    return found[0], found[1]


def rest_of(streamed: str, submitted: str) -> str:
    """Return the rest of the answer after `streamed`, which can't be taken back.

    Most models submit the whole answer, so only its end is missing. Some submit what they streamed
    last, so nothing is missing. Others continue where they stopped.
    """
    if submitted.startswith(streamed):
        return submitted[len(streamed) :]
    return "" if streamed.endswith(submitted) else submitted
