"""Errors in the form that OpenAI's clients expect: a status, and one form of body.

They reveal nothing about the host: no path, no address, no traceback. The operator's log has more.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from rlm._util.text import sendable
from rlm.errors import CallRefused, ConfigError, ModelError, RLMError, UnknownPriceError
from rlm.records.recorders.console import one_line
from rlm.web.responses import STATUS_MESSAGES, json_response, without_paths

__all__ = [
    "ApiError",
    "Closing",
    "api_error",
    "bad_request",
    "error_of",
    "error_response",
    "not_found",
    "too_large",
    "too_many",
    "unavailable",
]

log = logging.getLogger("rlm.server")
MAX_MESSAGE_CHARS = 2_000
TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class ApiError(Exception):
    """A request that is answered with an error. `param` names the field that is wrong."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = sendable(message)[:MAX_MESSAGE_CHARS]
        self.param = param if param is None else sendable(param)
        self.code = code
        usual = "server_error" if status >= 500 else "invalid_request_error"
        self.kind = kind or TYPES.get(status, usual)
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        error = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}


class Closing(ApiError):
    """The server is shutting down; another one, or this one later, will answer."""

    def __init__(self) -> None:
        super().__init__(
            503,
            "the server is shutting down; try again in a moment",
            code="shutting_down",
            headers={"Retry-After": "2"},
        )


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


def not_found(message: str, param: str | None = None, code: str = "not_found") -> ApiError:
    return ApiError(404, message, param=param, code=code)


def too_large(message: str) -> ApiError:
    return ApiError(413, message, code="request_too_large")


def too_many(
    message: str, code: str, retry_after_seconds: int, kind: str | None = None
) -> ApiError:
    headers = {"Retry-After": str(max(1, retry_after_seconds))}
    return ApiError(429, message, code=code, kind=kind, headers=headers)


def unavailable(message: str, code: str, retry_after_seconds: int = 1) -> ApiError:
    headers = {"Retry-After": str(max(1, retry_after_seconds))}
    return ApiError(503, message, code=code, headers=headers)


def api_error(error: RLMError) -> ApiError:
    """Convert an error of the engine to one that clients may see."""
    if isinstance(error, UnknownPriceError):
        return bad_request(
            "the price of this model is unknown to the server, so it can't enforce max_cost_usd; "
            "use max_tokens instead",
            "rlm.limits.max_cost_usd",
            "unknown_price",
        )
    if isinstance(error, ConfigError):
        return bad_request(without_paths(str(error)))
    if isinstance(error, ModelError):
        return _of_model(error)
    if isinstance(error, CallRefused):
        return bad_request(str(error), code="limit_reached")
    return ApiError(500, "the run failed on the server; its log says why", code="run_failed")


def _of_model(error: ModelError) -> ApiError:
    """Pass on the message of the model's own server only if the client can act on it."""
    if error.status == 429:
        seconds = round(error.retry_after_seconds or 1)
        return too_many("the model's server is overloaded", "model_overloaded", seconds)
    if error.timed_out or error.status in {408, 504}:
        return ApiError(504, "the model did not answer in time", code="model_timeout")
    if error.status in {400, 404, 413, 422}:
        said = without_paths(str(error))
        return bad_request(f"the model refused the request: {said}", code="model_refused")
    return ApiError(
        502, "the request to the model failed; the server's log says why", code="model_failed"
    )


def error_of(error: BaseException) -> ApiError:
    """Return the error that a client sees, and log the rest."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return Closing()  # The server cancelled it: a client that has left gets no answer.
    if isinstance(error, HTTPException):
        message = STATUS_MESSAGES.get(error.status_code, error.detail)
        if error.status_code == 404:
            message = f"{message}; /openapi.json lists the addresses"
        return ApiError(error.status_code, message, headers=error.headers or {})
    if isinstance(error, RLMError):
        shown = api_error(error)
        if shown.status >= 500:
            log.warning("%s", one_line(f"{type(error).__name__}: {error}", 1_000))
        return shown
    log.error("a request failed", exc_info=error)
    return ApiError(500, "the server failed; its log says why", code="internal_error")


def error_response(error: Exception) -> Response:
    shown = error_of(error)
    response = json_response(shown.body(), shown.status)
    response.headers.update(shown.headers)
    return response
