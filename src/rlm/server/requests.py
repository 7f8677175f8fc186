"""What clients may send, as types that check requests; the OpenAPI document is made from them.

Unknown fields are ignored, as OpenAI does; inside `rlm`, which is ours, they are errors.
"""

from typing import Annotated, Any, Literal, Self, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace
from starlette.requests import Request

from rlm.server.errors import bad_request

__all__ = [
    "DEFAULT_LISTED",
    "MAX_LIMIT",
    "AssistantCall",
    "CalledFunction",
    "ChatMessage",
    "ChatRequest",
    "ContentPart",
    "FilePart",
    "FileReference",
    "FunctionSpec",
    "ImageAddress",
    "ImagePart",
    "JsonSchema",
    "LimitsField",
    "RefusalPart",
    "ResponseFormat",
    "ResumeRequest",
    "RlmField",
    "RunRequest",
    "StreamOptions",
    "TextPart",
    "ToolField",
    "page_of",
]

Count: TypeAlias = Annotated[int, Meta(ge=1, le=10**12)]
Money: TypeAlias = Annotated[float, Meta(gt=0, le=10**9)]
Seconds: TypeAlias = Annotated[float, Meta(ge=1, le=10**9)]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]
StopText: TypeAlias = Annotated[str, Meta(max_length=200)]
Stop: TypeAlias = StopText | Annotated[list[StopText], Meta(max_length=16)]
RunName: TypeAlias = Annotated[str, Meta(pattern="^[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?$")]
Route: TypeAlias = Literal["auto", "rlm", "direct"]
Strategy: TypeAlias = Literal["rlm", "direct", "mapreduce", "auto"]
Temperature: TypeAlias = Annotated[float, Meta(ge=0, le=2)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Penalty: TypeAlias = Annotated[float, Meta(ge=-2, le=2)]
Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


# -- ours -----------------------------------------------------------------------------------------


class LimitsField(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one run; none may exceed the operator's."""

    max_steps: Count | None = None
    max_depth: Count | None = None
    max_calls: Count | None = None
    max_concurrent_calls: Count | None = None
    max_tokens: Count | None = None
    max_cost_usd: Money | None = None
    max_seconds: Seconds | None = None
    max_errors: Count | None = None
    cell_seconds: Seconds | None = None
    call_seconds: Seconds | None = None
    output_chars: Count | None = None
    step_output_tokens: Count | None = None
    call_output_tokens: Count | None = None


class RlmField(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Full control: the context, the query, and how it is answered."""

    query: str | None = None
    context: str | list[Any] | dict[str, Any] | None = None
    file_ids: Annotated[list[Name], Meta(max_length=1_000)] | None = None
    limits: LimitsField | None = None
    strategy: Strategy | None = None
    route: Route | None = None
    environment: Name | None = None
    run_id: RunName | None = None


# -- messages -------------------------------------------------------------------------------------


class TextPart(Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class ImageAddress(Struct, frozen=True):
    url: str
    detail: str | None = None


class ImagePart(Struct, frozen=True, tag_field="type", tag="image_url"):
    image_url: ImageAddress


class RefusalPart(Struct, frozen=True, tag_field="type", tag="refusal"):
    refusal: str


class FileReference(Struct, frozen=True):
    """A file that was uploaded to `/v1/files`."""

    file_id: Name


class FilePart(Struct, frozen=True, tag_field="type", tag="file"):
    file: FileReference


ContentPart: TypeAlias = TextPart | ImagePart | FilePart | RefusalPart


class CalledFunction(Struct, frozen=True):
    name: Name
    arguments: str = "{}"


class AssistantCall(Struct, frozen=True):
    """A tool call from an earlier reply, sent back."""

    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


class ChatMessage(Struct, frozen=True, kw_only=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[AssistantCall] | None = None
    tool_call_id: str | None = None


# -- chat completions -----------------------------------------------------------------------------


class FunctionSpec(Struct, frozen=True):
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolField(Struct, frozen=True):
    function: FunctionSpec
    type: Literal["function"] = "function"


class JsonSchema(Struct, frozen=True, rename={"json_schema": "schema"}):
    """`schema` is a JSON schema, draft 2020-12."""

    name: str
    json_schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(Struct, frozen=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StreamOptions(Struct, frozen=True):
    include_usage: bool | None = None


class ChatRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/chat/completions`."""

    model: Name
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=10_000)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: int | None = None
    reasoning_effort: Effort | None = None
    n: Literal[1] | None = None
    stop: Stop | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[ToolField], Meta(max_length=128)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    rlm: RlmField | None = None

    def brief(self) -> Self:
        """Return the request without its large fields.

        Enough to answer it once its run has started.
        """
        return replace(self, messages=[], response_format=None, tools=None, rlm=None)


# -- background runs ------------------------------------------------------------------------------


class RunRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/runs`: a run that does not need a connection."""

    model: Name
    query: Annotated[str, Meta(min_length=1)]
    context: str | list[Any] | dict[str, Any] | None = None
    file_ids: Annotated[list[Name], Meta(max_length=1_000)] | None = None
    instructions: str | None = None
    limits: LimitsField | None = None
    strategy: Strategy | None = None
    environment: Name | None = None
    response_format: ResponseFormat | None = None
    run_id: RunName | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: int | None = None
    reasoning_effort: Effort | None = None


class ResumeRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/runs/{id}/resume`, possibly with other limits than before."""

    limits: LimitsField | None = None


# -- pages of lists ------------------------------------------------------------------------------

MAX_LISTED = 100
MAX_LIMIT = 10_000
"""OpenAI's clients may send a `limit` up to this; pages are smaller."""

DEFAULT_LISTED = 20


def page_of(request: Request) -> tuple[int, str | None]:
    """Return how many items of a list to send, and the id of the item before them."""
    text = request.query_params.get("limit", str(DEFAULT_LISTED))
    is_number = text.isascii() and text.isdecimal() and len(text) < 10
    if not is_number or not 0 < int(text) <= MAX_LIMIT:
        raise bad_request(f"limit must be a whole number from 1 to {MAX_LIMIT:,}", "limit")
    return min(int(text), MAX_LISTED), request.query_params.get("after") or None
