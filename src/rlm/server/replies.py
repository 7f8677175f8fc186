"""What the server replies, as types; the OpenAPI document is also generated from them."""

import time
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

from rlm.messages import ToolCall, Usage
from rlm.server.answering import Facts
from rlm.web.responses import json_bytes

__all__ = [
    "PURPOSES",
    "Choice",
    "ChunkChoice",
    "Completion",
    "CompletionChunk",
    "Deleted",
    "Delta",
    "ErrorBody",
    "ErrorReply",
    "FileList",
    "FileObject",
    "FunctionCall",
    "Health",
    "ModelList",
    "ModelObject",
    "ReplyMessage",
    "ReplyToolCall",
    "RunList",
    "RunObject",
    "TokenUsage",
    "now",
    "tool_calls_of",
    "usage_of",
]


def now() -> int:
    return int(time.time())


class ErrorBody(Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorReply(Struct, frozen=True):
    """The form of every error."""

    error: ErrorBody


# -- usage ----------------------------------------------------------------------------------------


class PromptDetails(Struct, frozen=True):
    cached_tokens: int = 0


class CompletionDetails(Struct, frozen=True):
    reasoning_tokens: int = 0


class TokenUsage(Struct, frozen=True):
    """Sums over all requests of a run, including calls from cells and child runs."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


def usage_of(usage: Usage) -> TokenUsage:
    return TokenUsage(
        usage.input_tokens,
        usage.output_tokens,
        usage.total_tokens,
        PromptDetails(usage.cached_tokens),
        CompletionDetails(usage.reasoning_tokens),
    )


# -- chat completions -----------------------------------------------------------------------------


class FunctionCall(Struct, frozen=True):
    name: str
    arguments: str


class ReplyToolCall(Struct, frozen=True):
    id: str
    function: FunctionCall
    type: Literal["function"] = "function"
    index: int | UnsetType = UNSET


def tool_calls_of(calls: tuple[ToolCall, ...], *, numbered: bool) -> list[ReplyToolCall]:
    """Return tool calls as OpenAI does; in streams, each has an index."""
    return [
        ReplyToolCall(
            call.id,
            FunctionCall(call.name, json_bytes(call.arguments).decode()),
            index=number if numbered else UNSET,
        )
        for number, call in enumerate(calls)
    ]


FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


class ReplyMessage(Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: str | None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ReplyToolCall] | UnsetType = UNSET


class Choice(Struct, frozen=True, kw_only=True):
    index: int = 0
    message: ReplyMessage
    finish_reason: FinishReason
    logprobs: None = None


class Completion(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int = field(default_factory=now)
    model: str
    choices: list[Choice]
    usage: TokenUsage
    rlm: Facts


class Delta(Struct, frozen=True, kw_only=True):
    """A message. A run's progress is its `reasoning_content`, which clients show separately."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    refusal: str | UnsetType = UNSET
    tool_calls: list[ReplyToolCall] | UnsetType = UNSET


class ChunkChoice(Struct, frozen=True, kw_only=True):
    index: int = 0
    delta: Delta
    finish_reason: FinishReason | None = None
    logprobs: None = None


class CompletionChunk(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: TokenUsage | UnsetType | None = UNSET
    rlm: Facts | UnsetType = UNSET


# -- models, files, health ------------------------------------------------------------------------


class ModelObject(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "rlm"


class ModelList(Struct, frozen=True):
    data: list[ModelObject]
    object: Literal["list"] = "list"


PURPOSES = ("user_data", "assistants", "batch", "evals", "fine-tune", "vision")
"""The purposes that OpenAI allows for files. Here all of them mean the same: a context."""


class FileObject(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: Literal["processed"] = "processed"
    expires_at: int | None = None


class FileList(Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[FileObject]
    has_more: bool = False
    first_id: str | None = None
    last_id: str | None = None


class Deleted(Struct, frozen=True, kw_only=True):
    id: str
    object: str
    deleted: bool = True


class Health(Struct, frozen=True, kw_only=True):
    status: Literal["ok", "closing"]
    version: str


# -- background runs ------------------------------------------------------------------------------

RunState = Literal[
    "queued", "running", "interrupted", "completed", "incomplete", "cancelled", "failed"
]


class RunObject(Struct, frozen=True, kw_only=True):
    """A run: `completed` has an answer, `incomplete` hit a limit, `interrupted` can be resumed."""

    id: str
    object: Literal["rlm.run"] = "rlm.run"
    created_at: int
    model: str
    status: RunState
    query: str
    answer: Any = None
    usage: TokenUsage | None = None
    rlm: Facts | None = None
    error: ErrorBody | None = None
    ended_at: int | None = None


class RunList(Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[RunObject]
    has_more: bool = False
    first_id: str | None = None
    last_id: str | None = None
