"""What the server tells of itself: whether it is well, its figures, its interface."""

from importlib.metadata import PackageNotFoundError, version

from starlette.requests import Request
from starlette.responses import Response

from rlm.server.metrics import CONTENT_TYPE
from rlm.server.openapi import document
from rlm.server.replies import Health
from rlm.server.service import Service
from rlm.web.responses import json_response

__all__ = ["OwnRoutes"]


class OwnRoutes:
    """One method an address."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._document = document(service.engines, service.settings.limits, _version())

    async def health(self, request: Request) -> Response:
        closing = self._service.closing
        state = Health(status="closing" if closing else "ok", version=_version())
        return json_response(state, 503 if closing else 200)

    async def metrics(self, request: Request) -> Response:
        return Response(self._service.metrics.text(), media_type=CONTENT_TYPE)

    async def openapi(self, request: Request) -> Response:
        return json_response(self._document)


def _version() -> str:
    try:
        return version("rlm-engine")
    except PackageNotFoundError:
        return "unknown"
