"""The addresses that answer questions: chat completions, responses, models."""

import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from rlm.server.asked import Asked, of_chat
from rlm.server.bodies import decoded
from rlm.server.border import error_of
from rlm.server.completions import ChatWriter, completion_of
from rlm.server.engines import unknown_model
from rlm.server.jobs import Job
from rlm.server.planning import Plan
from rlm.server.replies import ModelList, ModelObject
from rlm.server.requests import ChatRequest
from rlm.server.response_requests import ResponsesRequest, of_responses
from rlm.server.responses import ResponsesWriter, response_of
from rlm.server.service import Service
from rlm.server.streams import EventStream, Writer, told, while_connected
from rlm.server.web import answer, who

__all__ = ["AnswerRoutes"]


class AnswerRoutes:
    """One method an address."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._settings = service.settings
        self._started = int(time.time())

    async def chat(self, request: Request) -> ASGIApp:
        body = await decoded(request, self._settings, ChatRequest)
        job = await self._job(request, of_chat(body))
        if body.stream:
            options = body.stream_options
            writer = ChatWriter(body.model, include_usage=bool(options and options.include_usage))
            return self._stream(job, writer)
        try:
            outcome = await while_connected(request.receive, job.outcome())
            return answer(completion_of(body.model, outcome))
        finally:
            await job.leave()

    async def responses(self, request: Request) -> ASGIApp:
        body = await decoded(request, self._settings, ResponsesRequest)
        job = await self._job(request, of_responses(body))
        if body.stream:
            return self._stream(job, ResponsesWriter(body))
        try:
            outcome = await while_connected(request.receive, job.outcome())
            return answer(response_of(body, outcome))
        finally:
            await job.leave()

    async def _job(self, request: Request, asked: Asked) -> Job:
        token = who(request)

        def check(plan: Plan) -> None:
            if asked.rlm.run_id is not None:
                self._service.runs.claim(asked.rlm.run_id, token, asked.model)

        return await self._service.jobs.start(asked, token, request.receive, check)

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
        return answer(ModelList([self._model(name) for name in self._allowed(request)]))

    async def model(self, request: Request) -> Response:
        name = request.path_params["model"]
        if name not in self._allowed(request):
            raise unknown_model(name)
        return answer(self._model(name))
