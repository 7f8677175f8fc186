"""`rlm/<model>`: every model of `llm`'s once more, as the root of runs."""

import os
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import llm
from llm.parts import StreamEvent

from llm_rlm.options import RunOptions, combined_options
from llm_rlm.piped import typed_parameters

if TYPE_CHECKING:
    from rlm import RunResult

__all__ = ["PREFIX", "AsyncRLMModel", "RLMModel", "wrap_all"]

PREFIX = "rlm/"
MOST_LISTED = 60
"""More than so many are one line in `llm models`; `llm models -q rlm/` lists them all."""


class _AnyType(frozenset[str]):
    """Every type of attachment is taken, as a file for code to read; these are the ones shown."""

    def __contains__(self, _: object) -> bool:
        return True


SHOWN_TYPES = _AnyType({"application/json", "application/pdf", "image/*", "text/*"})


class _LazyOptions:
    """The options of a wrapped model, made when somebody asks: classes of pydantic's take time."""

    def __get__(self, wrapped: Any, _: Any = None) -> type[RunOptions]:
        if wrapped is None:
            return RunOptions
        made = combined_options(wrapped.inner.Options)
        wrapped.Options = made
        return made


class _Wrapped:
    """What the blocking and the awaited form have in common."""

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
        """The key of the model inside, found where that looks for it."""
        found: str | None = self.key or self.inner.get_key(explicit_key)
        return found

    def __str__(self) -> str:
        return f"RLM: {self.model_id}"


class RLMModel(_Wrapped, llm.KeyModel):
    """A run for each prompt: the model inside writes code over what it was handed."""

    def execute(
        self, prompt: Any, stream: bool, response: Any, conversation: Any, key: str | None = None
    ) -> Iterator[StreamEvent]:
        """Reasoning and cells as they come, and in the end the answer."""
        from llm_rlm import answering
        from llm_rlm.feeding import events_blocking

        turn = answering.turn_of(self.inner, prompt, conversation, key)
        telling = answering.telling_of(prompt)
        events, result = events_blocking(turn), None
        try:
            while True:
                yield from telling.parts(next(events))
        except StopIteration as end:
            result = end.value
        finally:
            events.close()
        yield from answering.answer_of(result, response, prompt)


class AsyncRLMModel(_Wrapped, llm.AsyncKeyModel):
    """The same, to be awaited."""

    async def execute(
        self, prompt: Any, stream: bool, response: Any, conversation: Any, key: str | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """Reasoning and cells as they come, and in the end the answer."""
        from contextlib import aclosing

        from llm_rlm import answering
        from llm_rlm.feeding import Ended, events_awaited

        turn = answering.turn_of(self.inner, prompt, conversation, key)
        telling = answering.telling_of(prompt)
        result: RunResult | None = None
        async with aclosing(events_awaited(turn)) as events:
            async for event in events:
                if isinstance(event, Ended):
                    result = event.result()
                    break
                for part in telling.parts(event):
                    yield part
        for part in answering.answer_of(result, response, prompt):
            yield part


def wrap_all(register: Callable[..., None], known: Sequence[Any]) -> None:
    """Register a wrapped form of every model, under `rlm/` and its id or one of its aliases.

    LLM_RLM_MODELS, if set, holds patterns of the ids to wrap, separated by commas.
    """
    patterns = [each.strip() for each in os.environ.get("LLM_RLM_MODELS", "*").split(",")]
    chosen = [each for each in known if _is_wanted(_inner(each).model_id, patterns)]
    if len(chosen) > MOST_LISTED and _is_plain_listing():
        register(_Summary(len(chosen)))
        return
    for each in chosen:
        inner = _inner(each)
        names = [f"{PREFIX}{alias}" for alias in each.aliases]
        register(RLMModel(inner), AsyncRLMModel(inner), aliases=names)


class _Summary(RLMModel):
    """Stands for all wrapped models where there are too many to list."""

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
    given = typed_parameters("models_list")
    narrow = ("options", "json_", "query", "model_ids")
    return given is not None and not any(given.get(name) for name in narrow)
