"""What a request asks for: its messages as a query, instructions and a context. No text is lost.

The rule, for a limit of `context_over` characters:

1. The last user message is the query. If it is longer than the limit, all of it becomes a context,
   and the query is its edges: its first and last paragraph, if they are short. Of a long paragraph
   at an edge, only the outer line is used. If both edges are long, the query says that the task is
   in the context.
2. System and developer messages are instructions, below the query. If together they are longer
   than the limit, they become a context.
3. All other messages are the conversation. If it is short, it also follows the query; otherwise it
   becomes a context.

A single context is passed as it is; several are passed as a dict by name.
"""

from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from rlm._util.text import sendable
from rlm._util.untrusted import JsonBounds, read_json
from rlm.limits import Limits
from rlm.messages import Message, ToolCall, ToolSpec
from rlm.prompts import FIXED_QUERY
from rlm.server.errors import bad_request
from rlm.server.requests import (
    AssistantCall,
    ChatMessage,
    ChatRequest,
    FilePart,
    ImagePart,
    LimitsField,
    RefusalPart,
    ResponseFormat,
    RlmField,
    RunRequest,
    Stop,
    TextPart,
    ToolField,
)

__all__ = [
    "AnswerRequest",
    "Split",
    "TextMessage",
    "as_messages",
    "as_tools",
    "files_named",
    "from_chat",
    "from_run",
    "has_images",
    "is_large",
    "limits_of",
    "split",
    "stops_of",
    "text_messages",
    "with_tools",
]

EDGE_CHARS = 1_000
"""At an edge of a large message, a paragraph up to this long may contain the question."""

Context: TypeAlias = str | list[Any] | dict[str, Any] | None


class TextMessage(Struct, frozen=True):
    """The text of a message."""

    role: str
    text: str


class Split(Struct, frozen=True):
    """The query of a run, and its contexts; `prologue` is shown below the query."""

    query: str
    prologue: str = ""
    contexts: dict[str, Context] = field(default_factory=dict)

    @property
    def context(self) -> Context:
        """Return None without contexts, a single one as it is, or all of them by name."""
        if not self.contexts:
            return None
        return next(iter(self.contexts.values())) if len(self.contexts) == 1 else self.contexts


def is_large(messages: list[TextMessage], limit: int) -> bool:
    """Return whether there is more text than a prompt should contain."""
    return sum(len(message.text) for message in messages) > limit


def split(messages: list[TextMessage], limit: int) -> Split:
    """Split messages by the rule of this module."""
    at = _last_user(messages)
    question = messages[at].text if at is not None else ""
    rest = [message for number, message in enumerate(messages) if number != at]
    instructions = "\n\n".join(m.text for m in rest if m.role in {"system", "developer"})
    talk = [m for m in rest if m.role not in {"system", "developer"} and m.text]
    contexts: dict[str, Context] = {}
    below: list[str] = []
    if len(question) > limit:
        contexts["message"] = question
    query = _edges(question) if len(question) > limit else question
    if len(instructions) > limit:
        contexts["instructions"] = instructions
        below.append("Instructions that you must follow are in the context: read them first.")
    elif instructions:
        below.append(instructions)
    if is_large(talk, limit):
        contexts["conversation"] = [{"role": m.role, "content": m.text} for m in talk]
        below.append("The earlier messages of this conversation are in the context.")
    elif talk:
        below.append("\n\n".join(["The conversation so far:", *map(_labelled, talk)]))
    return Split(query if query.strip() else FIXED_QUERY, "\n\n".join(below), contexts)


def _last_user(messages: list[TextMessage]) -> int | None:
    users = [number for number, message in enumerate(messages) if message.role == "user"]
    return users[-1] if users else None


def _labelled(message: TextMessage) -> str:
    return f"[{message.role}]\n{message.text}"


def _edges(text: str) -> str:
    """Return both ends of a large text, where people put their question."""
    text = text.strip()
    first, last = _first(text), _last(text)
    edges = [first, last] if first != last else [first]
    return "\n\n".join(filter(None, edges))


def _first(text: str) -> str:
    for end in ("\n\n", "\n"):
        edge = text.partition(end)[0].strip()
        if len(edge) <= EDGE_CHARS:
            return edge
    return ""


def _last(text: str) -> str:
    for start in ("\n\n", "\n"):
        edge = text.rpartition(start)[2].strip()
        if len(edge) <= EDGE_CHARS:
            return edge
    return ""


def text_messages(messages: list[ChatMessage]) -> list[TextMessage]:
    """Return the texts of messages, including the arguments of tool calls."""
    return [TextMessage(message.role, _text(message)) for message in messages]


def as_messages(messages: list[ChatMessage]) -> tuple[Message, ...]:
    """Convert messages for a model."""
    return tuple(
        Message(
            role="system" if each.role == "developer" else each.role,
            content=_content(each),
            tool_calls=tuple(
                _call(call, f"messages[{number}].tool_calls") for call in each.tool_calls or ()
            ),
            tool_call_id=each.tool_call_id,
        )
        for number, each in enumerate(messages)
    )


def as_tools(tools: list[ToolField]) -> tuple[ToolSpec, ...]:
    nothing: dict[str, Any] = {"type": "object", "properties": {}}
    return tuple(
        ToolSpec(
            tool.function.name, tool.function.description or "", tool.function.parameters or nothing
        )
        for tool in tools
    )


def has_images(messages: list[ChatMessage]) -> bool:
    return any(isinstance(part, ImagePart) for message in messages for part in _parts(message))


def with_tools(messages: list[ChatMessage]) -> bool:
    """Return whether messages contain tool calls or their results."""
    return any(message.tool_calls or message.role == "tool" for message in messages)


def files_named(messages: list[ChatMessage]) -> list[str]:
    """Return the ids of the files in messages."""
    return [
        part.file.file_id
        for message in messages
        for part in _parts(message)
        if isinstance(part, FilePart)
    ]


def _parts(message: ChatMessage) -> list[Any]:
    return message.content if isinstance(message.content, list) else []


def _text(message: ChatMessage) -> str:
    if isinstance(message.content, list):
        text = "\n".join(_part_text(part) for part in message.content)
    else:
        text = message.content or ""
    called = [
        f"{call.function.name}({call.function.arguments})" for call in message.tool_calls or ()
    ]
    return sendable("\n".join([*([text] if text else []), *called]))


def _part_text(part: Any) -> str:
    if isinstance(part, TextPart):
        return part.text
    return part.refusal if isinstance(part, RefusalPart) else ""


def _content(message: ChatMessage) -> str | list[dict[str, Any]]:
    """Return the content, as plain text if there is only text: some servers accept no list."""
    if not isinstance(message.content, list):
        return message.content or ""
    if not any(isinstance(part, ImagePart) for part in message.content):
        return "\n".join(_part_text(part) for part in message.content)
    return [_wire(part) for part in message.content if not isinstance(part, FilePart)]


def _wire(part: Any) -> dict[str, Any]:
    if isinstance(part, ImagePart):
        return {"type": "image", "url": part.image_url.url}
    return {"type": "text", "text": _part_text(part)}


ARGUMENTS = JsonBounds(1 << 20, 20_000)
"""Limits on the arguments of one call, which are read on the event loop."""


def _call(call: AssistantCall, where: str) -> ToolCall:
    try:
        arguments = read_json(call.function.arguments or "{}", ARGUMENTS)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise bad_request(f"the arguments of {call.function.name} must be a JSON object", where)
    return ToolCall(call.id, call.function.name, arguments)


OF_RUNS = (
    *("temperature", "top_p", "presence_penalty", "frequency_penalty", "seed"),
    "reasoning_effort",
)
OF_TOOLS = ("tool_choice", "parallel_tool_calls")
SAMPLING = (*OF_RUNS, *OF_TOOLS)
"""Fields that are passed to the model if given; in a run, without those for tools."""


class AnswerRequest(Struct, frozen=True, kw_only=True):
    """One request, from any endpoint. `prefix` is the path of our fields in it, for errors."""

    model: str
    messages: list[ChatMessage]
    sampling: dict[str, Any] = field(default_factory=dict)
    max_output_tokens: int | None = None
    stops: tuple[str, ...] = ()
    format: ResponseFormat | None = None
    tools: list[ToolField] = field(default_factory=list)
    rlm: RlmField = field(default_factory=RlmField)
    prefix: str = "rlm."

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON schema that the answer must satisfy, or None."""
        if self.format is None or self.format.type == "text":
            return None
        if self.format.type == "json_object":
            return {"type": "object"}
        return self.format.json_schema.json_schema if self.format.json_schema else None


def from_chat(request: ChatRequest) -> AnswerRequest:
    _check_format(request.response_format)
    return AnswerRequest(
        model=request.model,
        messages=request.messages,
        sampling=_set_fields(request, SAMPLING),
        max_output_tokens=request.max_completion_tokens or request.max_tokens,
        stops=stops_of(request.stop),
        format=request.response_format,
        tools=request.tools or [],
        rlm=request.rlm or RlmField(),
    )


def from_run(request: RunRequest) -> AnswerRequest:
    """Convert a run: its instructions and query become messages, so that the same rule applies."""
    _check_format(request.response_format)
    messages = [ChatMessage(role="user", content=request.query)]
    if request.instructions:
        messages.insert(0, ChatMessage(role="system", content=request.instructions))
    return AnswerRequest(
        model=request.model,
        messages=messages,
        sampling=_set_fields(request, OF_RUNS),
        format=request.response_format,
        rlm=RlmField(
            context=request.context,
            file_ids=request.file_ids,
            limits=request.limits,
            strategy=request.strategy,
            environment=request.environment,
            run_id=request.run_id,
            route="rlm",
        ),
        prefix="",
    )


def stops_of(stop: Stop | None) -> tuple[str, ...]:
    stops = [stop] if isinstance(stop, str) else stop or []
    return tuple(each for each in stops if each)


def limits_of(wanted: LimitsField | None, ceilings: Limits, prefix: str) -> Limits:
    """Return the operator's limits, lowered as requested; a higher limit is an error."""
    if wanted is None:
        return ceilings
    given = _set_fields(wanted, wanted.__struct_fields__)
    for name, value in given.items():
        ceiling = getattr(ceilings, name)
        if ceiling is not None and value > ceiling:
            raise bad_request(
                f"{name} may be at most {ceiling:,} on this server, not {value:,}",
                f"{prefix}limits.{name}",
                "limit_too_high",
            )
    return replace(ceilings, **given)


def _set_fields(request: Struct, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(request, name)) is not None}


def _check_format(wanted: ResponseFormat | None) -> None:
    if wanted is not None and wanted.type == "json_schema":
        holder = wanted.json_schema
        if holder is None or holder.json_schema is None:
            raise bad_request(
                "response_format of type json_schema needs json_schema.schema",
                "response_format.json_schema",
            )
