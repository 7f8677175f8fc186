"""The OpenAPI 3.1 document, generated from the types that check requests and write replies."""

from typing import Any

import msgspec
from msgspec import Struct, field

from rlm.limits import Limits
from rlm.server.engines import Engines
from rlm.server.replies import (
    PURPOSES,
    Completion,
    Deleted,
    ErrorReply,
    FileList,
    FileObject,
    Health,
    ModelList,
    ModelObject,
    RunList,
    RunObject,
)
from rlm.server.requests import DEFAULT_LISTED, MAX_LIMIT, ChatRequest, ResumeRequest, RunRequest
from rlm.server.responses import ResponseObject, ResponsesRequest

__all__ = ["EVENTS", "OPERATIONS", "Operation", "document"]

EVENTS: dict[str, Any] = {"text/event-stream": {}}


class Operation(Struct, frozen=True, kw_only=True):
    """One path and method: what it accepts, and what it returns on success."""

    method: str
    path: str
    name: str
    summary: str
    takes: Any = None
    optional: bool = False
    answers: Any = None
    status: str = "200"
    content: dict[str, Any] = field(default_factory=dict)
    query: tuple[str, ...] = ()
    streams: bool = False


OPERATIONS = (
    Operation(
        method="post",
        path="/v1/chat/completions",
        name="createChatCompletion",
        summary="Answer the last user message; large messages become a context.",
        takes=ChatRequest,
        answers=Completion,
        streams=True,
    ),
    Operation(
        method="post",
        path="/v1/responses",
        name="createResponse",
        summary="The same, in the format of OpenAI's Responses interface.",
        takes=ResponsesRequest,
        answers=ResponseObject,
        streams=True,
    ),
    Operation(
        method="get",
        path="/v1/models",
        name="listModels",
        summary="The models that may be used.",
        answers=ModelList,
    ),
    Operation(
        method="get",
        path="/v1/models/{model}",
        name="getModel",
        summary="One model.",
        answers=ModelObject,
    ),
    Operation(
        method="get",
        path="/v1/files",
        name="listFiles",
        summary="The files of this token, newest first.",
        answers=FileList,
        query=("limit", "after", "purpose"),
    ),
    Operation(
        method="post",
        path="/v1/files",
        name="uploadFile",
        summary="Upload a file to use as a context.",
        takes="form",
        answers=FileObject,
    ),
    Operation(
        method="get",
        path="/v1/files/{file_id}",
        name="getFile",
        summary="The facts about a file.",
        answers=FileObject,
    ),
    Operation(
        method="delete",
        path="/v1/files/{file_id}",
        name="deleteFile",
        summary="Delete a file.",
        answers=Deleted,
    ),
    Operation(
        method="get",
        path="/v1/files/{file_id}/content",
        name="getFileContent",
        summary="The bytes of a file.",
        content={"application/octet-stream": {}},
    ),
    Operation(
        method="get",
        path="/v1/runs",
        name="listRuns",
        summary="The background runs of this token, newest first.",
        answers=RunList,
        query=("limit", "after"),
    ),
    Operation(
        method="post",
        path="/v1/runs",
        name="createRun",
        summary="Start a run in the background.",
        takes=RunRequest,
        answers=RunObject,
        status="202",
    ),
    Operation(
        method="get",
        path="/v1/runs/{run_id}",
        name="getRun",
        summary="The state of a run, and its answer.",
        answers=RunObject,
    ),
    Operation(
        method="get",
        path="/v1/runs/{run_id}/events",
        name="streamRunEvents",
        summary="Every event of a run; Last-Event-ID continues after one.",
        content=EVENTS,
        query=("after_event",),
    ),
    Operation(
        method="post",
        path="/v1/runs/{run_id}/cancel",
        name="cancelRun",
        summary="End a run now, with its best answer so far.",
        answers=RunObject,
    ),
    Operation(
        method="post",
        path="/v1/runs/{run_id}/resume",
        name="resumeRun",
        summary="Continue a run that was interrupted or ended at a limit.",
        takes=ResumeRequest,
        optional=True,
        answers=RunObject,
        status="202",
    ),
    Operation(
        method="get",
        path="/health",
        name="getHealth",
        summary="Whether the server accepts requests.",
        answers=Health,
    ),
    Operation(
        method="get",
        path="/metrics",
        name="getMetrics",
        summary="Metrics for Prometheus.",
        content={"text/plain": {"schema": {"type": "string"}}},
    ),
    Operation(
        method="get",
        path="/openapi.json",
        name="getOpenApi",
        summary="This document.",
        content={"application/json": {"schema": {"type": "object"}}},
    ),
)


TEMPLATE = "#/components/schemas/{name}"
ERRORS = {
    "400": "The request is wrong; `param` says where.",
    "401": "No token, or an unknown one.",
    "403": "Pages of other sites may not use this server.",
    "404": "It does not exist, or belongs to another token.",
    "405": "This address does not support that method.",
    "408": "The request took too long to arrive.",
    "409": "A run with that id already exists.",
    "413": "The request is too large.",
    "415": "The body has the wrong content type.",
    "429": "Too many requests, or a budget is used up; `Retry-After` says when to try again.",
    "500": "The server failed.",
    "502": "The model failed, or found no answer of the wanted type.",
    "503": "The server is shutting down, or no slot was free in time.",
    "504": "The model did not answer in time.",
}


EVENT_ID = {"type": "string", "pattern": r"^([0-9]{1,15}\.[0-9]{1,9})?$"}
QUERY: dict[str, dict[str, Any]] = {
    "limit": {
        "type": "integer",
        "minimum": 1,
        "maximum": MAX_LIMIT,
        "default": DEFAULT_LISTED,
    },
    "after": {"type": "string"},
    "purpose": {"type": "string"},
    "after_event": EVENT_ID,
}
FORM = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": {"enum": list(PURPOSES)},
    },
}


def document(engines: Engines, limits: Limits, version: str) -> dict[str, Any]:
    """Return the whole document, with what this server offers and allows."""
    typed = [each for op in OPERATIONS for each in (op.takes, op.answers) if isinstance(each, type)]
    kinds = list(dict.fromkeys([*typed, ErrorReply]))
    _, components = msgspec.json.schema_components(kinds, ref_template=TEMPLATE)
    _describe_offer(components, engines, limits)
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "rlm serve",
            "version": version,
            "description": "Recursive Language Models behind OpenAI's interface.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"bearer": []}, {}],
    }


def _describe_offer(components: dict[str, Any], engines: Engines, limits: Limits) -> None:
    for name in ("ChatRequest", "ResponsesRequest", "RunRequest"):
        components[name]["properties"]["model"] = {"enum": list(engines.offered)}
    for name in ("RlmField", "RunRequest"):
        components[name]["properties"]["environment"] = {"enum": [*engines.environments, None]}
    for name, field_schema in components["LimitsField"]["properties"].items():
        ceiling = getattr(limits, name)
        for choice in field_schema["anyOf"]:
            if "maximum" in choice and ceiling is not None:
                choice["maximum"] = ceiling


def _operation(operation: Operation) -> dict[str, Any]:
    content = dict(operation.content)
    if operation.answers is not None:
        content["application/json"] = {"schema": _reference_to(operation.answers)}
    if operation.streams:
        content |= EVENTS
    error = {"application/json": {"schema": _reference_to(ErrorReply)}}
    responses = {
        operation.status: {"description": "Success.", "content": content},
        **{code: {"description": text, "content": error} for code, text in ERRORS.items()},
    }
    if operation.path == "/health":
        responses["503"] = {"description": "Shutting down.", "content": content}
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": responses,
    }
    if parameters := _parameters(operation):
        found["parameters"] = parameters
    if operation.takes is not None:
        found["requestBody"] = {
            "required": not operation.optional,
            "content": _body(operation.takes),
        }
    return found


def _body(takes: Any) -> dict[str, Any]:
    if takes == "form":
        return {"multipart/form-data": {"schema": FORM}}
    return {"application/json": {"schema": _reference_to(takes)}}


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    in_path = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    return [
        *(
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in in_path
        ),
        *(
            {"name": name.removesuffix("_event"), "in": "query", "schema": QUERY[name]}
            for name in operation.query
        ),
    ]


def _reference_to(kind: Any) -> dict[str, str]:
    return {"$ref": TEMPLATE.format(name=kind.__name__)}
