"""OpenAI's chat completions: requests, replies and streams."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

from rlm.clients._dialect import ErrorReport, image_of, output_cap
from rlm.clients._fields import arguments_of, dicts_in, dump, status_of, text_of, usage_of
from rlm.clients._quirks import UNKNOWN, Quirks, cap_name, checked_sampling, is_claude
from rlm.messages import Message, Reply, Request, ToolCall, ToolSpec

__all__ = [
    "ChatDialect",
    "InlineThinking",
    "StreamedChat",
    "chat_reply",
    "image_url",
    "smallest_cap",
]

TAGS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<reasoning>": "</reasoning>",  # gpt-oss on Bedrock
}


class InlineThinking:
    """Splits streamed text into thinking and answer; tags may be cut anywhere.

    Only a tag before all other text counts, so that an answer may mention `<think>`.
    """

    def __init__(self) -> None:
        self._state: Literal["start", "thinking", "gap", "answer"] = "start"
        self._closing = ""
        self._held = ""
        self._thoughts: list[str] = []

    @property
    def reasoning(self) -> str:
        return "".join(self._thoughts).strip()

    def add(self, piece: str) -> str:
        """Return the part of this piece, and of held-back text, that belongs to the answer."""
        self._held += piece
        if self._state == "start":
            self._find_opening()
        if self._state == "thinking":
            self._find_closing()
        if self._state == "gap" and (rest := self._held.lstrip()):
            self._held, self._state = rest, "answer"
        return self._released() if self._state == "answer" else ""

    def end(self) -> str:
        """Return held-back text that turned out to be part of the answer."""
        held = self._released()
        if self._state == "thinking":
            self._thoughts.append(held)
        return held if self._state == "start" else ""

    def _find_opening(self) -> None:
        text = self._held.lstrip()
        for opening, closing in TAGS.items():
            if text.startswith(opening):
                self._held, self._closing = text.removeprefix(opening), closing
                self._state = "thinking"
                return
        if text and not any(tag.startswith(text) for tag in TAGS):
            self._state = "answer"

    def _find_closing(self) -> None:
        thinking, closed, rest = self._held.partition(self._closing)
        if closed:
            self._held, self._state = rest, "gap"
        else:  # its end may be the beginning of the closing tag
            middle = max(0, len(thinking) - len(self._closing) + 1)
            thinking, self._held = thinking[:middle], thinking[middle:]
        self._thoughts.append(thinking)

    def _released(self) -> str:
        text, self._held = self._held, ""
        return text


FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "refusal", "other"]

FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "refusal",
}
PLAIN_CALL_KEYS = frozenset({"id", "type", "index", "function"})
ABOUT = ("model", "usage", "x_groq", "timings")
TEXTS = ("content", "refusal", "reasoning_content", "reasoning")
JOINED_IN_DETAILS = ("text", "summary", "data")


def chat_reply(payload: Any, quirks: Quirks) -> Reply:
    """Return the reply in a decoded response; raise ValueError if there is none."""
    choices = dicts_in(payload.get("choices") if isinstance(payload, dict) else None)
    if not choices:
        raise ValueError("the response contains no choices")
    message = choices[0].get("message")
    if not isinstance(message, dict):
        raise ValueError("the response contains no message")
    thinking = InlineThinking()
    text = text_of(message.get("content"))
    if quirks.thinks_inline:
        text = thinking.add(text) + thinking.end()
    inline = thinking.reasoning or _thoughts_in(message.get("content"))
    found = {**message, "content": text, "inline": inline}
    return _reply(found, choices[0].get("finish_reason"), payload, quirks)


def _reply(message: dict[str, Any], finish: Any, payload: dict[str, Any], quirks: Quirks) -> Reply:
    if finish == "error":
        raise ValueError("the server reported that the reply ended with an error")
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
    """Return the reasoning, which servers put in one of two fields, in the text, or in details."""
    for name in ("reasoning_content", "reasoning", "inline"):
        if text := text_of(message.get(name)):
            return text
    details = dicts_in(message.get("reasoning_details"))
    texts = (text_of(each.get("text")) or text_of(each.get("summary")) for each in details)
    return "\n\n".join(text for text in texts if text)


def _thoughts_in(content: Any) -> str:
    """Return the thinking among parts of content, as Mistral's reasoning models send it."""
    parts = (part for part in dicts_in(content) if part.get("type") == "thinking")
    return "".join(text_of(part.get("thinking")) for part in parts)


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
    """Return provider parts to send back: reasoning details, and signed tool calls.

    Plain reasoning is sent back only with tool calls, as DeepSeek and Kimi require.
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
    """Collects the chunks of a stream into the reply that a plain request would get."""

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
        """Return whether the server finished: some send no [DONE], some no reason."""
        return self._done or self._reason is not None

    def finish(self) -> None:
        self._done = True

    def add(self, event: dict[str, Any]) -> str:
        """Add one chunk, and return the text it adds."""
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
        if thought := _thoughts_in(delta.get("content")):
            self._texts["reasoning"].append(thought)
        content = text_of(delta.get("content"))
        content = self._thinking.add(content) if self._quirks.thinks_inline else content
        self._texts["content"].append(content)
        return content

    def _end_text(self) -> str:
        text = self._thinking.end()
        self._texts["content"].append(text)
        return text

    def _add_detail(self, piece: dict[str, Any]) -> None:
        """Join pieces of one detail, which share index and type; its signature needs the whole."""
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
        """Join parts of one call, which share an index; some servers send whole calls."""
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
            raise ValueError("the stream contains no choices")
        self._end_text()
        message: dict[str, Any] = {name: "".join(texts) for name, texts in self._texts.items()}
        message["inline"] = self._thinking.reasoning
        message["reasoning_details"] = self._details
        message["tool_calls"] = list(self._calls.values())
        return _reply(message, self._reason, self._about, self._quirks)


PATH = "/chat/completions"
LOCAL_CAP_NAMES = ("n_predict", "num_predict")
"""Names that local servers use for the output cap; they must not bypass the budgeted one."""

OURS = ("model", "messages", "stream", "stream_options")
CARRIED_PARTS = ("reasoning_details", "reasoning_content", "tool_calls")
BREAKPOINT = {"cache_control": {"type": "ephemeral"}}


class ChatDialect:
    """OpenAI's chat completions, with the quirks of one server.

    `address` says where `{path}` of the operation goes, and `{model}` if the address names it.
    """

    def __init__(self, quirks: Quirks = UNKNOWN, address: str = "{path}") -> None:
        self._quirks = quirks
        self._address = address

    def path(self, request: Request, *, stream: bool) -> str:
        model = quote(request.model, safe="")
        return self._address.replace("{path}", PATH).replace("{model}", model)

    def body(self, request: Request, *, stream: bool) -> bytes:
        sampling = checked_sampling(self._quirks, request.model, request.sampling)
        cap = smallest_cap(request, sampling)
        messages = [_message(message) for message in request.messages]
        if request.grows and self._quirks.caches_claude and is_claude(request.model):
            _set_breakpoints(messages)
        content: dict[str, Any] = {
            **{name: value for name, value in sampling.items() if name not in OURS},
            "model": request.model,
            "messages": messages,
            cap_name(self._quirks, request.model): cap,
        }
        if request.tools:
            content["tools"] = [_tool(tool) for tool in request.tools]
        if stream:
            content["stream"] = True
        if stream and not self._quirks.streams_usage_unasked:
            content["stream_options"] = {"include_usage": True}
        return dump(content)

    def reply(self, payload: dict[str, Any]) -> Reply:
        return chat_reply(payload, self._quirks)

    def streamed(self) -> StreamedChat:
        return StreamedChat(self._quirks)

    def error_in(self, payload: dict[str, Any]) -> ErrorReport | None:
        groq = payload.get("x_groq")
        error = payload.get("error") or (groq.get("error") if isinstance(groq, dict) else None)
        choices = dicts_in(payload.get("choices"))
        if not error or any(choice.get("finish_reason") != "error" for choice in choices):
            return None
        status = status_of(error)
        return (None, error) if status is None else (status, {"error": error})


def smallest_cap(request: Request, sampling: dict[str, Any]) -> int:
    """Return the output cap: the request's, or a smaller one that is removed from sampling."""
    local = [{"max_tokens": sampling.pop(name)} for name in LOCAL_CAP_NAMES if name in sampling]
    return output_cap(request, sampling, *local)


def image_url(part: dict[str, Any]) -> str | None:
    """Return the URL of a neutral image part, with its data if it has any."""
    image = image_of(part)
    if image is None:
        return None
    return image.url or f"data:{image.media_type};base64,{image.data}"


def _tool(tool: ToolSpec) -> dict[str, Any]:
    described = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": described}


def _message(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": _content(message.content)}
    if message.tool_calls:
        wire["content"] = wire["content"] or None
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


def _content(content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else [_part(part) for part in content]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    url = image_url(part)
    return part if url is None else {"type": "image_url", "image_url": {"url": url}}


def _set_breakpoints(messages: list[dict[str, Any]]) -> None:
    """Set Anthropic's cache marks after the instructions and after the last part that allows one.

    Tool results get none: OpenRouter refuses marks there.
    """
    instructions = [each for each in messages if each["role"] == "system"]
    talk = [each for each in messages if each["role"] in {"user", "assistant"}]
    for group in (instructions[:1], reversed(talk)):
        for message in group:
            if marked := _marked(message["content"]):
                message["content"] = marked
                break


def _marked(content: str | list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Return the content with a mark on its last text; None if it has no text."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    for place in reversed(range(len(parts))):
        if parts[place].get("type") == "text" and parts[place].get("text"):
            return [*parts[:place], {**parts[place], **BREAKPOINT}, *parts[place + 1 :]]
    return None
