"""The routes of the server: its application, files, background runs, and status."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from msgspec import Raw
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from rlm._util.distribution import own_version
from rlm.server.access import Access, RequestLog, token_of
from rlm.server.answer_routes import AnswerRoutes
from rlm.server.bodies import decoded, limited
from rlm.server.conversation import limits_of
from rlm.server.errors import ApiError, bad_request, error_response, not_found
from rlm.server.files import StoredFile, Upload
from rlm.server.metrics import CONTENT_TYPE
from rlm.server.openapi import document
from rlm.server.replies import PURPOSES, Deleted, FileList, FileObject, Health, RunList
from rlm.server.requests import ResumeRequest, RunRequest, page_of
from rlm.server.run_events import events_of_run, position_of
from rlm.server.service import Service
from rlm.web.border import Border, path_of
from rlm.web.events import EventStream
from rlm.web.responses import json_response

__all__ = ["make_app"]

Endpoint = Callable[[Request], Awaitable[ASGIApp]]


def _route(path: str, **endpoints: Endpoint) -> Route:
    """Return one route for several methods, so that a 405 names all of them."""

    async def chosen(request: Request) -> ASGIApp:
        method = "GET" if request.method == "HEAD" else request.method
        return await endpoints[method](request)

    return Route(path, chosen, methods=list(endpoints))


def _nothing_but(known: set[str]) -> ASGIApp:
    """Return an application for all other paths; the usual mistake is an incomplete base URL."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        path = path_of(scope)
        if any(f"/v1{path}".startswith(each) for each in known if each.startswith("/v1/")):
            raise not_found("this address is below /v1: end the client's base URL in /v1")
        raise HTTPException(404)

    return answer


def make_app(service: Service) -> ASGIApp:
    """Return the whole application; it shares nothing with another one."""
    asking, files = AnswerRoutes(service), FileRoutes(service)
    runs, own = RunRoutes(service), StatusRoutes(service)
    routes = [
        Route("/v1/chat/completions", asking.chat, methods=["POST"]),
        Route("/v1/responses", asking.responses, methods=["POST"]),
        Route("/v1/models", asking.models, methods=["GET"]),
        Route("/v1/models/{model:path}", asking.model, methods=["GET"]),
        _route("/v1/files", GET=files.listed, POST=files.upload),
        _route("/v1/files/{file_id}", GET=files.file, DELETE=files.delete),
        Route("/v1/files/{file_id}/content", files.content, methods=["GET"]),
        _route("/v1/runs", GET=runs.listed, POST=runs.create),
        Route("/v1/runs/{run_id}", runs.run, methods=["GET"]),
        Route("/v1/runs/{run_id}/events", runs.events, methods=["GET"]),
        Route("/v1/runs/{run_id}/cancel", runs.cancel, methods=["POST"]),
        Route("/v1/runs/{run_id}/resume", runs.resume, methods=["POST"]),
        Route("/health", own.health, methods=["GET"]),
        Route("/metrics", own.metrics, methods=["GET"]),
        Route("/openapi.json", own.openapi, methods=["GET"]),
    ]
    known = {route.path.partition("{")[0].rstrip("/") for route in routes}

    def route_of(path: str) -> str:
        """Return the longest of our paths that a path begins with: labels must be few."""
        return max((each for each in known if path.startswith(each)), key=len, default="other")

    access = Access(service.settings, service.tokens, service.hosts)
    router = Router(routes, redirect_slashes=False, default=_nothing_but(known))
    border = Border(router, access.admit, error_response)
    app: ASGIApp = RequestLog(border, service.metrics, route_of)
    if service.settings.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=list(service.settings.cors_origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Last-Event-ID"],
        )
    return app


class RunRoutes:
    """One method per route of background runs."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._settings = service.settings

    async def create(self, request: Request) -> Response:
        token = token_of(request)
        self._service.admission.check(token)
        async with self._service.bodies.arrived(request, token) as body:
            order = await body.read_as(RunRequest)
            return json_response(await self._service.runs.create(order, token, body.keep), 202)

    async def listed(self, request: Request) -> Response:
        most, after = page_of(request)
        page, more = self._service.runs.listed(token_of(request), most, after)
        ids: list[str | None] = [*page] or [None]
        data: Any = [Raw(told) for told in page.values()]
        return json_response(RunList(data=data, has_more=more, first_id=ids[0], last_id=ids[-1]))

    async def run(self, request: Request) -> Response:
        return json_response(
            self._service.runs.get(request.path_params["run_id"], token_of(request))
        )

    async def events(self, request: Request) -> EventStream:
        run_id, token = request.path_params["run_id"], token_of(request)
        self._service.runs.get(run_id, token)
        seen = request.headers.get("last-event-id") or request.query_params.get("after")
        position = position_of(seen)
        chunks = events_of_run(self._service.runs, run_id, token, position, self._settings)
        return EventStream(chunks)

    async def cancel(self, request: Request) -> Response:
        run_id = request.path_params["run_id"]
        return json_response(await self._service.runs.cancel(run_id, token_of(request)))

    async def resume(self, request: Request) -> Response:
        run_id, limits = request.path_params["run_id"], None
        order = await decoded(request, self._settings, ResumeRequest)
        if order is not None:
            limits = order.limits
            limits_of(limits, self._settings.limits, "")  # an error even if the run has ended
        return json_response(
            await self._service.runs.resume(run_id, token_of(request), limits), 202
        )


class StatusRoutes:
    """One method per route about the server itself."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._document = document(service.engines, service.settings.limits, own_version())

    async def health(self, request: Request) -> Response:
        closing = self._service.closing
        state = Health(status="closing" if closing else "ok", version=own_version())
        return json_response(state, 503 if closing else 200)

    async def metrics(self, request: Request) -> Response:
        return Response(self._service.metrics.text(), media_type=CONTENT_TYPE)

    async def openapi(self, request: Request) -> Response:
        prefix = request.scope.get("root_path", "")
        servers = {"servers": [{"url": prefix}]} if prefix else {}
        return json_response({**self._document, **servers})


# -- /v1/files ------------------------------------------------------------------------------------

MULTIPART_OVERHEAD_BYTES = 1 << 20
MAX_FIELDS = 16
MAX_FIELD_BYTES = 10_000
SLOWER = 10
"""Files may take this many times longer to arrive than other bodies."""


class FileRoutes:
    """One method per route of files."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._settings = service.settings

    async def upload(self, request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "multipart/form-data":
            raise ApiError(
                415,
                "a file is uploaded as multipart/form-data, with the fields file and purpose",
                code="unsupported_media_type",
            )
        async with self._service.files.incoming(token_of(request)) as incoming:
            name, purpose = await self._received(request, incoming)
            days = self._settings.file_days
            kept = await asyncio.to_thread(incoming.keep, name, purpose, days)
        return json_response(_file(kept))

    async def _received(self, request: Request, incoming: Upload) -> tuple[str, str]:
        """Return the name and purpose of a file whose bytes have been written."""
        most = self._settings.max_file_bytes + MULTIPART_OVERHEAD_BYTES
        seconds = self._settings.body_seconds * SLOWER
        turn = self._service.bodies.turns.of(token_of(request))
        try:
            async with aclosing(limited(request, most, seconds, turn)) as chunks:
                form = await _Form(request.headers, chunks, incoming).parse()
        except (MultiPartException, ValueError, KeyError) as error:
            raise bad_request(f"the form can't be read: {error}", code="invalid_form") from None
        file, purpose = form.get("file"), form.get("purpose")
        if file is None or isinstance(file, str):
            raise bad_request("the form has no file", "file")
        if not isinstance(purpose, str) or purpose not in PURPOSES:
            raise bad_request(f"purpose must be one of {', '.join(PURPOSES)}", "purpose")
        return file.filename or "file", purpose

    async def listed(self, request: Request) -> Response:
        most, after = page_of(request)
        kept = self._service.files.listed(token_of(request))
        if purpose := request.query_params.get("purpose"):
            kept = [each for each in kept if each.purpose == purpose]
        ids = [each.id for each in kept]
        if after is not None and after not in ids:
            raise not_found("there is no file with the id in after", "after", "file_not_found")
        start = 0 if after is None else ids.index(after) + 1
        page = [_file(each) for each in kept[start : start + most]]
        return json_response(
            FileList(
                data=page,
                has_more=start + most < len(kept),
                first_id=page[0].id if page else None,
                last_id=page[-1].id if page else None,
            )
        )

    async def file(self, request: Request) -> Response:
        return json_response(
            _file(self._service.files.get(token_of(request), request.path_params["file_id"]))
        )

    async def content(self, request: Request) -> Response:
        path = self._service.files.data_of(token_of(request), request.path_params["file_id"])
        return FileResponse(path, media_type="application/octet-stream")

    async def delete(self, request: Request) -> Response:
        identity = request.path_params["file_id"]
        await self._service.files.delete(token_of(request), identity)
        return json_response(Deleted(id=identity, object="file"))


def _file(kept: StoredFile) -> FileObject:
    return FileObject(
        id=kept.id,
        bytes=kept.bytes,
        created_at=kept.created_at,
        filename=kept.filename,
        purpose=kept.purpose,
        expires_at=kept.expires_at,
    )


class _Form(MultiPartParser):
    """A form whose only file is counted and written to its final place."""

    def __init__(
        self, headers: Headers, chunks: AsyncGenerator[bytes, None], incoming: Upload
    ) -> None:
        super().__init__(
            headers, chunks, max_files=1, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD_BYTES
        )
        self._incoming = incoming

    def on_part_begin(self) -> None:
        self._charset = "utf-8"  # Another, which the client names, may take quadratic time.
        super().on_part_begin()

    def on_headers_finished(self) -> None:
        super().on_headers_finished()
        if (file := self._current_part.file) is not None:
            file.file.close()
            file.file = self._incoming.file

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._current_part.file is not None:
            self._incoming.expect(end - start)
        super().on_part_data(data, start, end)
