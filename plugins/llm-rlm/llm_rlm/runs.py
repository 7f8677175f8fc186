"""Runs behind wrapped models: one chat of the engine's for each conversation of `llm`'s.

Everything of the engine's lives on its own thread, so a conversation may be used from any thread
and from any event loop. A chat ends with its conversation, or with the program.
"""

import asyncio
import atexit
import contextlib
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import llm

from llm_rlm.asked import Asked
from llm_rlm.options import RunOptions, model_options

if TYPE_CHECKING:
    from rlm import RLM, Chat, RunResult
    from rlm.protocols import Recorder

__all__ = ["Turn", "close_all", "turn_for"]

CLOSE_SECONDS = 5.0


class _Kept:
    """The chat of a conversation, and what it was set up with."""

    def __init__(self, engine: "RLM", settings: Any) -> None:
        self.engine = engine
        self.settings = settings
        self.chat: Chat = engine.chat()
        self.is_fresh = True
        """Whether it has yet to be given what was there before its first turn."""

    async def aclose(self) -> None:
        await self.chat.aclose()
        await self.engine.aclose()


_kept: dict[int, _Kept] = {}
"""By the identity of the conversation object: two may have one id, and each its own process."""


@dataclass(frozen=True)
class Turn:
    """One question to a chat. `is_only`: nobody will ask again, so the chat ends with it."""

    kept: _Kept
    asked: Asked
    schema: dict[str, Any] | None
    is_only: bool

    async def run(self, recorder: "Recorder") -> "RunResult":
        """On the engine's thread: hand in the contexts, then ask."""
        from rlm.prompts import FIXED_QUERY

        chat, asked = self.kept.chat, self.asked
        try:
            contexts = await asyncio.to_thread(asked.contexts, is_first=self.kept.is_fresh)
            for context in contexts[:-1]:
                await chat.aadd_context(context)
            if self.kept.is_fresh and asked.earlier:
                chat.bind("earlier", list(asked.earlier))
            self.kept.is_fresh = False
            return await chat.aask(
                asked.query or (FIXED_QUERY if len(contexts) > 1 else None),
                contexts[-1] if contexts else None,
                response_model=self.schema,
                recorders=(recorder,),
            )
        finally:
            if self.is_only:
                await self.kept.aclose()


def turn_for(
    inner: Any,
    asked: Asked,
    given: RunOptions,
    key: str | None,
    schema: dict[str, Any] | None,
    conversation: Any,
) -> Turn:
    """The next turn of a conversation, on the chat that it has, or on a new one."""
    settings = (inner.model_id, given.model_dump_json(), key, asked.system, asked.instructions)
    kept = None if conversation is None else _kept.get(id(conversation))
    if kept is not None and kept.settings == settings:
        return Turn(kept, asked, schema, is_only=False)
    made = _Kept(_engine(inner, asked, given, key), settings)
    if conversation is not None:
        _keep(conversation, made)
    return Turn(made, asked, schema, is_only=conversation is None)


def _engine(inner: Any, asked: Asked, given: RunOptions, key: str | None) -> "RLM":
    from rlm import RLM, Limits
    from rlm.models import about

    root = f"llm/{inner.model_id}"
    sub_inner = inner if given.sub_model is None else llm.get_model(given.sub_model)
    sub = f"llm/{sub_inner.model_id}"
    told = {sub: (sub_inner, {}), root: (inner, model_options(given, inner.Options))}
    options: dict[str, Mapping[str, Any]] = {
        name: {
            "key": key if each.needs_key == inner.needs_key else None,
            "options": words,
            "infos": {each.model_id: about("llm", each.model_id)},
        }
        for name, (each, words) in told.items()
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
        environment=given.environment or "local",
        limits=Limits(**{name: value for name, value in limits.items() if value is not None}),
        prologue=asked.prologue(),
        prices=None if given.prices is None else dict.fromkeys(told, given.prices),
        client_options=options,
    )


def _keep(conversation: Any, made: _Kept) -> None:
    if (replaced := _kept.pop(id(conversation), None)) is not None:
        _close_later(replaced)
    else:
        weakref.finalize(conversation, _forget, id(conversation)).atexit = False
    _kept[id(conversation)] = made


def _forget(identity: int) -> None:
    if (kept := _kept.pop(identity, None)) is not None:
        _close_later(kept)


def _close_later(kept: _Kept) -> None:
    from rlm.portal import portal

    portal().close_later(kept.aclose)


@atexit.register
def close_all() -> None:
    """End what is still open: at the end of the program, or of a test."""
    if not _kept:
        return
    from rlm.portal import portal

    while _kept:
        _, kept = _kept.popitem()
        closing = asyncio.run_coroutine_threadsafe(kept.aclose(), portal().loop)
        with contextlib.suppress(TimeoutError):
            closing.result(CLOSE_SECONDS)
