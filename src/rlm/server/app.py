"""Addresses to answers. What stands behind them is in the modules beside this one."""

from collections.abc import Awaitable, Callable

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from rlm.server.access import Access, RequestLog
from rlm.server.answer_routes import AnswerRoutes
from rlm.server.errors import error_response
from rlm.server.file_routes import FileRoutes
from rlm.server.own_routes import OwnRoutes
from rlm.server.run_routes import RunRoutes
from rlm.server.service import Service
from rlm.web.border import Border

__all__ = ["make_app"]


Endpoint = Callable[[Request], Awaitable[ASGIApp]]


def _route(path: str, **endpoints: Endpoint) -> Route:
    """One address with several methods: so whoever uses another one is told of all of them."""

    async def chosen(request: Request) -> ASGIApp:
        method = "GET" if request.method == "HEAD" else request.method
        return await endpoints[method](request)

    return Route(path, chosen, methods=list(endpoints))


def make_app(service: Service) -> ASGIApp:
    """The whole application; nothing of it is shared with another one."""
    asking, files = AnswerRoutes(service), FileRoutes(service)
    runs, own = RunRoutes(service), OwnRoutes(service)
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
        """The longest beginning of a path that is one of ours: labels must not be endless."""
        return max((each for each in known if path.startswith(each)), key=len, default="other")

    access = Access(service.settings, service.tokens, service.hosts)
    border = Border(Router(routes, redirect_slashes=False), access.admit, error_response)
    app: ASGIApp = RequestLog(border, service.metrics, route_of)
    if service.settings.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=list(service.settings.cors_origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Last-Event-ID"],
        )
    return app
