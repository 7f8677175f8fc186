"""What chat completions reply: a decoded response, or the chunks of a stream, become a Reply."""

from typing import Any, Literal, TypeAlias

from rlm.clients._fields import arguments_of, dicts_in, text_of
from rlm.clients._quirks import Quirks
from rlm.clients._thinking import InlineThinking
from rlm.clients._usage import usage_of
from rlm.messages import Reply, ToolCall

__all__ = ["StreamedChat", "chat_reply"]

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
PLAIN_CALL_KEYS = frozenset({"id", "type", "index", "function"})
ABOUT = ("model", "usage", "x_groq", "timings")
TEXTS = ("content", "refusal", "reasoning_content", "reasoning")
JOINED_IN_DETAILS = ("text", "summary", "data")


def chat_reply(payload: Any, quirks: Quirks) -> Reply:
    """The reply in a decoded response; ValueError if it holds none."""
    choices = dicts_in(payload.get("choices") if isinstance(payload, dict) else None)
    if not choices:
        raise ValueError("the response holds no choices")
    message = choices[0].get("message")
    if not isinstance(message, dict):
        raise ValueError("the response holds no message")
    thinking = InlineThinking()
    text = text_of(message.get("content"))
    if quirks.thinks_inline:
        text = thinking.add(text) + thinking.end()
    found = {**message, "content": text, "inline": thinking.reasoning}
    return _reply(found, choices[0].get("finish_reason"), payload, quirks)


def _reply(message: dict[str, Any], finish: Any, payload: dict[str, Any], quirks: Quirks) -> Reply:
    if finish == "error":
        raise ValueError("the server says that the reply ended with an error")
    raw_calls = dicts_in(message.get("tool_calls"))
    calls = tuple(_tool_call(call, number) for number, call in enumerate(raw_calls))
    refusal = text_of(message.get("refusal"))
    model = payload.get("model")
    return Reply(
        text=text_of(message.get("content")) or refusal,
        tool_calls=calls,
        reasoning=_reasoning(message),
        usage=usage_of(payload, states_cost=quirks.states_cost),
        finish_reason="refusal" if refusal else _finish(finish, has_calls=bool(calls)),
        model=model if isinstance(model, str) else "",
        opaque=_opaque(message, raw_calls),
    )


def _reasoning(message: dict[str, Any]) -> str:
    """Servers call it one of two names, leave it in the text, or give it only as details."""
    for name in ("reasoning_content", "reasoning", "inline"):
        if text := text_of(message.get(name)):
            return text
    details = dicts_in(message.get("reasoning_details"))
    texts = (text_of(each.get("text")) or text_of(each.get("summary")) for each in details)
    return "\n\n".join(text for text in texts if text)


def _finish(reason: Any, *, has_calls: bool) -> FinishReason:
    known = FINISH.get(reason, "other") if isinstance(reason, str) else "other"
    return "tool_calls" if has_calls and known in {"stop", "other"} else known


def _tool_call(call: dict[str, Any], number: int) -> ToolCall:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    identity = call.get("id")
    return ToolCall(
        id=identity if isinstance(identity, str) and identity else f"call_{number}",
        name=text_of(function.get("name")),
        arguments=arguments_of(function.get("arguments")),
    )


def _opaque(message: dict[str, Any], raw_calls: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Provider parts to carry back: reasoning details, and tool calls that hold a signature.

    Plain reasoning goes back with tool calls only: there DeepSeek and Kimi want it.
    """
    parts: dict[str, Any] = {}
    if details := dicts_in(message.get("reasoning_details")):
        parts["reasoning_details"] = details
    if raw_calls and (thought := text_of(message.get("reasoning_content"))):
        parts["reasoning_content"] = thought
    if any(call.keys() - PLAIN_CALL_KEYS for call in raw_calls):
        parts["tool_calls"] = [_without_index(call) for call in raw_calls]
    return parts or None


def _without_index(call: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in call.items() if name != "index"}


class StreamedChat:
    """Gathers the chunks of a stream into the reply that a plain request would have had."""

    def __init__(self, quirks: Quirks) -> None:
        self._quirks = quirks
        self._thinking = InlineThinking()
        self._reason: Any = None
        self._done = False
        self._has_choice = False
        self._texts: dict[str, list[str]] = {name: [] for name in TEXTS}
        self._details: list[dict[str, Any]] = []
        self._calls: dict[int | str, dict[str, Any]] = {}
        self._about: dict[str, Any] = {}

    @property
    def complete(self) -> bool:
        """Whether the server said that it is through: some send no [DONE], some no reason."""
        return self._done or self._reason is not None

    def finish(self) -> None:
        self._done = True

    def add(self, event: dict[str, Any]) -> str:
        """Take one chunk in; returns the text it adds."""
        self._about |= {name: event[name] for name in ABOUT if event.get(name)}
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return ""
        self._has_choice = True
        delta = choice.get("delta")
        text = self._add_delta(delta) if isinstance(delta, dict) else ""
        if choice.get("finish_reason"):
            self._reason = choice["finish_reason"]
            text += self._end_text()
        return text

    def _add_delta(self, delta: dict[str, Any]) -> str:
        for name in TEXTS[1:]:
            if text := text_of(delta.get(name)):
                self._texts[name].append(text)
        for detail in dicts_in(delta.get("reasoning_details")):
            self._add_detail(detail)
        for call in dicts_in(delta.get("tool_calls")):
            self._add_call(call)
        content = text_of(delta.get("content"))
        content = self._thinking.add(content) if self._quirks.thinks_inline else content
        self._texts["content"].append(content)
        return content

    def _end_text(self) -> str:
        text = self._thinking.end()
        self._texts["content"].append(text)
        return text

    def _add_detail(self, piece: dict[str, Any]) -> None:
        """Pieces of one detail share index and type, and only whole does its signature hold."""
        index, kind = piece.get("index"), piece.get("type")
        whole = self._details[-1] if self._details else {}
        if not isinstance(index, int) or (whole.get("index"), whole.get("type")) != (index, kind):
            self._details.append(dict(piece))
            return
        for name, value in piece.items():
            before = whole.get(name)
            if name in JOINED_IN_DETAILS and isinstance(before, str) and isinstance(value, str):
                whole[name] = before + value
            elif value is not None:
                whole[name] = value

    def _add_call(self, part: dict[str, Any]) -> None:
        """Parts of one call share an index; servers without indices send each call whole."""
        index, identity = part.get("index"), part.get("id")
        key = index if isinstance(index, int) else identity
        key = key if isinstance(key, int | str) else len(self._calls)
        call = self._calls.setdefault(key, {"function": {"name": "", "arguments": ""}})
        call |= {name: value for name, value in part.items() if name != "function" and value}
        function = part.get("function")
        for name in ("name", "arguments"):
            given = function.get(name) if isinstance(function, dict) else None
            if isinstance(given, dict):
                call["function"][name] = given
            elif isinstance(call["function"][name], str):
                call["function"][name] += text_of(given)

    def reply(self) -> Reply:
        if not self._has_choice:
            raise ValueError("the stream holds no choices")
        self._end_text()
        message: dict[str, Any] = {name: "".join(texts) for name, texts in self._texts.items()}
        message["inline"] = self._thinking.reasoning
        message["reasoning_details"] = self._details
        message["tool_calls"] = list(self._calls.values())
        return _reply(message, self._reason, self._about, self._quirks)
