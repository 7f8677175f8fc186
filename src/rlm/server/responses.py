"""OpenAI's Responses interface: its requests, its reply, and its stream of events."""

import secrets
from typing import Annotated, Any, Literal, Self, TypeAlias

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from rlm.messages import Usage
from rlm.server.answering import Facts, Outcome
from rlm.server.conversation import AnswerRequest
from rlm.server.errors import ApiError, bad_request
from rlm.server.replies import ErrorBody, now, tool_calls_of
from rlm.server.requests import (
    AssistantCall,
    CalledFunction,
    ChatMessage,
    ContentPart,
    Count,
    Effort,
    FilePart,
    FileReference,
    FunctionSpec,
    ImageAddress,
    ImagePart,
    JsonSchema,
    Name,
    ResponseFormat,
    RlmField,
    TextPart,
    ToolField,
)
from rlm.web.events import event
from rlm.web.responses import json_bytes

__all__ = ["ResponseObject", "ResponsesRequest", "ResponsesWriter", "from_responses", "response_of"]


class InputText(Struct, frozen=True, tag_field="type", tag="input_text"):
    text: str


class OutputText(Struct, frozen=True, tag_field="type", tag="output_text"):
    text: str


class InputImage(Struct, frozen=True, tag_field="type", tag="input_image"):
    image_url: str


class InputFile(Struct, frozen=True, tag_field="type", tag="input_file"):
    file_id: Name


InputPart: TypeAlias = InputText | OutputText | InputImage | InputFile


class InputItem(Struct, frozen=True, kw_only=True):
    """A message, a tool call or its result; reasoning that is sent back is left out."""

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    role: Literal["system", "developer", "user", "assistant"] = "user"
    content: str | list[InputPart] | None = None
    call_id: str | None = None
    name: Name | None = None
    arguments: str | None = None
    output: str | None = None


class ResponseTool(Struct, frozen=True, kw_only=True):
    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None


class TextFormat(Struct, frozen=True, kw_only=True, rename={"json_schema": "schema"}):
    type: Literal["text", "json_object", "json_schema"]
    name: str = "answer"
    json_schema: dict[str, Any] | None = None
    strict: bool | None = None


class TextField(Struct, frozen=True):
    format: TextFormat | None = None


class ReasoningField(Struct, frozen=True):
    effort: Effort | None = None


class ResponsesRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/responses`. Nothing is stored, so there is no previous response to continue."""

    model: Name
    input: str | Annotated[list[InputItem], Meta(min_length=1, max_length=10_000)]
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    reasoning: ReasoningField | None = None
    text: TextField | None = None
    tools: Annotated[list[ResponseTool], Meta(max_length=128)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    metadata: dict[str, str] | None = None
    previous_response_id: None = None
    background: Literal[False] | None = None
    rlm: RlmField | None = None

    def brief(self) -> Self:
        """Return the request without its large fields.

        Enough to answer it once its run has started.
        """
        return replace(self, input="", text=None, rlm=None)


def from_responses(request: ResponsesRequest) -> AnswerRequest:
    """Convert a request to the form that chat completions are converted to."""
    messages: list[ChatMessage] = []
    if request.instructions:
        messages.append(ChatMessage(role="system", content=request.instructions))
    if isinstance(request.input, str):
        messages.append(ChatMessage(role="user", content=request.input))
    else:
        for number, item in enumerate(request.input):
            messages += _messages(item, f"input[{number}]")
    sampling = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "reasoning_effort": request.reasoning.effort if request.reasoning else None,
        "tool_choice": _choice(request.tool_choice) if request.tools else None,
        "parallel_tool_calls": request.parallel_tool_calls if request.tools else None,
    }
    return AnswerRequest(
        model=request.model,
        messages=messages,
        sampling={name: value for name, value in sampling.items() if value is not None},
        max_output_tokens=request.max_output_tokens,
        format=_format(request.text),
        tools=[
            ToolField(FunctionSpec(tool.name, tool.description, tool.parameters))
            for tool in request.tools or ()
        ],
        rlm=request.rlm or RlmField(),
    )


def _messages(item: InputItem, where: str) -> list[ChatMessage]:
    if item.type == "reasoning":
        return []
    if item.type == "function_call":
        if not item.call_id or not item.name:
            raise bad_request("a function_call needs call_id and name", where)
        call = AssistantCall(item.call_id, CalledFunction(item.name, item.arguments or "{}"))
        return [ChatMessage(role="assistant", tool_calls=[call])]
    if item.type == "function_call_output":
        if not item.call_id:
            raise bad_request("a function_call_output needs call_id", where)
        return [ChatMessage(role="tool", content=item.output, tool_call_id=item.call_id)]
    return [ChatMessage(role=item.role, content=_content(item.content))]


def _content(content: str | list[InputPart] | None) -> str | list[ContentPart] | None:
    if not isinstance(content, list):
        return content
    parts: list[ContentPart] = []
    for part in content:
        if isinstance(part, InputImage):
            parts.append(ImagePart(ImageAddress(part.image_url)))
        elif isinstance(part, InputFile):
            parts.append(FilePart(FileReference(part.file_id)))
        else:
            parts.append(TextPart(part.text))
    return parts


def _choice(choice: str | dict[str, Any] | None) -> Any:
    """Convert a tool choice: chat completions name a function one level deeper."""
    if isinstance(choice, dict) and choice.get("type") == "function" and "name" in choice:
        return {"type": "function", "function": {"name": choice["name"]}}
    return choice


def _format(text: TextField | None) -> ResponseFormat | None:
    if text is None or text.format is None:
        return None
    wanted = text.format
    if wanted.type != "json_schema":
        return ResponseFormat(wanted.type)
    if wanted.json_schema is None:
        raise bad_request("text.format of type json_schema needs a schema", "text.format.schema")
    return ResponseFormat(
        "json_schema", JsonSchema(wanted.name, wanted.json_schema, strict=wanted.strict)
    )


class CachedDetails(Struct, frozen=True):
    cached_tokens: int = 0


class ReasoningDetails(Struct, frozen=True):
    reasoning_tokens: int = 0


class ResponseUsage(Struct, frozen=True):
    input_tokens: int
    input_tokens_details: CachedDetails
    output_tokens: int
    output_tokens_details: ReasoningDetails
    total_tokens: int


class IncompleteDetails(Struct, frozen=True):
    reason: Literal["max_output_tokens", "content_filter"]


class ResponseObject(Struct, frozen=True, kw_only=True):
    """The response as OpenAI defines it. The facts of the run are in `rlm`."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    model: str
    output: list[dict[str, Any]] = field(default_factory=list)
    error: ErrorBody | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    parallel_tool_calls: bool = True
    temperature: float | None = None
    top_p: float | None = None
    tool_choice: Any = "auto"
    tools: list[Any] = field(default_factory=list)
    usage: ResponseUsage | None = None
    rlm: Facts | None = None
    background: bool = False
    store: bool = False


def begun(request: ResponsesRequest) -> ResponseObject:
    return ResponseObject(
        id=_new_id("resp"),
        created_at=now(),
        status="in_progress",
        model=request.model,
        instructions=request.instructions,
        metadata=request.metadata or {},
        parallel_tool_calls=request.parallel_tool_calls is not False,
        temperature=request.temperature,
        top_p=request.top_p,
        tool_choice=request.tool_choice or "auto",
        tools=list(request.tools or ()),
    )


def response_of(request: ResponsesRequest, outcome: Outcome) -> ResponseObject:
    """Return the whole response to a request that was not streamed."""
    thought = [_reasoning(_new_id("rs"), outcome.reasoning)] if outcome.reasoning else []
    spoken = [_message(_new_id("msg"), outcome)] if outcome.text or not outcome.tool_calls else []
    return _ended(begun(request), outcome, [*thought, *spoken, *_calls(outcome)])


def _ended(
    response: ResponseObject, outcome: Outcome, output: list[dict[str, Any]]
) -> ResponseObject:
    reasons: dict[str, IncompleteDetails] = {
        "length": IncompleteDetails("max_output_tokens"),
        "content_filter": IncompleteDetails("content_filter"),
    }
    why = reasons.get(outcome.finish)
    return replace(
        response,
        status="incomplete" if why else "completed",
        output=output,
        incomplete_details=why,
        usage=_usage(outcome.usage),
        rlm=outcome.facts,
    )


def _usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        usage.input_tokens,
        CachedDetails(usage.cached_tokens),
        usage.output_tokens,
        ReasoningDetails(usage.reasoning_tokens),
        usage.total_tokens,
    )


def _new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"


def _part(text: str, *, refused: bool = False) -> dict[str, Any]:
    if refused:
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _message(identity: str, outcome: Outcome) -> dict[str, Any]:
    return _message_item(identity, "completed", [_part(outcome.text, refused=outcome.refused)])


def _message_item(identity: str, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "type": "message",
        "id": identity,
        "status": status,
        "role": "assistant",
        "content": content,
    }


def _reasoning(identity: str, text: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text}] if text else []
    return {"type": "reasoning", "id": identity, "summary": summary}


def _calls(outcome: Outcome) -> list[dict[str, Any]]:
    return [
        {
            "type": "function_call",
            "id": _new_id("fc"),
            "call_id": call.id,
            "name": call.function.name,
            "arguments": call.function.arguments,
            "status": "completed",
        }
        for call in tool_calls_of(outcome.tool_calls, numbered=False)
    ]


class ResponsesWriter:
    """Writes the numbered events of a response. Progress is the summary of a reasoning item."""

    def __init__(self, request: ResponsesRequest) -> None:
        self._response = begun(request)
        self._number = 0
        self._output: list[dict[str, Any]] = []
        self._thought: list[str] | None = None
        self._text: list[str] | None = None
        self._identity = ""

    def begin(self) -> bytes:
        return self._event("response.created", response=self._response) + self._event(
            "response.in_progress", response=self._response
        )

    # -- progress ----------------------------------------------------------------------------

    def progress(self, text: str) -> bytes:
        if self._text is not None:
            return b""  # Progress must not follow text of the answer.
        chunk = b""
        if self._thought is None:
            self._thought, self._identity = [], _new_id("rs")
            chunk += self._item("added", _reasoning(self._identity, ""))
            chunk += self._about_thought("part.added", part={"type": "summary_text", "text": ""})
        self._thought.append(text)
        return chunk + self._about_thought("text.delta", delta=text)

    def _end_thought(self) -> bytes:
        if self._thought is None:
            return b""
        text, self._thought = "".join(self._thought), None
        part = {"type": "summary_text", "text": text}
        chunk = self._about_thought("text.done", text=text)
        chunk += self._about_thought("part.done", part=part)
        return chunk + self._finish(_reasoning(self._identity, text))

    def _about_thought(self, what: str, **more: Any) -> bytes:
        return self._event(
            f"response.reasoning_summary_{what}",
            item_id=self._identity,
            output_index=len(self._output),
            summary_index=0,
            **more,
        )

    # -- the answer --------------------------------------------------------------------------

    def content(self, text: str) -> bytes:
        chunk = b""
        if self._text is None:
            chunk += self._begin_text()
        assert self._text is not None
        self._text.append(text)
        return chunk + self._about_text("output_text.delta", delta=text, logprobs=[])

    def _begin_text(self) -> bytes:
        chunk = self._end_thought()
        self._text, self._identity = [], _new_id("msg")
        chunk += self._item("added", _message_item(self._identity, "in_progress", []))
        return chunk + self._about_text("content_part.added", part=_part(""))

    def _end_text(self) -> bytes:
        text, self._text = "".join(self._text or ()), None
        chunk = self._about_text("output_text.done", text=text, logprobs=[])
        chunk += self._about_text("content_part.done", part=_part(text))
        return chunk + self._finish(_message_item(self._identity, "completed", [_part(text)]))

    def _about_text(self, what: str, **more: Any) -> bytes:
        return self._event(
            f"response.{what}",
            item_id=self._identity,
            output_index=len(self._output),
            content_index=0,
            **more,
        )

    # -- the end -----------------------------------------------------------------------------

    def end(self, outcome: Outcome) -> bytes:
        chunk = b""
        if self._text is None and not outcome.tool_calls:
            chunk += self._begin_text()
        chunk += self._end_text() if self._text is not None else self._end_thought()
        for call in _calls(outcome):
            chunk += self._call(call)
        whole = _ended(self._response, outcome, self._output)
        return chunk + self._event(f"response.{whole.status}", response=whole)

    def fail(self, error: ApiError) -> bytes:
        body = ErrorBody(error.message, error.kind, error.param, error.code)
        failed = replace(self._response, status="failed", error=body, output=self._output)
        return self._event("error", **error.body()) + self._event(
            "response.failed", response=failed
        )

    def _call(self, call: dict[str, Any]) -> bytes:
        about = {"item_id": call["id"], "output_index": len(self._output)}
        chunk = self._item("added", {**call, "arguments": "", "status": "in_progress"})
        named = "response.function_call_arguments"
        chunk += self._event(f"{named}.delta", **about, delta=call["arguments"])
        chunk += self._event(
            f"{named}.done", **about, name=call["name"], arguments=call["arguments"]
        )
        return chunk + self._finish(call)

    def _finish(self, item: dict[str, Any]) -> bytes:
        chunk = self._item("done", item)
        self._output.append(item)
        return chunk

    def _item(self, what: str, item: dict[str, Any]) -> bytes:
        return self._event(
            f"response.output_item.{what}", output_index=len(self._output), item=item
        )

    def _event(self, kind: str, **facts: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return event(json_bytes({"type": kind, "sequence_number": number, **facts}), kind)
