"""The addresses that answer questions: chat completions, responses, models."""

import time
from collections.abc import Callable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from rlm.server.asked import Asked, of_chat
from rlm.server.completions import ChatWriter, completion_of
from rlm.server.engines import unknown_model
from rlm.server.errors import error_of
from rlm.server.jobs import Job
from rlm.server.replies import ModelList, ModelObject
from rlm.server.requests import ChatRequest
from rlm.server.response_requests import ResponsesRequest, of_responses
from rlm.server.responses import ResponsesWriter, response_of
from rlm.server.service import Service
from rlm.server.streams import Writer, told
from rlm.server.web import who
from rlm.web.events import EventStream, while_connected
from rlm.web.responses import json_response

__all__ = ["AnswerRoutes"]

Asking = TypeVar("Asking", ChatRequest, ResponsesRequest)


class AnswerRoutes:
    """One method an address."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._settings = service.settings
        self._started = int(time.time())

    async def chat(self, request: Request) -> ASGIApp:
        body, job = await self._begin(request, ChatRequest, of_chat)
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
        body, job = await self._begin(request, ResponsesRequest, of_responses)
        if body.stream:
            return self._stream(job, ResponsesWriter(body))
        try:
            outcome = await while_connected(request.receive, job.outcome())
            return json_response(response_of(body, outcome))
        finally:
            await job.leave()

    async def _begin(
        self, request: Request, kind: type[Asking], asked_of: Callable[[Asking], Asked]
    ) -> tuple[Asking, Job]:
        """Receive a request and start its job; what comes back of it is without its texts.

        A large body is read when the job has its place: until then it stays on disk.
        """
        service, token = self._service, who(request)
        async with service.bodies.arrived(request, token) as body:
            place = None
            if body.is_large:
                place = await while_connected(request.receive, service.admission.enter(token))
            try:
                sent = await body.read_as(kind)
                asked = asked_of(sent)
            except BaseException:
                if place is not None:
                    place.release()
                raise
            job = await service.jobs.start(asked, token, request.receive, service.runs.claim, place)
            if (share := body.keep()) is not None:
                job.plan.cleanup.callback(share.release)
            return sent.brief(), job

    def _stream(self, job: Job, writer: Writer) -> EventStream:
        beat = self._settings.heartbeat_seconds
        chunks = told(writer, job.outbox, job.task, beat, error_of)
        return EventStream(chunks, job.leave)

    # -- models ------------------------------------------------------------------------------

    def _model(self, name: str) -> ModelObject:
        return ModelObject(id=name, created=self._started)

    def _allowed(self, request: Request) -> list[str]:
        token, engines = who(request), self._service.engines
        return [name for name in engines.offered if token.allows(name, engines.named(name)[0])]

    async def models(self, request: Request) -> Response:
        return json_response(ModelList([self._model(name) for name in self._allowed(request)]))

    async def model(self, request: Request) -> Response:
        name = request.path_params["model"]
        if name not in self._allowed(request):
            raise unknown_model(name)
        return json_response(self._model(name))
