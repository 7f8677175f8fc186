"""Say in one line why a place can't be read, and what to do next; never with a secret.

Each store's library has its own error classes, so errors are distinguished by the names of their
classes and by their HTTP status, without importing any library.
"""

import re
import socket
from collections.abc import Iterator

from rlm._util.distribution import install_command
from rlm._util.secret_values import SHORTEST_SECRET_CHARS, secrets_of_the_environment
from rlm.data.filesystem.opening import display_path
from rlm.data.places.addresses import Place
from rlm.errors import ConfigError

__all__ = ["is_transient", "not_installed", "problem"]

MAX_WORDS_CHARS = 200
_HIDDEN = "…"
_CREDENTIALS = {
    "s3": "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS",
    "az": "set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and "
    "AZURE_STORAGE_ACCOUNT_KEY",
    "hf": "set HF_TOKEN, or run `hf auth login`",
    "https": "use a signed address or one with https://user:password@",
    "http": "use a signed address or one with http://user:password@",
}
_WHAT = {"s3": "bucket", "gs": "bucket", "az": "container", "hf": "dataset or repository"}

_NO_CREDENTIALS = frozenset(
    (
        *("NoCredentialsError", "PartialCredentialsError", "NoAuthTokenError", "ProfileNotFound"),
        *("TokenRetrievalError", "SSOTokenLoadError", "UnauthorizedSSOTokenError"),
        *("DefaultCredentialsError", "RefreshError", "CredentialUnavailableError"),
        *("LocalTokenNotFoundError", "MissingAccount"),
    )
)
_NO_CONTAINER = frozenset(("NoSuchBucket", "ContainerNotFound", "RepositoryNotFoundError"))
_UNREACHABLE = frozenset(
    (
        *("EndpointConnectionError", "ConnectTimeoutError", "ConnectionError", "ConnectError"),
        *("ClientConnectorError", "ServiceRequestError", "ConnectTimeout", "ProxyConnectionError"),
        *("ServerTimeoutError", "TimeoutError", "ReadTimeout", "ReadTimeoutError"),
    )
)
_CUT = frozenset(
    (
        *("ClientPayloadError", "ContentLengthError", "TransferEncodingError", "IncompleteRead"),
        *("IncompleteReadError", "IncompleteBody", "ResponseStreamingError"),
    )
)
"""Errors that mean less arrived than was announced."""
_TRANSIENT = (
    _UNREACHABLE
    | _CUT
    | {
        *("ClientConnectionError", "ConnectionClosedError", "HTTPClientError", "TransportError"),
        *("ServiceResponseError", "ProtocolError", "RequestRateTooLarge"),
    }
)
_TRANSIENT_STATUSES = frozenset((408, 425, 429, 500, 502, 503, 504))
_QUERY = re.compile(r"\?[^\s\"'<>)]+")
_USER = re.compile(r"//[^/\s@]+@")


def problem(place: Place, error: BaseException) -> ConfigError:
    """Return the error that users see for an error of a library."""
    if isinstance(error, ConfigError):
        return error
    shown, status, names = place.shown, _status_of(error), _names(error)
    access = _CREDENTIALS[place.scheme]
    if names & _NO_CREDENTIALS:
        return ConfigError(f"no credentials for {shown}: {access}")
    is_gated = "GatedRepoError" in names
    if names & _NO_CONTAINER and place.scheme in _WHAT and not is_gated:
        what, name = _WHAT[place.scheme], _container(place)
        private = "" if place.scheme != "hf" else f"; if it is private, {access}"
        return ConfigError(f"no such {what}: {name!r}; check the name{private}")
    if isinstance(error, PermissionError) or status in (401, 403) or is_gated:
        return ConfigError(f"no permission to read {shown}: ask for it, or {access}")
    if isinstance(error, FileNotFoundError) or status in (404, 410):
        return ConfigError(f"nothing found at {shown}; check the address")
    if names & _UNREACHABLE or _is_lookup(error):
        return ConfigError(
            f"{shown} can't be reached ({_words(place, error)}); check the network and the address"
        )
    if status is None and names & _CUT:
        return ConfigError(
            f"the connection to {shown} ended before all data had arrived; try again later"
        )
    if status in _TRANSIENT_STATUSES:
        return ConfigError(f"{shown} responded with status {status}; try again later")
    return ConfigError(f"{shown} can't be read: {_words(place, error)}")


def not_installed(place: Place, error: ImportError) -> ConfigError:
    """Return the error for a library that is missing, or broken."""
    missing = isinstance(error, ModuleNotFoundError)
    why = "" if missing else f" ({_words(place, error)})"
    return ConfigError(f"to read {place.scheme}:// addresses, {install_command(place.scheme)}{why}")


def is_transient(error: BaseException) -> bool:
    """Return whether the same request may succeed a moment later."""
    status = _status_of(error)
    if status is not None:
        return status in _TRANSIENT_STATUSES
    return bool(_names(error) & _TRANSIENT) or _is_lookup(error)


def _is_lookup(error: BaseException) -> bool:
    return any(isinstance(each, socket.gaierror) for each in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def _names(error: BaseException) -> set[str]:
    """Return the names of the classes of an error and its causes, and the codes of servers."""
    names: set[str] = set()
    for each in _chain(error):
        names |= {kind.__name__ for kind in type(each).__mro__}
        for code in map(vars(each).get, ("error_code", "code")):
            names |= {str(getattr(code, "value", code))} if code is not None else set()
    return names


def _status_of(error: BaseException) -> int | None:
    """Return the HTTP status that an error, or one of its causes, is about."""
    for each in _chain(error):
        if type(each).__name__ in _CUT:
            continue  # aiohttp uses code 400 for its own errors about a response.
        facts = vars(each)  # Not `getattr`: properties may run code.
        response = facts.get("response")
        if isinstance(response, dict):  # botocore
            response = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        else:
            response = getattr(response, "status_code", None)
        for status in (response, *map(facts.get, ("status", "status_code", "code"))):
            if isinstance(status, int) and 100 <= status <= 599:
                return status
    return None


def _container(place: Place) -> str:
    parts = place.path.split("/")
    kinds = ("datasets", "spaces", "models", "buckets")
    found = parts[1:3] if parts[0] in kinds else parts[:2]
    return display_path("/".join(found if place.scheme == "hf" else parts[:1]))


def _words(place: Place, error: BaseException) -> str:
    """Return what a library said, without anything secret, on one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    known = [each for each in secrets_of_the_environment() if len(each) >= SHORTEST_SECRET_CHARS]
    for secret in sorted({*place.secrets, *known}, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    text = _USER.sub(f"//{_HIDDEN}@", _QUERY.sub(f"?{_HIDDEN}", text))
    return display_path(text[:MAX_WORDS_CHARS])
