"""Every address and method: what it takes and what it answers; the OpenAPI document says so."""

from typing import Any

from msgspec import Struct, field

from rlm.server.replies import (
    Completion,
    Deleted,
    FileList,
    FileObject,
    Health,
    ModelList,
    ModelObject,
    RunList,
    RunObject,
)
from rlm.server.requests import ChatRequest, ResumeRequest, RunRequest
from rlm.server.response_requests import ResponsesRequest
from rlm.server.responses import ResponseObject

__all__ = ["EVENTS", "OPERATIONS", "Operation"]

EVENTS: dict[str, Any] = {"text/event-stream": {}}


class Operation(Struct, frozen=True, kw_only=True):
    """One address and method: what it takes, and what it answers if all is well."""

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
        summary="The same, in the form of OpenAI's responses.",
        takes=ResponsesRequest,
        answers=ResponseObject,
        streams=True,
    ),
    Operation(
        method="get",
        path="/v1/models",
        name="listModels",
        summary="Every model that may be asked for.",
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
        summary="The files of this token, the newest first.",
        answers=FileList,
        query=("limit", "after", "purpose"),
    ),
    Operation(
        method="post",
        path="/v1/files",
        name="uploadFile",
        summary="Upload a file to be a context.",
        takes="form",
        answers=FileObject,
    ),
    Operation(
        method="get",
        path="/v1/files/{file_id}",
        name="getFile",
        summary="What is known of a file.",
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
        summary="The background runs of this token, the newest first.",
        answers=RunList,
        query=("limit", "after"),
    ),
    Operation(
        method="post",
        path="/v1/runs",
        name="createRun",
        summary="Begin a run that goes on without a connection.",
        takes=RunRequest,
        answers=RunObject,
        status="202",
    ),
    Operation(
        method="get",
        path="/v1/runs/{run_id}",
        name="getRun",
        summary="How a run stands, and its answer.",
        answers=RunObject,
    ),
    Operation(
        method="get",
        path="/v1/runs/{run_id}/events",
        name="streamRunEvents",
        summary="Every event of a run; Last-Event-ID goes on behind one.",
        content=EVENTS,
        query=("after_event",),
    ),
    Operation(
        method="post",
        path="/v1/runs/{run_id}/cancel",
        name="cancelRun",
        summary="End a run now, with the best answer it has.",
        answers=RunObject,
    ),
    Operation(
        method="post",
        path="/v1/runs/{run_id}/resume",
        name="resumeRun",
        summary="Go on with a run that was interrupted, or that ended at a limit.",
        takes=ResumeRequest,
        optional=True,
        answers=RunObject,
        status="202",
    ),
    Operation(
        method="get",
        path="/health",
        name="getHealth",
        summary="Whether the server takes requests.",
        answers=Health,
    ),
    Operation(
        method="get",
        path="/metrics",
        name="getMetrics",
        summary="Figures for Prometheus.",
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
