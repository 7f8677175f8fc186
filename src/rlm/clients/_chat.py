"""The chat-completions dialect: a request to its body, a body to its reply."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from rlm.clients._dialect import ErrorReport
from rlm.clients._json import dump, parse
from rlm.errors import ConfigError
from rlm.messages import Message, Reply, Request, ToolCall, Usage

__all__ = ["ChatDialect", "StreamedReply", "body", "reply_of"]

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "refusal", "other"]

FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "refusal",
}
CAP_NAMES = ("max_tokens", "max_completion_tokens")
CARRIED_PARTS = ("reasoning_details", "tool_calls")
PLAIN_CALL_KEYS = frozenset({"id", "type", "index", "function"})


class ChatDialect:
    """What OpenAI began and most servers speak. `cap_name`: what they call the output cap."""

    def __init__(self, cap_name: str = "max_tokens") -> None:
        self._cap_name = cap_name

    def path(self, request: Request, *, stream: bool) -> str:
        return "/chat/completions"

    def body(self, request: Request, *, stream: bool) -> bytes:
        return body(request, cap_name=self._cap_name, stream=stream)

    def reply(self, payload: dict[str, Any]) -> Reply:
        return reply_of(payload)

    def streamed(self) -> "StreamedReply":
        return StreamedReply()

    def error_in(self, payload: dict[str, Any]) -> ErrorReport | None:
        error = payload.get("error")
        if not error or payload.get("choices"):
            return None
        code = error.get("code") if isinstance(error, dict) else None
        is_status = isinstance(code, int) and 400 <= code < 600
        return (code, payload) if is_status else (None, error)


def body(request: Request, *, cap_name: str, stream: bool) -> bytes:
    """The JSON to send. The output cap is always in it, and sampling can only make it smaller."""
    sampling = dict(request.sampling)
    if sampling.get("n", 1) != 1:
        raise ConfigError("sampling n must be 1: one request is one reply, and is budgeted as one")
    caps = [sampling.pop(name, None) for name in CAP_NAMES]
    cap = min(request.max_output_tokens, *(c for c in caps if c is not None), 1 << 40)
    sampling.pop("stream", None)
    content: dict[str, Any] = {
        **sampling,
        "model": request.model,
        "messages": [_message(message) for message in request.messages],
        cap_name: cap,
    }
    if request.tools:
        content["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
            for tool in request.tools
        ]
    if stream:
        content |= {"stream": True, "stream_options": {"include_usage": True}}
    return dump(content)


def _message(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        wire["content"] = message.content or None
        wire["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": dump(call.arguments).decode()},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    if isinstance(message.opaque, Mapping):
        wire |= {name: message.opaque[name] for name in CARRIED_PARTS if name in message.opaque}
    return wire


def reply_of(payload: Any) -> Reply:
    """The reply in a decoded response; ValueError if it holds none."""
    choices = payload.get("choices") if isinstance(payload, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise ValueError("the response holds no choices")
    message = choices[0].get("message")
    if not isinstance(message, dict):
        raise ValueError("the response holds no message")
    return _reply(message, choices[0].get("finish_reason"), payload)


def _reply(message: dict[str, Any], finish: Any, payload: dict[str, Any]) -> Reply:
    raw_calls = [call for call in message.get("tool_calls") or () if isinstance(call, dict)]
    calls = tuple(_tool_call(call, number) for number, call in enumerate(raw_calls))
    refusal = _text(message.get("refusal"))
    model = payload.get("model")
    return Reply(
        text=_text(message.get("content")) or refusal,
        tool_calls=calls,
        reasoning=_text(message.get("reasoning_content")) or _text(message.get("reasoning")),
        usage=_usage(payload.get("usage")),
        finish_reason="refusal" if refusal else _finish(finish, has_calls=bool(calls)),
        model=model if isinstance(model, str) else "",
        opaque=_opaque(message, raw_calls),
    )


def _finish(reason: Any, *, has_calls: bool) -> FinishReason:
    known = FINISH.get(reason, "other") if isinstance(reason, str) else "other"
    return "tool_calls" if has_calls and known in {"stop", "other"} else known


def _text(content: Any) -> str:
    """Text of a field that may be null, a string, or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in content if isinstance(part, dict))
    return ""


def _tool_call(call: dict[str, Any], number: int) -> ToolCall:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    identity = call.get("id")
    return ToolCall(
        id=identity if isinstance(identity, str) and identity else f"call_{number}",
        name=_text(function.get("name")),
        arguments=_arguments(function.get("arguments")),
    )


def _arguments(given: Any) -> dict[str, Any]:
    """Arguments as a dict. What is not JSON of an object is kept, whole, under `_raw`."""
    if isinstance(given, dict):
        return given
    text = given if isinstance(given, str) else ""
    if not text.strip():
        return {}
    try:
        parsed = parse(text)
    except ValueError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {"_raw": text}


def _opaque(message: dict[str, Any], raw_calls: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Provider parts to carry back: reasoning details, and tool calls that hold a signature."""
    parts: dict[str, Any] = {}
    if message.get("reasoning_details"):
        parts["reasoning_details"] = message["reasoning_details"]
    if any(call.keys() - PLAIN_CALL_KEYS for call in raw_calls):
        parts["tool_calls"] = raw_calls
    return parts or None


def _usage(stated: Any) -> Usage | None:
    """What the provider said it used; None unless it said both sides."""
    if not isinstance(stated, dict):
        return None
    sent, written = _count(stated, "prompt_tokens"), _count(stated, "completion_tokens")
    if sent is None or written is None:
        return None
    return Usage(
        input_tokens=sent,
        output_tokens=written,
        cached_tokens=_count(stated.get("prompt_tokens_details"), "cached_tokens") or 0,
        reasoning_tokens=_count(stated.get("completion_tokens_details"), "reasoning_tokens") or 0,
        requests=1,
    )


def _count(holder: Any, name: str) -> int | None:
    value = holder.get(name) if isinstance(holder, dict) else None
    return int(value) if isinstance(value, int | float) and value >= 0 else None


class StreamedReply:
    """Gathers the chunks of a stream into the reply that a plain request would have had."""

    def __init__(self) -> None:
        self._reason: Any = None
        self._done = False
        self._message: dict[str, Any] = {}
        self._calls: dict[Any, dict[str, Any]] = {}
        self._about: dict[str, Any] = {}

    @property
    def complete(self) -> bool:
        """Whether the server said that it is through: some send no [DONE], some no reason."""
        return self._done or self._reason is not None

    def finish(self) -> None:
        self._done = True

    def add(self, chunk: dict[str, Any]) -> str:
        """Take one chunk in; returns the text it adds."""
        self._about |= {name: chunk[name] for name in ("model", "usage") if chunk.get(name)}
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return ""
        self._reason = choice.get("finish_reason") or self._reason
        delta = choice.get("delta")
        return self._add_delta(delta) if isinstance(delta, dict) else ""

    def _add_delta(self, delta: dict[str, Any]) -> str:
        for name in ("content", "refusal", "reasoning_content", "reasoning"):
            if text := _text(delta.get(name)):
                self._message[name] = self._message.get(name, "") + text
        if isinstance(details := delta.get("reasoning_details"), list):
            self._message.setdefault("reasoning_details", []).extend(details)
        for call in delta.get("tool_calls") or ():
            if isinstance(call, dict):
                self._add_call(call)
        return _text(delta.get("content"))

    def _add_call(self, part: dict[str, Any]) -> None:
        """Parts of one call share an index; servers without indices send each call whole."""
        key = part.get("index", part.get("id", len(self._calls)))
        call = self._calls.setdefault(key, {"function": {"name": "", "arguments": ""}})
        call |= {name: value for name, value in part.items() if name != "function" and value}
        function = part.get("function")
        for name in ("name", "arguments"):
            given = function.get(name) if isinstance(function, dict) else None
            call["function"][name] += (
                dump(given).decode() if isinstance(given, dict) else _text(given)
            )

    def reply(self) -> Reply:
        message = {**self._message, "tool_calls": list(self._calls.values())}
        return _reply(message, self._reason, self._about)
