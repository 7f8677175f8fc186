"""What all addresses share: JSON out, who asks, which page of a list."""

from starlette.requests import Request

from rlm.server.errors import bad_request
from rlm.server.tokens import Token

__all__ = ["MOST_WANTED", "USUALLY_LISTED", "page_of", "who"]

MOST_LISTED = 100
MOST_WANTED = 10_000
"""OpenAI's clients may ask for so many; pages are smaller than that."""

USUALLY_LISTED = 20


def who(request: Request) -> Token:
    """Whose token the border has found."""
    token: Token = request.state.token
    return token


def page_of(request: Request) -> tuple[int, str | None]:
    """How many of a list are wanted, and after which."""
    text = request.query_params.get("limit", str(USUALLY_LISTED))
    is_number = text.isascii() and text.isdecimal() and len(text) < 10
    if not is_number or not 0 < int(text) <= MOST_WANTED:
        raise bad_request(f"limit must be a whole number from 1 to {MOST_WANTED:,}", "limit")
    return min(int(text), MOST_LISTED), request.query_params.get("after") or None
