"""What `POST /v1/responses` takes, and the same as what chat completions take."""

from typing import Annotated, Any, Literal, Self, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

from rlm.server.asked import Asked
from rlm.server.errors import bad_request
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

__all__ = ["ResponsesRequest", "of_responses"]


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
    """A message, or what became of a tool; reasoning that is sent back is left out."""

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
    """`POST /v1/responses`. Nothing is stored, so there is no previous response to go on from."""

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
        """The request without what is large: enough to answer it once its run has begun."""
        return replace(self, input="", text=None, rlm=None)


def of_responses(request: ResponsesRequest) -> Asked:
    """The same request, as chat completions would have it."""
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
    return Asked(
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
    """Chat completions name a function one level deeper."""
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
