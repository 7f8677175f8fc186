"""What all addresses share: JSON out, who asks, which page of a list."""

from starlette.requests import Request
from starlette.responses import Response

from rlm.server.errors import bad_request
from rlm.server.replies import json_bytes
from rlm.server.tokens import Token

__all__ = ["answer", "page_of", "who"]

MOST_LISTED = 100
USUALLY_LISTED = 20


def answer(value: object, status: int = 200) -> Response:
    return Response(json_bytes(value), status, media_type="application/json")


def who(request: Request) -> Token:
    """Whose token the border has found."""
    token: Token = request.state.token
    return token


def page_of(request: Request) -> tuple[int, str | None]:
    """How many of a list are wanted, and after which."""
    text = request.query_params.get("limit", str(USUALLY_LISTED))
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0):
        raise bad_request("limit must be a whole number above 0", "limit")
    return min(int(text), MOST_LISTED), request.query_params.get("after")
