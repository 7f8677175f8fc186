"""One pooled HTTP client per event loop, and the meaning of its failures.

Only this module decides whether a failure is worth retrying and whether it may have been billed.
aiohttp is imported on first use. Redirects are not followed, so that keys stay with their host.
"""

import asyncio
import re
import threading
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from io import BytesIO
from ipaddress import ip_address
from json import dumps
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import SplitResult, parse_qsl, quote, quote_plus, unquote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from rlm._util.loop_end import LoopEnd, at_loop_end
from rlm._util.off_loop import LONG_CHARS, off_loop
from rlm.clients._eventstream import FrameReader, is_framed
from rlm.clients._fields import parse
from rlm.errors import ConfigError, ModelError

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Endpoint", "checked_url"]

LARGEST_RESPONSE_BYTES = 64 * 1024**2
LARGEST_ERROR_BYTES = 64 * 1024
SHOWN_CHARS = 300
DEEPEST_ERROR = 6
SHORTEST_TIMEOUT_SECONDS = 0.001
"""For aiohttp, 0 means no timeout at all."""

DRAIN_SECONDS = 0.5
SHORTEST_SECRET_CHARS = 8
MAX_SECRETS = 1_000
BEARER = {"Authorization": "Bearer "}
RETRYABLE = frozenset({408, 409, 429})

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SECONDS = re.compile(r"\d{1,9}(\.\d+)?")


@dataclass
class _Progress:
    """How far a request got: once its headers are out, the provider may bill it."""

    sent: bool = False


class _Signer(Protocol):
    """Authorizes each request. Its `secrets` appear in no error."""

    @property
    def secrets(self) -> tuple[str, ...]: ...

    def sign(self, url: str, body: bytes) -> dict[str, str]: ...


class Endpoint:
    """Sends POST requests to one base URL. Advice names `key_variable`, never the key itself.

    `url_variable` is the variable that the base URL comes from, if any.

    `auth` holds the headers for the key, each with the text before it: {"x-api-key": ""}. `fixed`
    holds headers of the dialect; the user's `headers` override them, and may hold secrets, as may
    the values of `query`, which is added to every address. A `signer` replaces the key.
    """

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        *,
        api_key: str | None,
        key_variable: str,
        url_variable: str | None = None,
        auth: Mapping[str, str] = BEARER,
        fixed: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        signer: _Signer | None = None,
    ) -> None:
        parts = checked_url(base_url, url_variable)
        if api_key and parts.password:
            raise ConfigError("pass either a key or a password in the base URL, not both")
        self.base_url = base_url.rstrip("/")
        hostname = self._hostname = parts.hostname or ""
        self.host = hostname if parts.port is None else f"{hostname}:{parts.port}"
        self.key_variable = key_variable
        self._named_url = url_variable or "the base URL"
        self._source = f", the address in {url_variable}" if url_variable else ""
        self._query = dict(query or {})
        self._headers = {"Content-Type": "application/json", **(fixed or {}), **headers}
        key = (api_key or "").strip()
        if key:
            self._headers |= {name: before + key for name, before in auth.items()}
        _check_headers(self._headers)
        self._signer = signer
        self._secrets: list[str] = []
        self._hide((key, *(signer.secrets if signer else ())))
        self._hide(_secrets_in(parts))
        self._hide_long((*headers.values(), *self._query.values()))
        self._proxy = _proxy(parts.scheme, hostname)
        self._pool = _Pool()

    def __repr__(self) -> str:
        return f"Endpoint({self.host!r})"

    @asynccontextmanager
    async def post(
        self,
        path: str,
        body: bytes,
        *,
        model: str,
        timeout_seconds: float,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator["Response", None]:
        """Return an accepted response to read from; every failure is raised as a ModelError.

        `headers` and `query` are added to those of all requests.
        """
        import aiohttp
        from yarl import URL

        _check_headers(headers or {})
        self._hide_long((*(headers or {}).values(), *(query or {}).values()))
        session = await self._pool.session()
        progress = _Progress()
        url = self.base_url + _with_query(path, {**self._query, **(query or {})})
        signed: dict[str, str] = {}
        if (signer := self._signer) is not None:
            signed = await off_loop(len(body), lambda: signer.sign(url, body))
        try:
            async with session.post(
                URL(url, encoded=self._signer is not None),  # a signature is for these exact bytes
                data=body if len(body) <= LONG_CHARS else BytesIO(body),  # It is sent in pieces.
                headers={**self._headers, **(headers or {}), **signed},
                allow_redirects=False,
                proxy=self._proxy,
                timeout=aiohttp.ClientTimeout(total=max(timeout_seconds, SHORTEST_TIMEOUT_SECONDS)),
                trace_request_ctx=progress,
            ) as response:
                if not HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
                    raise await self._refused(response, model)
                yield Response(response, self, model)
        except (aiohttp.ClientError, OSError) as error:
            # `from None`: an aiohttp error may hold the request's headers, including the key
            raise self._failed(error, model, progress, timeout_seconds) from None

    async def close(self) -> None:
        await self._pool.close()

    # -- what failures mean ------------------------------------------------------------------

    def error(self, model: str, status: int, payload: Any, **facts: Any) -> ModelError:
        """Return the provider's refusal as one line: model, status, its message, what to do."""
        said = self._public(_provider_message(payload))
        advice = self._advice(status)
        if not advice and not said:
            advice = "check the request's options"
        text = ": ".join(filter(None, (f"{model}: HTTP {status} from {self.host}", said)))
        return ModelError(
            "; ".join(filter(None, (text, advice))),
            status=status,
            **{"retryable": status in RETRYABLE or status >= 500, **facts},
        )

    def broken(self, model: str, what: str, *, retryable: bool = True) -> ModelError:
        """Return the error for an accepted request with an unusable reply, which may be billed."""
        return ModelError(
            f"{model}: {self._public(what)} (from {self.host}); "
            f"if this persists, check {self._named_url} and the server's log",
            retryable=retryable,
            ambiguous=True,
        )

    async def _refused(self, response: "aiohttp.ClientResponse", model: str) -> ModelError:
        import aiohttp

        try:
            data = await response.content.read(LARGEST_ERROR_BYTES)
        except (aiohttp.ClientError, OSError):
            data = b""
        try:
            payload = parse(data)
        except ValueError:
            payload = data.decode("utf-8", "replace")
        if 300 <= response.status < 400:
            payload = f"redirected to {response.headers.get('Location', '?').partition('?')[0]}"
        wait = _wait_asked_for(response.headers, payload)
        return self.error(model, response.status, payload, retry_after_seconds=wait)

    def _failed(
        self, error: Exception, model: str, progress: _Progress, timeout_seconds: float
    ) -> ModelError:
        import aiohttp

        if isinstance(error, aiohttp.InvalidURL):
            return ModelError(f"{model}: {self._named_url} is not valid; check its host and port")
        if isinstance(error, aiohttp.ClientSSLError):
            reason = "the TLS connection can't be trusted: check the address and its certificate"
            return ModelError(f"{model}: {self.host}{self._source}: {reason}")
        if isinstance(error, TimeoutError):
            where = "answer" if progress.sent else "connection"
            source = "" if progress.sent else self._source
            reason = f"no {where} from {self.host}{source} within {timeout_seconds:g} s"
            reason += "; is it overloaded?"
        elif progress.sent:
            reason = f"the connection to {self.host} was lost ({type(error).__name__})"
            reason += "; the request may have been billed"
        else:
            detail = self._public(getattr(error, "strerror", None) or type(error).__name__)
            reason = f"can't connect to {self.host} ({detail}){self._source}"
            reason += f"; {_what_to_check(self._hostname)}"
        late = isinstance(error, TimeoutError)
        return ModelError(
            f"{model}: {reason}", retryable=True, ambiguous=progress.sent, timed_out=late
        )

    def _advice(self, status: int) -> str:
        """Return what to do about a status; empty where only the server's message can tell."""
        if 300 <= status < 400:
            return f"redirects are not followed: set {self._named_url} to where the server is"
        if status >= 500:
            return "the provider is having problems: try again later"
        return {
            401: f"check the key in {self.key_variable}",
            403: f"check that the key in {self.key_variable} may use this model",
            404: f"check the model name and {self._named_url} ({self.host})",
            429: "wait, lower max_concurrent_calls, or check the account's quota",
        }.get(status, "try again" if status in RETRYABLE else "")

    def _hide_long(self, values: Iterable[Any]) -> None:
        """Hide values of headers and queries, which may be keys, unless they are short."""
        self._hide(text for text in map(str, values) if len(text) >= SHORTEST_SECRET_CHARS)

    def _hide(self, secrets: Iterable[str]) -> None:
        """Hide secrets from messages, in the forms in which a server may repeat them."""
        forms = {form for secret in secrets if secret for form in _forms(secret)}
        new = forms.difference(self._secrets)
        if new and len(self._secrets) < MAX_SECRETS:
            self._secrets = sorted({*self._secrets, *new}, key=len)[::-1]

    def _public(self, text: str) -> str:
        """Return one short line without secrets, which are removed before the text is cut."""
        for secret in self._secrets:
            text = text.replace(secret, "[secret]")
        text = " ".join(_CONTROL.sub(" ", text).split())
        return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"


def checked_url(base_url: str, variable: str | None = None) -> SplitResult:
    """Return the parts of a base URL; raise ConfigError if no request can be sent there.

    `variable` is the variable that it comes from, if any.
    """
    try:
        parts = urlsplit(base_url)
        base_url.encode()
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # unmatched brackets, a port that is not a number, a lone surrogate
        is_good = False
    if not is_good or _CONTROL.search(base_url) or " " in base_url:
        raise ConfigError(
            f"{variable or 'the base URL'} must start with http:// or https:// and name a host, "
            "as in http://localhost:8000/v1"
        )
    return parts


def _secrets_in(parts: SplitResult) -> set[str]:
    """Return what may be secret in a URL: a password, a user that is a token, a query."""
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    found = {password, b64encode(f"{user}:{password}".encode()).decode() if password else ""}
    values = (user if not password else "", *(value for _, value in parse_qsl(parts.query)))
    return found | {value for value in values if len(value) >= SHORTEST_SECRET_CHARS}


def _forms(secret: str) -> set[str]:
    """Return a secret as it is, and as encoded in URLs, JSON and Base64."""
    data = secret.encode("utf-8", "replace")
    encoded = {b64encode(data).decode()} if len(secret) >= SHORTEST_SECRET_CHARS else set()
    return {secret, quote(data, safe=""), quote_plus(data), dumps(secret)[1:-1], *encoded}


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ConfigError(f"the value of the header {name!r} must be a string")
        if _CONTROL.search(name + value):
            raise ConfigError(f"the header {name!r} contains a line break or a control character")


def _with_query(path: str, query: Mapping[str, Any]) -> str:
    """Return the path with more parameters; it may already have some."""
    if not query:
        return path
    return f"{path}{'&' if '?' in path else '?'}{urlencode(query, doseq=True)}"


class Response:
    """An accepted response, read with a limit on its size."""

    def __init__(self, response: "aiohttp.ClientResponse", endpoint: Endpoint, model: str) -> None:
        self._response = response
        self._endpoint = endpoint
        self._model = model
        self.is_json = response.content_type == "application/json"

    async def chunks(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._response.content.iter_any():
            size += len(chunk)
            if size > LARGEST_RESPONSE_BYTES:
                what = f"the response is larger than {LARGEST_RESPONSE_BYTES >> 20} MiB"
                raise self._endpoint.broken(self._model, what, retryable=False)
            yield chunk

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    async def drain(self) -> None:
        """Read what follows the last event, so that the connection can be reused."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                async for _ in self.chunks():
                    pass

    async def events(self) -> AsyncGenerator[str, None]:
        """Yield the data of an event stream; in every dialect, each data line is one event.

        AWS sends frames instead of lines; their first byte shows it.
        """
        chunks = self.chunks()
        start = await anext(chunks, b"")
        if is_framed(start):
            async for data in self._frames(start, chunks):
                yield data
            return
        async for line in _lines(start, chunks):
            if line.startswith("data:") and (data := line.removeprefix("data:").strip()):
                yield data

    async def _frames(self, start: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
        reader = FrameReader()
        try:
            for data in reader.add(start):
                yield data
            async for chunk in chunks:
                for data in reader.add(chunk):
                    yield data
        except ValueError as error:
            raise self._endpoint.broken(self._model, str(error)) from None


async def _lines(start: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Yield whole lines, so that no character is decoded in two halves."""
    *lines, rest = start.split(b"\n")
    for line in lines:
        yield line.decode("utf-8", "replace").rstrip("\r")
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace").rstrip("\r")
    yield rest.decode("utf-8", "replace")


class _Pool:
    """One session per event loop, created on first use."""

    def __init__(self) -> None:
        self._sessions: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}
        self._ends: dict[asyncio.AbstractEventLoop, LoopEnd] = {}
        self._lock = threading.Lock()

    async def session(self) -> "aiohttp.ClientSession":
        loop = asyncio.get_running_loop()
        with self._lock:
            ended = [self._sessions.pop(each) for each in list(self._sessions) if each.is_closed()]
            self._ends = {each: end for each, end in self._ends.items() if not each.is_closed()}
            session, is_new = self._sessions.get(loop), False
            if session is None or session.closed:
                session, is_new = _new_session(), True
                self._sessions[loop] = session
        for each in ended:
            await each.close()
        if is_new:
            self._ends[loop] = await at_loop_end(session.close)
        return session

    async def close(self) -> None:
        """Close every session, each on its own loop if that is still running."""
        here = asyncio.get_running_loop()
        with self._lock:
            sessions, self._sessions = self._sessions, {}
            ends, self._ends = self._ends, {}
        for loop, session in sessions.items():
            if loop is not here and loop.is_running():
                closed = asyncio.run_coroutine_threadsafe(_close(session, ends.get(loop)), loop)
                await asyncio.wrap_future(closed)
            else:
                await _close(session, ends.get(loop))


async def _close(session: "aiohttp.ClientSession", end: LoopEnd | None) -> None:
    await session.close()
    if end is not None:
        await end.aclose()


def _new_session() -> "aiohttp.ClientSession":
    """Create a session without cookies or connection limits: the scheduler limits requests."""
    import aiohttp

    async def note_sent(_session: Any, context: Any, _params: Any) -> None:
        context.trace_request_ctx.sent = True

    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(note_sent)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        trace_configs=[trace],
    )


def _proxy(scheme: str, host: str) -> str | None:
    """Return the proxy that the environment names for a host; None if that is this machine."""
    if host in {"localhost", "::1"} or host.startswith("127.") or proxy_bypass(host):
        return None
    return getproxies().get(scheme)


def _provider_message(payload: Any) -> str:
    """Return the readable part of an error body, in any of the forms that servers really send."""
    for _ in range(DEEPEST_ERROR):
        if isinstance(payload, Mapping):
            names = ("error", "message", "detail", "msg")
            payload = next((payload[name] for name in names if payload.get(name)), "")
        elif isinstance(payload, list) and payload:
            payload = payload[0]
    return payload if isinstance(payload, str) else ""


def _wait_asked_for(headers: Mapping[str, str], payload: Any) -> float | None:
    """Return the seconds the server wants us to wait; None if it says nothing usable."""
    milliseconds = headers.get("retry-after-ms", "").strip()
    if _SECONDS.fullmatch(milliseconds):
        return float(milliseconds) / 1000
    return _retry_after(headers.get("Retry-After") or _google_delay(payload))


def _what_to_check(hostname: str) -> str:
    """Return what may be wrong if nothing answers: a server of the user's, or the way to a host."""
    try:
        is_near = not ip_address(hostname).is_global
    except ValueError:  # a name; those without a dot are of this machine or its network
        is_near = "." not in hostname or hostname.endswith((".local", ".internal", ".lan"))
    if is_near:
        return "is the server running there?"
    return "check the address, and this machine's network, DNS and proxy"


def _google_delay(payload: Any) -> str | None:
    """Read `{"error": {"details": [{"retryDelay": "34s"}]}}`, also as the only item of a list."""
    payload = payload[0] if isinstance(payload, list) and payload else payload
    error = payload.get("error") if isinstance(payload, Mapping) else None
    details = error.get("details") if isinstance(error, Mapping) else None
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, Mapping) else None
        if isinstance(delay, str) and delay.endswith("s"):
            return delay[:-1]
    return None


def _retry_after(value: str | None) -> float | None:
    """Return the seconds to wait, from either form of the header."""
    if value is None:
        return None
    if _SECONDS.fullmatch(value.strip()):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
