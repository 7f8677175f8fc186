"""`/v1/runs`: runs that go on without a connection."""

from starlette.requests import Request
from starlette.responses import Response

from rlm.server.bodies import decoded
from rlm.server.replies import RunList
from rlm.server.requests import ResumeRequest, RunRequest
from rlm.server.run_events import events_of_run, place_of
from rlm.server.service import Service
from rlm.server.web import page_of, who
from rlm.web.events import EventStream
from rlm.web.responses import json_response

__all__ = ["RunRoutes"]


class RunRoutes:
    """One method an address."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._settings = service.settings

    async def create(self, request: Request) -> Response:
        token = who(request)
        async with self._service.bodies.arrived(request, token) as body:
            self._service.admission.check(token)
            asked = await body.read_as(RunRequest)
            return json_response(await self._service.runs.create(asked, token, body.keep), 202)

    async def listed(self, request: Request) -> Response:
        most, after = page_of(request)
        data, more = self._service.runs.listed(who(request), most, after)
        first, last = (data[0].id, data[-1].id) if data else (None, None)
        return json_response(RunList(data=data, has_more=more, first_id=first, last_id=last))

    async def run(self, request: Request) -> Response:
        return json_response(self._service.runs.get(request.path_params["run_id"], who(request)))

    async def events(self, request: Request) -> EventStream:
        run_id, token = request.path_params["run_id"], who(request)
        self._service.runs.get(run_id, token)
        seen = request.headers.get("last-event-id") or request.query_params.get("after")
        place = place_of(seen)
        chunks = events_of_run(self._service.runs, run_id, token, place, self._settings)
        return EventStream(chunks)

    async def cancel(self, request: Request) -> Response:
        run_id = request.path_params["run_id"]
        return json_response(await self._service.runs.cancel(run_id, who(request)))

    async def resume(self, request: Request) -> Response:
        run_id, limits = request.path_params["run_id"], None
        if request.headers.get("content-length", "0") != "0":
            limits = (await decoded(request, self._settings, ResumeRequest)).limits
        return json_response(await self._service.runs.resume(run_id, who(request), limits), 202)
