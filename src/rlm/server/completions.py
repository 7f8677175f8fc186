"""`POST /v1/chat/completions`: an outcome as one reply, or as chunks during the run."""

import secrets

from msgspec import UNSET, UnsetType

from rlm.server.answering import Outcome
from rlm.server.errors import ApiError
from rlm.server.replies import (
    Choice,
    ChunkChoice,
    Completion,
    CompletionChunk,
    Delta,
    ReplyMessage,
    now,
    tool_calls_of,
    usage_of,
)
from rlm.web.events import event
from rlm.web.responses import json_bytes

__all__ = ["ChatWriter", "completion_of", "new_completion_id"]

DONE = b"data: [DONE]\n\n"


def new_completion_id() -> str:
    return f"chatcmpl-{secrets.token_hex(12)}"


def completion_of(model: str, outcome: Outcome) -> Completion:
    calls = tool_calls_of(outcome.tool_calls, numbered=False)
    message = ReplyMessage(
        content=None if (calls and not outcome.text) or outcome.refused else outcome.text,
        refusal=outcome.text if outcome.refused else None,
        reasoning_content=outcome.reasoning or UNSET,
        tool_calls=calls or UNSET,
    )
    return Completion(
        id=new_completion_id(),
        model=model,
        choices=[Choice(message=message, finish_reason=outcome.finish)],
        usage=usage_of(outcome.usage),
        rlm=outcome.facts,
    )


class ChatWriter:
    """Writes chunks exactly as OpenAI does: a role first, a finish reason last, then `[DONE]`."""

    def __init__(self, model: str, *, include_usage: bool) -> None:
        self._id = new_completion_id()
        self._model = model
        self._created = now()
        self._include_usage = include_usage

    def begin(self) -> bytes:
        return self._chunk(Delta(role="assistant", content=""))

    def progress(self, text: str) -> bytes:
        return self._chunk(Delta(reasoning_content=text))

    def content(self, text: str) -> bytes:
        return self._chunk(Delta(content=text))

    def end(self, outcome: Outcome) -> bytes:
        calls = tool_calls_of(outcome.tool_calls, numbered=True)
        chunk = self._chunk(Delta(tool_calls=calls)) if calls else b""
        chunk += self._write(
            CompletionChunk(
                id=self._id,
                created=self._created,
                model=self._model,
                choices=[ChunkChoice(delta=Delta(), finish_reason=outcome.finish)],
                usage=self._no_usage,
                rlm=outcome.facts,
            )
        )
        if self._include_usage:
            chunk += self._write(
                CompletionChunk(
                    id=self._id,
                    created=self._created,
                    model=self._model,
                    choices=[],
                    usage=usage_of(outcome.usage),
                )
            )
        return chunk + DONE

    def fail(self, error: ApiError) -> bytes:
        return event(json_bytes(error.body())) + DONE

    @property
    def _no_usage(self) -> UnsetType | None:
        return None if self._include_usage else UNSET

    def _chunk(self, delta: Delta) -> bytes:
        return self._write(
            CompletionChunk(
                id=self._id,
                created=self._created,
                model=self._model,
                choices=[ChunkChoice(delta=delta)],
                usage=self._no_usage,
            )
        )

    def _write(self, chunk: CompletionChunk) -> bytes:
        return event(json_bytes(chunk))
