"""Anthropic's Messages interface: replies, streams and the client."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from rlm.clients._anthropic_request import (
    CARRIED,
    mark,
    marks_in,
    options_of,
    plain_blocks,
    system_of,
    turns_of,
)
from rlm.clients._dialect import ErrorReport, HttpClient
from rlm.clients._fields import arguments_of, count_of, dicts_in, dump, text_of
from rlm.clients._http import Endpoint
from rlm.messages import ModelInfo, Reply, Request, ToolCall, Usage

__all__ = ["AnthropicClient", "AnthropicDialect", "StreamedMessage", "error_of", "reply_of"]

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "refusal", "other"]

FINISH: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "refusal",
}
STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
FIELDS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
    "input_json_delta": ("tool_use", "partial_json"),
}
"""The kind of block a delta belongs to, and the field it continues."""


def reply_of(payload: dict[str, Any]) -> Reply:
    """Return the reply in a decoded message; raise ValueError if there is none."""
    if not isinstance(payload.get("content"), list):
        raise ValueError("the response contains no content")
    blocks = dicts_in(payload["content"])
    text = text_of(_of_type(blocks, "text"))
    calls = tuple(
        _tool_call(block, number) for number, block in enumerate(_of_type(blocks, "tool_use"))
    )
    thoughts = (block.get("thinking") for block in _of_type(blocks, "thinking"))
    reason = payload.get("stop_reason")
    finish = FINISH.get(reason, "other") if isinstance(reason, str) else "other"
    model = payload.get("model")
    return Reply(
        text=_why(payload) if finish == "refusal" and not text.strip() else text,
        tool_calls=calls,
        reasoning="\n\n".join(each for each in thoughts if each and isinstance(each, str)),
        usage=_usage(payload.get("usage")),
        finish_reason="tool_calls" if calls and finish in {"stop", "other"} else finish,
        model=model if isinstance(model, str) else "",
        opaque=None if blocks == plain_blocks(text, calls) else {CARRIED: blocks},
    )


def error_of(payload: dict[str, Any]) -> ErrorReport | None:
    """Return the error that a response or an event reports, if any."""
    error = payload.get("error")
    if payload.get("type") != "error" and (not error or "content" in payload):
        return None
    kind = error.get("type") if isinstance(error, dict) else None
    status = STATUSES.get(kind) if isinstance(kind, str) else None
    said = error.get("message") if isinstance(error, dict) else error
    return (None, said or kind or "an error") if status is None else (status, payload)


def _of_type(blocks: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [block for block in blocks if block.get("type") == kind]


def _tool_call(block: dict[str, Any], number: int) -> ToolCall:
    identity, name = block.get("id"), block.get("name")
    return ToolCall(
        id=identity if isinstance(identity, str) and identity else f"call_{number}",
        name=name if isinstance(name, str) else "",
        arguments=arguments_of(block.get("input")),
    )


def _why(payload: dict[str, Any]) -> str:
    """Return the reason for a refusal, which often comes without text."""
    details = payload.get("stop_details")
    named = details if isinstance(details, dict) else {}
    said = [named.get(name) for name in ("category", "explanation")]
    why = ": ".join(each for each in said if each and isinstance(each, str))
    return f"The model refused to answer ({why or 'no reason was given'})."


def _usage(stated: Any) -> Usage | None:
    """Return the usage; None unless both sides are stated. Input excludes cached tokens."""
    sent, written = count_of(stated, "input_tokens"), count_of(stated, "output_tokens")
    if sent is None or written is None:
        return None
    cached = count_of(stated, "cache_read_input_tokens") or 0
    stored = count_of(stated, "cache_creation_input_tokens") or 0
    thought = count_of(stated, "output_tokens_details", "thinking_tokens") or 0
    return Usage(
        input_tokens=sent + cached + stored,
        output_tokens=written,
        cached_tokens=cached,
        reasoning_tokens=min(thought, written),
        requests=1,
        cache_write_tokens=stored,
    )


@dataclass
class _Block:
    """A content block in progress."""

    start: dict[str, Any]
    pieces: dict[str, list[str]] = field(default_factory=dict)
    citations: list[Any] = field(default_factory=list)

    def built(self) -> dict[str, Any]:
        block = dict(self.start)
        for name, pieces in self.pieces.items():
            if name != "partial_json":
                block[name] = text_of(block.get(name)) + "".join(pieces)
            elif written := "".join(pieces).strip():
                block["input"] = arguments_of(written)
        if self.citations:
            block["citations"] = self.citations
        return block


class StreamedMessage:
    """Collects the events of a stream into the message that a plain request would get."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: dict[int, _Block] = {}
        self._done = False

    @property
    def complete(self) -> bool:
        return self._done or self._message.get("stop_reason") is not None

    def finish(self) -> None:
        self._done = True

    def add(self, event: dict[str, Any]) -> str:
        """Add one event, and return the text it adds. Pings and unknown events add nothing."""
        kind = event.get("type")
        if kind == "content_block_start":
            return self._open(event)
        if kind == "content_block_delta":
            return self._extend(event)
        if kind == "message_start":
            self._learn(event.get("message"), event.get("message"))
        elif kind == "message_delta":
            self._learn(event.get("delta"), event)
        elif kind == "message_stop":
            self._done = True
        return ""

    def reply(self) -> Reply:
        if not self._message and not self._blocks:
            raise ValueError("the stream contains no message")
        blocks = [block.built() for _, block in sorted(self._blocks.items())]
        return reply_of({**self._message, "content": blocks, "usage": self._usage})

    def _learn(self, about: Any, counted: Any) -> None:
        """Update the counts, which are cumulative; later events may omit unchanged ones."""
        if isinstance(about, dict):
            names = ("model", "stop_reason", "stop_details")
            self._message |= {name: about[name] for name in names if about.get(name) is not None}
        usage = counted.get("usage") if isinstance(counted, dict) else None
        if isinstance(usage, dict):
            self._usage |= {name: value for name, value in usage.items() if value is not None}

    def _open(self, event: dict[str, Any]) -> str:
        start = event.get("content_block")
        block = _Block(start if isinstance(start, dict) else {})
        self._blocks[self._index(event, len(self._blocks))] = block
        return text_of(block.start.get("text")) if block.start.get("type") == "text" else ""

    def _extend(self, event: dict[str, Any]) -> str:
        delta = event.get("delta")
        if not isinstance(delta, dict):
            return ""
        index = self._index(event, len(self._blocks) - 1)
        kind = delta.get("type")
        if kind == "citations_delta" and index in self._blocks:
            self._blocks[index].citations.append(delta.get("citation"))
        if not isinstance(kind, str) or kind not in FIELDS:
            return ""
        of_type, name = FIELDS[kind]
        block = self._blocks.setdefault(index, _Block({"type": of_type}))
        piece = text_of(delta.get(name))
        block.pieces.setdefault(name, []).append(piece)
        return piece if name == "text" else ""

    @staticmethod
    def _index(event: dict[str, Any], otherwise: int) -> int:
        index = event.get("index")
        return index if isinstance(index, int) else max(0, otherwise)


MAX_MARKS = 4
"""The most cache marks that a request may have."""


class AnthropicDialect:
    """`POST /v1/messages`; paths are below `/v1`."""

    def path(self, request: Request, *, stream: bool) -> str:
        return "/messages"

    def body(self, request: Request, *, stream: bool) -> bytes:
        options = options_of(request)
        system, turns = system_of(request.messages), turns_of(request.messages)
        if request.grows and "cache_control" not in options:
            _mark_ends(options.get("tools", []), system, turns)
        content = {**options, "model": request.model, "messages": turns}
        if system:
            content["system"] = system
        if stream:
            content["stream"] = True
        return dump(content)

    def reply(self, payload: dict[str, Any]) -> Reply:
        return reply_of(payload)

    def streamed(self) -> StreamedMessage:
        return StreamedMessage()

    def error_in(self, payload: dict[str, Any]) -> ErrorReport | None:
        return error_of(payload)


def _mark_ends(
    tools: list[dict[str, Any]], system: list[dict[str, Any]], turns: list[dict[str, Any]]
) -> None:
    """Mark the end, the place where the previous step ended, and the instructions.

    A server looks for an older entry only 20 blocks back from a mark, and one turn may have more:
    the mark where the last request ended finds exactly what that request wrote.
    """
    ends = [turn["content"] for turn in turns[-1:]]
    ends += [turn["content"] for turn in turns[-2::-1] if turn["role"] == "user"][:1]
    every = [tools, system, *(turn["content"] for turn in turns)]
    mark(MAX_MARKS - sum(map(marks_in, every)), *ends, system or tools)


ADDRESS = "https://api.anthropic.com"
VERSION = {"anthropic-version": "2023-06-01"}
"""The newest version in which models still accept a temperature."""


class AnthropicClient(HttpClient):
    """Anthropic, or a compatible server, at `base_url` with or without `/v1`.

    With `provider="foundry"`, the key is sent as Microsoft Foundry expects it.
    Your own `anthropic-version` header overrides the built-in one. It never retries on its own.
    """

    def __init__(
        self,
        base_url: str = ADDRESS,
        api_key: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        infos: Mapping[str, ModelInfo] | None = None,
        key_variable: str | None = None,
        url_variable: str | None = None,
        provider: str = "anthropic",
    ) -> None:
        endpoint = Endpoint(
            base_url.rstrip("/").removesuffix("/v1") + "/v1",
            headers or {},
            api_key=api_key,
            key_variable=key_variable or "ANTHROPIC_API_KEY",
            url_variable=url_variable,
            auth={"api-key" if provider == "foundry" else "x-api-key": ""},
            fixed=VERSION,
            query=query,
        )
        super().__init__(endpoint, AnthropicDialect(), provider=provider, infos=infos)
