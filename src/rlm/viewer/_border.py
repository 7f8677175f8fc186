"""Every request passes here: who asks, what is answered when something goes wrong, and headers."""

import logging

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from rlm._util.text import sendable
from rlm.errors import ConfigError
from rlm.viewer.guard import HEADERS, Doors
from rlm.viewer.library import Unknown
from rlm.viewer.shaping import without_paths
from rlm.viewer.work import Busy

__all__ = ["answer_of", "border", "shows_token", "with_headers"]

MOST_ERROR_CHARS = 1_000
SAFE_METHODS = frozenset({"GET", "HEAD"})
_log = logging.getLogger("rlm")


class Refused(ConfigError):
    """Somebody asks who may not."""


def border(doors: Doors) -> Middleware:
    """The middleware of one server."""

    @web.middleware
    async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            admit(request, doors)
            return await handler(request)
        except Refused as error:
            return _error(str(error), 403)
        except Unknown as error:
            return _error(str(error), 404)
        except Busy as error:
            return _error(str(error), 503)
        except ConfigError as error:
            return _error(str(error), 400)
        except web.HTTPException as error:
            return _error(_WORDS.get(error.status, error.reason), error.status)
        except Exception:  # noqa: BLE001 - the server's border: one bug must not end the others
            _log.exception("the viewer failed to answer a request")
            return _error("the viewer made a mistake here; its terminal says which", 500)

    return answered


_WORDS = {
    404: "there is nothing at this address",
    405: "this address can't be asked that way",
    413: "that is more than the viewer takes at once",
}


def admit(request: web.Request, doors: Doors) -> None:
    """Refused unless the request is for us, from us, and allowed to."""
    hosts = request.headers.getall("Host", [])
    if not doors.is_our_host(hosts):
        raise Refused(
            f"this viewer answers to localhost:{doors.port} and to the --host it was given; "
            f"forward a port under the same number ({doors.port})"
        )
    site = request.headers.get("Sec-Fetch-Site", "none")
    if request.path.startswith("/api/") and site not in {"same-origin", "none"}:
        raise Refused("pages of others may not ask this viewer anything")
    if doors.needs_token and not has_token(request, doors):
        raise Refused("open the address that `rlm view` printed: its token is needed here")
    if request.method not in SAFE_METHODS:
        if not doors.is_our_origin(request.headers.getall("Origin", []), hosts):
            raise Refused("only the viewer's own page may change something")
        if not doors.knows(request.headers.get("X-RLM-Token")):
            raise Refused("this page is of an earlier viewer: load it again")


def has_token(request: web.Request, doors: Doors) -> bool:
    """By the cookie that our page has, or as a program sends it, or in the printed address."""
    return doors.knows(request.cookies.get(doors.cookie)) or shows_token(request, doors)


def shows_token(request: web.Request, doors: Doors) -> bool:
    """Whether the request itself holds the token: only our page's address may have it."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and doors.knows(given.strip()):
        return True
    return request.path == "/" and doors.knows(request.query.get("token"))


# -- answers --------------------------------------------------------------------------------------


def answer_of(value: object, status: int = 200) -> web.Response:
    """A value as JSON; lone surrogates, which JSON can't hold, are replaced."""
    try:
        body = msgspec.json.encode(value)
    except UnicodeEncodeError:
        body = msgspec.json.encode(_sendable(value))
    return web.Response(body=body, status=status, content_type="application/json", charset="utf-8")


def _sendable(value: object) -> object:
    if isinstance(value, str):
        return sendable(value)
    if isinstance(value, dict):
        return {sendable(str(key)): _sendable(item) for key, item in value.items()}
    return [_sendable(item) for item in value] if isinstance(value, list | tuple) else value


def _error(text: str, status: int) -> web.Response:
    return answer_of({"error": without_paths(text)[:MOST_ERROR_CHARS]}, status)


async def with_headers(request: web.Request, response: web.StreamResponse) -> None:
    """On everything that leaves, errors and streams included."""
    for name, value in HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("Cache-Control", "no-store")
