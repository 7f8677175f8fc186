"""The models `rlm/<model>`: each wraps a model of llm and answers with runs."""

import os
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import llm
from llm.parts import StreamEvent

from llm_rlm.options import RunOptions, combined_options
from llm_rlm.prompts import command_parameters

if TYPE_CHECKING:
    from rlm import RunResult

__all__ = ["PREFIX", "AsyncRLMModel", "RLMModel", "wrap_all"]

PREFIX = "rlm/"
MAX_LISTED = 60
"""If there are more, `llm models` shows one line for all; `llm models -q rlm/` lists them."""


class _AnyType(frozenset[str]):
    """Accepts every type of attachment, since code can read any file; shows only a few."""

    def __contains__(self, _: object) -> bool:
        return True


SHOWN_TYPES = _AnyType({"application/json", "application/pdf", "image/*", "text/*"})


class _LazyOptions:
    """The options of a wrapped model, made on first use because pydantic classes take time."""

    def __get__(self, wrapped: Any, _: Any = None) -> type[RunOptions]:
        if wrapped is None:
            return RunOptions
        made = combined_options(wrapped.inner.Options)
        wrapped.Options = made
        return made


class _Wrapped:
    """The common part of the blocking and the asynchronous model."""

    can_stream = True
    supports_schema = True
    attachment_types: set[str] | frozenset[str] = SHOWN_TYPES
    key: str | None = None
    Options: Any = _LazyOptions()

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.model_id = f"{PREFIX}{inner.model_id}"
        self.needs_key = inner.needs_key
        self.key_env_var = inner.key_env_var

    def get_key(self, explicit_key: str | None = None) -> str | None:
        """Return the key of the wrapped model, found where that model looks for it."""
        found: str | None = self.key or self.inner.get_key(explicit_key)
        return found

    def __str__(self) -> str:
        return f"RLM: {self.model_id}"


class RLMModel(_Wrapped, llm.KeyModel):
    """A model that answers each prompt with a run of the wrapped model."""

    def execute(
        self, prompt: Any, stream: bool, response: Any, conversation: Any, key: str | None = None
    ) -> Iterator[StreamEvent]:
        """Yield reasoning and cells as they arrive, then the answer."""
        from llm_rlm.chats import next_turn
        from llm_rlm.responses import EventParts, answer_parts
        from llm_rlm.streaming import events_blocking

        turn = next_turn(self.inner, prompt, conversation, key)
        converter = EventParts(hides_reasoning=bool(prompt.hide_reasoning))
        events, result = events_blocking(turn), None
        try:
            while True:
                yield from converter.parts(next(events))
        except StopIteration as end:
            result = end.value
        finally:
            events.close()
        yield from answer_parts(result, response, prompt)


class AsyncRLMModel(_Wrapped, llm.AsyncKeyModel):
    """The asynchronous form of `RLMModel`."""

    async def execute(
        self, prompt: Any, stream: bool, response: Any, conversation: Any, key: str | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """Yield reasoning and cells as they arrive, then the answer."""
        from contextlib import aclosing

        from llm_rlm.chats import next_turn
        from llm_rlm.responses import EventParts, answer_parts
        from llm_rlm.streaming import Ended, events_awaited

        turn = next_turn(self.inner, prompt, conversation, key)
        converter = EventParts(hides_reasoning=bool(prompt.hide_reasoning))
        result: RunResult | None = None
        async with aclosing(events_awaited(turn)) as events:
            async for event in events:
                if isinstance(event, Ended):
                    result = event.result()
                    break
                for part in converter.parts(event):
                    yield part
        for part in answer_parts(result, response, prompt):
            yield part


def wrap_all(register: Callable[..., None], known: Sequence[Any]) -> None:
    """Register a wrapped form of every model, as `rlm/` and its id or one of its aliases.

    The variable LLM_RLM_MODELS may hold patterns of the ids to wrap, separated by commas.
    """
    patterns = [each.strip() for each in os.environ.get("LLM_RLM_MODELS", "*").split(",")]
    chosen = [each for each in known if _is_wanted(_inner(each).model_id, patterns)]
    if len(chosen) > MAX_LISTED and _is_plain_listing():
        register(_Summary(len(chosen)))
        return
    for each in chosen:
        inner = _inner(each)
        names = [f"{PREFIX}{alias}" for alias in each.aliases]
        register(RLMModel(inner), AsyncRLMModel(inner), aliases=names)


class _Summary(RLMModel):
    """One entry for all wrapped models, if there are too many to list."""

    def __init__(self, count: int) -> None:
        self.model_id = f"{PREFIX}<any of the models above>"
        self._count = count

    def __str__(self) -> str:
        return f"RLM: {self.model_id} ({self._count:,} of them; list them: llm models -q {PREFIX})"


def _inner(known: Any) -> Any:
    return known.model or known.async_model


def _is_wanted(model_id: str, patterns: list[str]) -> bool:
    is_wrapped = model_id.startswith(PREFIX)
    return not is_wrapped and any(fnmatchcase(model_id, pattern) for pattern in patterns)


def _is_plain_listing() -> bool:
    given = command_parameters("models_list")
    narrow = ("options", "json_", "query", "model_ids")
    return given is not None and not any(given.get(name) for name in narrow)
