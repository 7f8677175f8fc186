"""Chats behind wrapped models: one chat of the engine for each conversation of llm.

The engine runs on its own thread, so a conversation may be used from any thread and any event loop.
A chat ends with its conversation, or with the program.
"""

import asyncio
import atexit
import contextlib
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import llm

from llm_rlm.common import MISSING_ENGINE, as_llm_error
from llm_rlm.options import RunOptions, model_options
from llm_rlm.prompts import Question, read_prompt

if TYPE_CHECKING:
    from rlm import RLM, Chat, RunResult
    from rlm.protocols import Recorder

__all__ = ["Turn", "close_all", "next_turn"]

CLOSE_SECONDS = 5.0


class _OpenChat:
    """The chat of a conversation, and the settings it was made with."""

    def __init__(self, engine: "RLM", settings: Any) -> None:
        self.engine = engine
        self.settings = settings
        self.chat: Chat = engine.chat()
        self.is_fresh = True
        """Whether it has had no turn yet, so that it still needs the earlier contexts."""

    async def aclose(self) -> None:
        await self.chat.aclose()
        await self.engine.aclose()


_open_chats: dict[int, _OpenChat] = {}
"""By identity of the conversation object, because two objects may have the same conversation id."""


@dataclass(frozen=True)
class Turn:
    """One turn of a chat. With `is_only` there is no conversation, and the chat ends with it."""

    opened: _OpenChat
    question: Question
    schema: dict[str, Any] | None
    is_only: bool

    async def run(self, recorder: "Recorder") -> "RunResult":
        """Add the contexts, then ask; this runs on the engine's thread."""
        from rlm.prompts import FIXED_QUERY

        chat, question = self.opened.chat, self.question
        try:
            contexts = await asyncio.to_thread(question.contexts, is_first=self.opened.is_fresh)
            for context in contexts[:-1]:
                await chat.aadd_context(context)
            if self.opened.is_fresh and question.earlier:
                chat.bind("earlier", list(question.earlier))
            self.opened.is_fresh = False
            return await chat.aask(
                question.query or (FIXED_QUERY if len(contexts) > 1 else None),
                contexts[-1] if contexts else None,
                response_model=self.schema,
                recorders=(recorder,),
            )
        finally:
            if self.is_only:
                await self.opened.aclose()


def next_turn(inner: Any, prompt: Any, conversation: Any, key: str | None) -> Turn:
    """Return the turn for a prompt; raise llm.ModelError, before anything is sent, if it fails."""
    try:
        from rlm.errors import RLMError
    except ImportError as error:
        raise llm.ModelError(MISSING_ENGINE) from error
    question = read_prompt(prompt)
    if question.is_empty:
        raise llm.ModelError("nothing to answer: pass a question, or something to read")
    schema = prompt.schema if isinstance(prompt.schema, dict) else None
    try:
        return _turn(inner, question, prompt.options, key, schema, conversation)
    except RLMError as error:
        raise as_llm_error(error) from error


def _turn(
    inner: Any,
    question: Question,
    given: RunOptions,
    key: str | None,
    schema: dict[str, Any] | None,
    conversation: Any,
) -> Turn:
    """Return the next turn of a conversation, in its open chat or a new one."""
    settings = (
        inner.model_id,
        given.model_dump_json(),
        key,
        question.system,
        question.instructions,
    )
    chat = None if conversation is None else _open_chats.get(id(conversation))
    if chat is not None and chat.settings == settings:
        return Turn(chat, question, schema, is_only=False)
    made = _OpenChat(_engine(inner, question, given, key), settings)
    if conversation is not None:
        _keep(conversation, made)
    return Turn(made, question, schema, is_only=conversation is None)


def _engine(inner: Any, question: Question, given: RunOptions, key: str | None) -> "RLM":
    from rlm import RLM, Limits
    from rlm.models import about

    root = f"llm/{inner.model_id}"
    sub_inner = inner if given.sub_model is None else llm.get_model(given.sub_model)
    sub = f"llm/{sub_inner.model_id}"
    models = {sub: (sub_inner, {}), root: (inner, model_options(given, inner.Options))}
    options: dict[str, Mapping[str, Any]] = {
        name: {
            "key": key if each.needs_key == inner.needs_key else None,
            "options": own_options,
            "infos": {each.model_id: about("llm", each.model_id)},
        }
        for name, (each, own_options) in models.items()
    }
    limits: dict[str, Any] = {
        "max_steps": given.max_steps,
        "max_depth": given.max_depth,
        "max_cost_usd": given.budget,
        "max_seconds": given.timeout,
    }
    return RLM(
        root,
        sub_model=sub,
        environment=_environment(given.environment),
        limits=Limits(**{name: value for name, value in limits.items() if value is not None}),
        prologue=question.prologue(),
        prices=None if given.prices is None else dict.fromkeys(models, given.prices),
        client_options=options,
    )


def _environment(named: str | None) -> str:
    """Return where code runs; off Linux, where there is no `local`, that means `auto`."""
    from rlm.environments.auto import meant_by_local

    return meant_by_local() if named == "local" else named or "auto"


def _keep(conversation: Any, made: _OpenChat) -> None:
    if (replaced := _open_chats.pop(id(conversation), None)) is not None:
        _close_later(replaced)
    else:
        weakref.finalize(conversation, _forget, id(conversation)).atexit = False
    _open_chats[id(conversation)] = made


def _forget(identity: int) -> None:
    if (chat := _open_chats.pop(identity, None)) is not None:
        _close_later(chat)


def _close_later(chat: _OpenChat) -> None:
    from rlm.portal import portal

    portal().close_later(chat.aclose)


@atexit.register
def close_all() -> None:
    """Close all open chats, at the end of the program or of a test."""
    if not _open_chats:
        return
    from rlm.portal import portal

    while _open_chats:
        _, chat = _open_chats.popitem()
        closing = asyncio.run_coroutine_threadsafe(chat.aclose(), portal().loop)
        with contextlib.suppress(TimeoutError):
            closing.result(CLOSE_SECONDS)
