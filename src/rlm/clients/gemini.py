"""Google's Gemini interface: replies, streams and the client."""

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

from rlm._util.text import sendable
from rlm.clients._dialect import ErrorReport, HttpClient
from rlm.clients._fields import arguments_of, count_of, dicts_in, dump, status_of, text_of
from rlm.clients._gemini_request import (
    CARRIED,
    contents_of,
    is_said,
    options_of,
    plain_parts,
    system_of,
)
from rlm.clients._http import Endpoint
from rlm.messages import ModelInfo, Reply, Request, ToolCall, Usage

__all__ = ["GeminiClient", "GeminiDialect", "StreamedContent", "error_of", "reply_of"]

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "refusal", "other"]

FINISH: dict[str, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "refusal",
    "RECITATION": "refusal",
    "LANGUAGE": "refusal",
    "BLOCKLIST": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "SPII": "refusal",
    "IMAGE_SAFETY": "refusal",
    "IMAGE_PROHIBITED_CONTENT": "refusal",
    "IMAGE_RECITATION": "refusal",
}
JOINED = {"text", "thought"}
"""A part with any other field, such as a signature, must not be joined to its neighbours."""


def reply_of(payload: dict[str, Any]) -> Reply:
    """Return the reply in a decoded response; raise ValueError if there is none."""
    candidates = dicts_in(payload.get("candidates"))
    blocked = _blocked(payload)
    if not candidates and blocked is None:
        raise ValueError("the response contains no candidates")
    candidate = candidates[0] if candidates else {}
    content = candidate.get("content")
    parts = dicts_in(content.get("parts")) if isinstance(content, dict) else []
    text = text_of([part for part in parts if is_said(part)])
    calls = _calls(parts, payload.get("responseId"))
    reason = candidate.get("finishReason")
    finish = FINISH.get(reason, "other") if isinstance(reason, str) else "other"
    if not candidates:
        finish, reason = "refusal", blocked
    model = payload.get("modelVersion")
    return Reply(
        text=_why(reason, candidate, payload) if finish == "refusal" and not text else text,
        tool_calls=calls,
        reasoning=text_of([part for part in parts if not is_said(part)]),
        usage=_usage(payload.get("usageMetadata")),
        finish_reason="tool_calls" if calls and finish in {"stop", "other"} else finish,
        model=model if isinstance(model, str) else "",
        opaque=None if parts == plain_parts(text, calls) else {CARRIED: parts},
    )


def error_of(payload: dict[str, Any]) -> ErrorReport | None:
    """Return the error that a response or a chunk reports, if any."""
    error = payload.get("error")
    if not error or payload.get("candidates"):
        return None
    status = status_of(error)
    said = error.get("message") if isinstance(error, dict) else error
    return (None, said or "an error") if status is None else (status, payload)


def _calls(parts: list[dict[str, Any]], response_id: Any) -> tuple[ToolCall, ...]:
    """Return the calls. Older models give no ids; the response's id keeps turns apart."""
    calls = (part["functionCall"] for part in parts if isinstance(part.get("functionCall"), dict))
    prefix = response_id if isinstance(response_id, str) and response_id else "call"
    return tuple(
        ToolCall(
            id=text_of(call.get("id")) or f"{prefix}_{number}",
            name=text_of(call.get("name")),
            arguments=arguments_of(call.get("args")),
        )
        for number, call in enumerate(calls)
    )


def _blocked(payload: dict[str, Any]) -> Any:
    """Return why the prompt was refused; None if it was not."""
    feedback = payload.get("promptFeedback")
    return feedback.get("blockReason") if isinstance(feedback, dict) else None


def _why(reason: Any, candidate: dict[str, Any], payload: dict[str, Any]) -> str:
    """Return the reason for a refusal, which comes without text."""
    feedback = payload.get("promptFeedback")
    block_message = feedback.get("blockReasonMessage") if isinstance(feedback, dict) else None
    said = [reason, candidate.get("finishMessage") or block_message]
    why = ": ".join(each for each in said if each and isinstance(each, str))
    what = "Gemini stopped the answer" if candidate else "Gemini refused the prompt"
    return f"{what} ({why or 'no reason was given'})."


def _usage(stated: Any) -> Usage | None:
    """Return the usage; None unless the input is stated. Thoughts and tools are separate counts."""
    sent = count_of(stated, "promptTokenCount")
    if sent is None:
        return None
    sent += count_of(stated, "toolUsePromptTokenCount") or 0
    thought = count_of(stated, "thoughtsTokenCount") or 0
    return Usage(
        input_tokens=sent,
        output_tokens=(count_of(stated, "candidatesTokenCount") or 0) + thought,
        cached_tokens=min(count_of(stated, "cachedContentTokenCount") or 0, sent),
        reasoning_tokens=thought,
        requests=1,
    )


class StreamedContent:
    """Collects the chunks of a stream into the response that a plain request would get."""

    def __init__(self) -> None:
        self._about: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._candidate: dict[str, Any] = {}
        self._parts: list[tuple[dict[str, Any], list[str]]] = []
        self._seen = False
        self._done = False

    @property
    def complete(self) -> bool:
        finished = self._candidate.get("finishReason") is not None
        return self._done or finished or _blocked(self._about) is not None

    def finish(self) -> None:
        self._done = True

    def add(self, event: dict[str, Any]) -> str:
        """Add one chunk, and return the text it adds. Later counts replace earlier ones."""
        about = ("modelVersion", "promptFeedback", "responseId")
        self._about |= {name: event[name] for name in about if event.get(name)}
        usage = event.get("usageMetadata")
        self._usage |= usage if isinstance(usage, dict) else {}
        candidates = dicts_in(event.get("candidates"))
        if not candidates:
            return ""
        self._seen = True
        candidate = candidates[0]
        end = ("finishReason", "finishMessage")
        self._candidate |= {name: candidate[name] for name in end if candidate.get(name)}
        content = candidate.get("content")
        parts = dicts_in(content.get("parts")) if isinstance(content, dict) else []
        for part in parts:
            self._join(part)
        return text_of([part for part in parts if is_said(part)])

    def reply(self) -> Reply:
        parts = [{**part, "text": "".join(texts)} if texts else part for part, texts in self._parts]
        whole = {**self._about, "usageMetadata": self._usage}
        if self._seen:
            whole["candidates"] = [{**self._candidate, "content": {"parts": parts}}]
        return reply_of(whole)

    def _join(self, part: dict[str, Any]) -> None:
        """Join the pieces of one text into one part."""
        if not isinstance(part.get("text"), str) or part.keys() - JOINED:
            self._parts.append((part, []))
            return
        last, texts = self._parts[-1] if self._parts else ({}, [])
        if texts and last.get("thought") == part.get("thought"):
            texts.append(part["text"])
        elif part["text"]:
            self._parts.append((part, [part["text"]]))


COLLECTIONS = ("models", "tunedModels")


class GeminiDialect:
    """`POST /v1beta/models/NAME:generateContent`; paths are below the version.

    Gemini caches the beginnings of requests on its own, so bodies only grow at the end.
    """

    def path(self, request: Request, *, stream: bool) -> str:
        collection, slash, name = request.model.partition("/")
        if not slash or collection not in COLLECTIONS:
            collection, name = COLLECTIONS[0], request.model
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"/{collection}/{quote(sendable(name), safe='')}:{verb}"

    def body(self, request: Request, *, stream: bool) -> bytes:
        content: dict[str, Any] = {}
        if system := system_of(request.messages):
            content["systemInstruction"] = {"parts": system}
        options = options_of(request)
        return dump({**content, "contents": contents_of(request), **options})

    def reply(self, payload: dict[str, Any]) -> Reply:
        return reply_of(payload)

    def streamed(self) -> StreamedContent:
        return StreamedContent()

    def error_in(self, payload: dict[str, Any]) -> ErrorReport | None:
        return error_of(payload)


ADDRESS = "https://generativelanguage.googleapis.com"
VERSION = "/v1beta"

_VERSIONED = re.compile(r"/v\d+(alpha|beta)?\d*$")


class GeminiClient(HttpClient):
    """Gemini, or a compatible server, at `base_url` with or without an API version.

    It never retries on its own.
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
        provider: str = "gemini",
    ) -> None:
        address = base_url.rstrip("/")
        endpoint = Endpoint(
            address if _VERSIONED.search(address) else address + VERSION,
            headers or {},
            api_key=api_key,
            key_variable=key_variable or "GEMINI_API_KEY (or GOOGLE_API_KEY)",
            url_variable=url_variable,
            auth={"x-goog-api-key": ""},
            query=query,
        )
        super().__init__(endpoint, GeminiDialect(), provider=provider, infos=infos)
