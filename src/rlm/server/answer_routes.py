"""The routes that answer questions: chat completions, responses, models."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from rlm.server.access import token_of
from rlm.server.answering import Outcome
from rlm.server.bodies import Body
from rlm.server.completions import ChatWriter, completion_of
from rlm.server.conversation import AnswerRequest, from_chat
from rlm.server.engines import unknown_model
from rlm.server.errors import ApiError, error_of
from rlm.server.jobs import Job
from rlm.server.progress import Outbox
from rlm.server.replies import ModelList, ModelObject
from rlm.server.requests import ChatRequest
from rlm.server.responses import ResponsesRequest, ResponsesWriter, from_responses, response_of
from rlm.server.service import Service
from rlm.server.tokens import Token
from rlm.web.events import HEARTBEAT, EventStream, while_connected
from rlm.web.responses import json_response

__all__ = ["AnswerRoutes", "Writer", "stream_events"]


class Writer(Protocol):
    """Writes a run as events of one dialect."""

    def begin(self) -> bytes: ...

    def progress(self, text: str) -> bytes: ...

    def content(self, text: str) -> bytes: ...

    def end(self, outcome: Outcome) -> bytes: ...

    def fail(self, error: ApiError) -> bytes: ...


async def stream_events(
    writer: Writer,
    outbox: Outbox,
    work: "asyncio.Task[Outcome]",
    heartbeat_seconds: float,
    error_of: Callable[[BaseException], ApiError],
) -> AsyncGenerator[bytes, None]:
    """Yield events while a run is in progress, then its ending."""
    work.add_done_callback(lambda _: outbox.wake())
    yield writer.begin()
    while not work.done():
        portion = await outbox.take(heartbeat_seconds)
        if portion is None:
            yield HEARTBEAT
        elif chunk := _written(writer, portion.progress, portion.content):
            yield chunk
    left = outbox.take_now()
    if chunk := _written(writer, left.progress, left.content):
        yield chunk
    failure = asyncio.CancelledError() if work.cancelled() else work.exception()
    yield writer.end(work.result()) if failure is None else writer.fail(error_of(failure))


def _written(writer: Writer, progress: str, content: str) -> bytes:
    chunk = writer.progress(progress) if progress else b""
    return chunk + (writer.content(content) if content else b"")


Asking = TypeVar("Asking", ChatRequest, ResponsesRequest)


class AnswerRoutes:
    """One method per route."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._settings = service.settings
        self._started = int(time.time())

    async def chat(self, request: Request) -> ASGIApp:
        body, job = await self._begin(request, ChatRequest, from_chat)
        if body.stream:
            options = body.stream_options
            writer = ChatWriter(body.model, include_usage=bool(options and options.include_usage))
            return self._stream(job, writer)
        try:
            outcome = await while_connected(request.receive, job.outcome())
            return json_response(completion_of(body.model, outcome))
        finally:
            await job.leave()

    async def responses(self, request: Request) -> ASGIApp:
        body, job = await self._begin(request, ResponsesRequest, from_responses)
        if body.stream:
            return self._stream(job, ResponsesWriter(body))
        try:
            outcome = await while_connected(request.receive, job.outcome())
            return json_response(response_of(body, outcome))
        finally:
            await job.leave()

    async def _begin(
        self, request: Request, kind: type[Asking], convert: Callable[[Asking], AnswerRequest]
    ) -> tuple[Asking, Job]:
        """Receive a request and start its job; return the request without its texts.

        It is planned when it has a slot. A large body is read only then; before, it stays on disk.
        """
        service, token = self._service, token_of(request)
        service.admission.check(token)  # Refuse floods before their bodies take time.
        async with service.bodies.arrived(request, token) as body:
            # Mistakes do not wait for a slot.
            read = None if body.is_large else await self._read(body, kind, convert, token)
            slot = await while_connected(request.receive, service.admission.enter(token))
            try:
                sent, wanted = read or await self._read(body, kind, convert, token)
                job = await service.jobs.start(
                    wanted, token, slot, request.receive, service.runs.claim
                )
            except BaseException:
                slot.release(has_run=False)
                raise
            if (share := body.keep()) is not None:
                job.plan.cleanup.callback(share.release)
            return sent.brief(), job

    async def _read(
        self,
        body: Body,
        kind: type[Asking],
        convert: Callable[[Asking], AnswerRequest],
        token: Token,
    ) -> tuple[Asking, AnswerRequest]:
        """Return a request as it was sent and as it is meant; ApiError if it is mistaken."""
        sent = await body.read_as(kind)
        wanted = convert(sent)
        self._service.planner.resolve(wanted, token)
        return sent, wanted

    def _stream(self, job: Job, writer: Writer) -> EventStream:
        beat = self._settings.heartbeat_seconds
        chunks = stream_events(writer, job.outbox, job.task, beat, error_of)
        return EventStream(chunks, job.leave)

    # -- models ------------------------------------------------------------------------------

    def _model(self, name: str) -> ModelObject:
        return ModelObject(id=name, created=self._started)

    def _allowed(self, request: Request) -> list[str]:
        token, engines = token_of(request), self._service.engines
        return [name for name in engines.offered if token.allows(name, engines.resolve(name)[0])]

    async def models(self, request: Request) -> Response:
        return json_response(ModelList([self._model(name) for name in self._allowed(request)]))

    async def model(self, request: Request) -> Response:
        name = request.path_params["model"]
        if name not in self._allowed(request):
            raise unknown_model(name)
        return json_response(self._model(name))
