"""What any of the endpoints was asked, in one form; and the limits that it may have."""

from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from rlm.limits import Limits
from rlm.server.errors import bad_request
from rlm.server.requests import (
    ChatMessage,
    ChatRequest,
    LimitsField,
    ResponseFormat,
    RlmField,
    RunRequest,
    Stop,
    ToolField,
)

__all__ = ["Asked", "limits_of", "of_chat", "of_run", "stops_of"]

SAMPLING = (
    *("temperature", "top_p", "presence_penalty", "frequency_penalty", "seed"),
    *("reasoning_effort", "tool_choice", "parallel_tool_calls"),
)
"""Fields that go to the model as they are, if they are given."""

OF_TOOLS = ("tool_choice", "parallel_tool_calls")


class Asked(Struct, frozen=True, kw_only=True):
    """One request, whichever endpoint it came by. `prefix` says where ours is in it, for errors."""

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
        """The JSON schema that the answer has to satisfy, if any."""
        if self.format is None or self.format.type == "text":
            return None
        if self.format.type == "json_object":
            return {"type": "object"}
        return self.format.json_schema.json_schema if self.format.json_schema else None


def of_chat(request: ChatRequest) -> Asked:
    _check_format(request.response_format)
    return Asked(
        model=request.model,
        messages=request.messages,
        sampling=_given(request, SAMPLING),
        max_output_tokens=request.max_completion_tokens or request.max_tokens,
        stops=stops_of(request.stop),
        format=request.response_format,
        tools=request.tools or [],
        rlm=request.rlm or RlmField(),
    )


def of_run(request: RunRequest) -> Asked:
    """Instructions and the query are messages, too: then one rule holds for all."""
    _check_format(request.response_format)
    messages = [ChatMessage(role="user", content=request.query)]
    if request.instructions:
        messages.insert(0, ChatMessage(role="system", content=request.instructions))
    return Asked(
        model=request.model,
        messages=messages,
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


def limits_of(asked: LimitsField | None, ceilings: Limits, prefix: str) -> Limits:
    """The operator's limits, or less where less was asked for; more is an error that says so."""
    if asked is None:
        return ceilings
    wanted = {
        name: value
        for name in asked.__struct_fields__
        if (value := getattr(asked, name)) is not None
    }
    for name, value in wanted.items():
        ceiling = getattr(ceilings, name)
        if ceiling is not None and value > ceiling:
            raise bad_request(
                f"{name} may be {ceiling:,} at most here, not {value:,}",
                f"{prefix}limits.{name}",
                "limit_too_high",
            )
    return replace(ceilings, **wanted)


def _given(request: Struct, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(request, name)) is not None}


def _check_format(asked: ResponseFormat | None) -> None:
    if asked is not None and asked.type == "json_schema":
        holder = asked.json_schema
        if holder is None or holder.json_schema is None:
            raise bad_request(
                "response_format of type json_schema needs json_schema.schema",
                "response_format.json_schema",
            )
