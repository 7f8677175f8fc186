"""Amazon Bedrock's Converse interface: replies, streams and the client.

A reply is translated into Anthropic's form, which has the same parts under other names, and then
read like one of Anthropic's.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from rlm.clients._aws import Signer
from rlm.clients._converse_request import body_of
from rlm.clients._dialect import ErrorReport, HttpClient
from rlm.clients._fields import count_of, dicts_in, dump
from rlm.clients._http import Endpoint
from rlm.clients.anthropic import StreamedMessage, reply_of
from rlm.messages import ModelInfo, Reply, Request

__all__ = ["ConverseClient", "ConverseDialect", "StreamedConverse"]

STOP_REASONS = {
    "guardrail_intervened": "refusal",
    "content_filtered": "refusal",
}
"""Stop reasons that Anthropic names differently."""

STATUSES = {
    "validationException": 400,
    "accessDeniedException": 403,
    "resourceNotFoundException": 404,
    "throttlingException": 429,
    "internalServerException": 500,
    "serviceUnavailableException": 503,
    "modelNotReadyException": 503,
}
EXCEPTION = ("Exception", "Error")


def _message_of(payload: dict[str, Any]) -> dict[str, Any]:
    """Return a whole response as one of Anthropic's messages."""
    output = payload.get("output")
    message = output.get("message") if isinstance(output, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        raise ValueError("the response contains no message")
    return {
        "content": [block for each in dicts_in(content) if (block := _block_of(each))],
        "stop_reason": _stop_reason(payload.get("stopReason")),
        "usage": _usage_of(payload.get("usage")),
    }


def _stop_reason(given: Any) -> Any:
    return STOP_REASONS.get(given, given) if isinstance(given, str) else None


def _block_of(block: dict[str, Any]) -> dict[str, Any] | None:
    if isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}
    call, thought = block.get("toolUse"), block.get("reasoningContent")
    if isinstance(call, dict):
        named = {"id": call.get("toolUseId"), "name": call.get("name")}
        return {"type": "tool_use", **named, "input": call.get("input", {})}
    if not isinstance(thought, dict):
        return None
    said = thought.get("reasoningText")
    if isinstance(said, dict):
        signed = {"signature": said["signature"]} if said.get("signature") else {}
        return {"type": "thinking", "thinking": said.get("text"), **signed}
    return {"type": "redacted_thinking", "data": thought.get("redactedContent")}


def _usage_of(stated: Any) -> dict[str, Any]:
    """Return the usage; as with Anthropic, the input excludes tokens read from a cache."""
    return {
        "input_tokens": count_of(stated, "inputTokens"),
        "output_tokens": count_of(stated, "outputTokens"),
        "cache_read_input_tokens": count_of(stated, "cacheReadInputTokens"),
        "cache_creation_input_tokens": count_of(stated, "cacheWriteInputTokens"),
    }


class StreamedConverse:
    """Collects the events of a stream into the reply that a plain request would get."""

    def __init__(self) -> None:
        self._message = StreamedMessage()

    @property
    def complete(self) -> bool:
        return self._message.complete

    def finish(self) -> None:
        self._message.finish()

    def add(self, event: dict[str, Any]) -> str:
        """Add one event, and return the text it adds."""
        return "".join(self._message.add(each) for each in _events_of(event))

    def reply(self) -> Reply:
        return self._message.reply()


def _events_of(event: dict[str, Any]) -> list[dict[str, Any]]:
    """Return an event as the events that Anthropic would send."""
    name, facts = next(iter(event.items()), ("", None))
    if not isinstance(facts, dict):
        return []
    index = facts.get("contentBlockIndex")
    if name == "messageStart":
        return [{"type": "message_start", "message": {"model": ""}}]
    if name == "contentBlockStart":
        start = facts.get("start")
        block = _block_of(start) if isinstance(start, dict) else None
        return [] if block is None else [_open_block(index, {**block, "input": {}})]
    if name == "contentBlockDelta":
        return _deltas(index, facts.get("delta"))
    if name == "messageStop":
        reason = _stop_reason(facts.get("stopReason")) or "other"
        return [{"type": "message_delta", "delta": {"stop_reason": reason}}]
    if name == "metadata":
        return [{"type": "message_delta", "usage": _usage_of(facts.get("usage"))}]
    return []


def _open_block(index: Any, block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _deltas(index: Any, delta: Any) -> list[dict[str, Any]]:
    if not isinstance(delta, dict):
        return []
    call, thought = delta.get("toolUse"), delta.get("reasoningContent")
    found: list[tuple[str, str, Any]] = [("text_delta", "text", delta.get("text"))]
    if isinstance(call, dict):
        found.append(("input_json_delta", "partial_json", call.get("input")))
    if isinstance(thought, dict):
        if isinstance(hidden := thought.get("redactedContent"), str):
            return [_open_block(index, {"type": "redacted_thinking", "data": hidden})]
        found.append(("thinking_delta", "thinking", thought.get("text")))
        found.append(("signature_delta", "signature", thought.get("signature")))
    return [
        {"type": "content_block_delta", "index": index, "delta": {"type": kind, name: piece}}
        for kind, name, piece in found
        if isinstance(piece, str) and piece
    ]


class ConverseDialect:
    """`POST /model/{model}/converse`, or `/converse-stream`."""

    def path(self, request: Request, *, stream: bool) -> str:
        operation = "converse-stream" if stream else "converse"
        return f"/model/{quote(request.model, safe='')}/{operation}"

    def body(self, request: Request, *, stream: bool) -> bytes:
        return dump(body_of(request))

    def reply(self, payload: dict[str, Any]) -> Reply:
        return reply_of(_message_of(payload))

    def streamed(self) -> StreamedConverse:
        return StreamedConverse()

    def error_in(self, payload: dict[str, Any]) -> ErrorReport | None:
        """Return the exception that a stream reports; the event is named after it."""
        name, facts = next(iter(payload.items()), ("", None))
        if not name.endswith(EXCEPTION):
            return None
        known = name[:1].lower() + name[1:]
        said = facts.get("message") if isinstance(facts, dict) else None
        status = STATUSES.get(known)
        return (None, said or name) if status is None else (status, {"message": said or name})


class ConverseClient(HttpClient):
    """Amazon Bedrock at `base_url`, with a Bedrock key or, with a `signer`, signed requests.

    It never retries on its own.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        infos: Mapping[str, ModelInfo] | None = None,
        key_variable: str | None = None,
        url_variable: str | None = None,
        provider: str = "bedrock",
        signer: Signer | None = None,
    ) -> None:
        endpoint = Endpoint(
            base_url,
            headers or {},
            api_key=api_key,
            key_variable=key_variable or "AWS_BEARER_TOKEN_BEDROCK",
            url_variable=url_variable,
            query=query,
            signer=signer,
        )
        super().__init__(endpoint, ConverseDialect(), provider=provider, infos=infos)
