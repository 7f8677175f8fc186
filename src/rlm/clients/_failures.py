"""What other people's libraries raise, as the one error the engine understands; and no secrets.

Libraries differ in classes, but their errors carry the same facts under much the same names: a
status, a response with headers, a class name that says time-out or connection.
"""

import os
import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from rlm._util.distribution import install_command
from rlm.errors import ConfigError, ModelError

__all__ = ["imported", "model_error", "public_line"]

SHOWN_CHARS = 300
SHORTEST_SECRET_CHARS = 8
RETRYABLE = frozenset({408, 409, 429})
NEVER_SENT = re.compile(
    r"(Connect|ConnectionRefused|Proxy|PoolTimeout|NameResolution)(Error|Timeout)?$"
)
LATE_OR_LOST = re.compile(r"Timeout|TimedOut|Connection|Connect|Network|Disconnected|ReadError")
SECRET_NAME = re.compile(r".*(API_?KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL)S?$", re.IGNORECASE)
SECRET_SHAPE = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|ghp|AIza)[-_A-Za-z0-9]{16,}"
    r"|(?i:\bbearer\s+)[-._~+/=\w]{8,}"
    r"|(?<=://)[^/\s@]+(?=@)"
    r"|(?i:(?<=[?&]key=)|(?<=api_key=)|(?<=api-key: ))[^&\s'\"]+"
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]|\x1b\[[0-9;]*m")
_SECONDS = re.compile(r"\d{1,9}(\.\d+)?")


def imported(module: str, extra: str, wanted_by: str) -> Any:
    """A library on its first use; without it, the command that installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise ConfigError(
            f"{wanted_by} needs the package {error.name!r}: {install_command(extra)}"
        ) from None


def model_error(model: str, error: BaseException, secrets: Iterable[str] = ()) -> ModelError:
    """An error of a library in one line, with what it says about trying again and about billing."""
    status = _status(error)
    names = [kind.__name__ for kind in type(error).__mro__]
    lost = isinstance(error, OSError) or any(LATE_OR_LOST.search(name) for name in names)
    unsent = isinstance(error, ConnectionRefusedError) or bool(NEVER_SENT.search(names[0]))
    if status is not None and status >= 500 and not any(_headers(error)):
        lost = True  # no server's answer: some libraries write 500 for a lost connection
    said = re.sub(rf"^(?:(?:\w+\.)*{names[0]}:\s*)+", "", public_line(str(error), secrets))
    text = f"{model}: {names[0]}" + (f": {said}" if said else "") + _advice(status, lost)
    return ModelError(
        text,
        status=status,
        retryable=lost if status is None else status in RETRYABLE or status >= 500,
        ambiguous=lost and not unsent if status is None else lost,
        retry_after_seconds=_retry_after(error),
    )


def public_line(text: str, secrets: Iterable[str] = ()) -> str:
    """One short line without secrets: the given ones, the environment's, and what looks like one.

    They are removed before anything is cut, so that no half of one is left.
    """
    hidden = {*secrets, *_secrets_of_the_environment()}
    for secret in sorted(hidden, key=len, reverse=True):
        if len(secret) >= SHORTEST_SECRET_CHARS:
            text = text.replace(secret, "[secret]")
    text = SECRET_SHAPE.sub("[secret]", text)
    text = " ".join(_CONTROL.sub(" ", text).split())
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"


def _secrets_of_the_environment() -> list[str]:
    return [value for name, value in os.environ.items() if SECRET_NAME.fullmatch(name)]


def _status(error: BaseException) -> int | None:
    """The HTTP status an error tells, in any of the places where libraries keep it."""
    holders = (error, getattr(error, "response", None))
    for holder in holders:
        for name in ("status_code", "status", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600:
                return int(value)
    return None


def _headers(error: BaseException) -> list[Mapping[Any, Any]]:
    """The headers of the server's answer, in any of the places where libraries keep them."""
    holders = (error, getattr(error, "response", None))
    names = ("headers", "litellm_response_headers")
    found = [getattr(holder, name, None) for holder in holders for name in names]
    return [headers for headers in found if isinstance(headers, Mapping)]


def _retry_after(error: BaseException) -> float | None:
    waits = (_wait_in(headers) for headers in _headers(error))
    return next((wait for wait in waits if wait is not None), None)


def _wait_in(headers: Mapping[Any, Any]) -> float | None:
    found = {str(name).lower(): str(value).strip() for name, value in headers.items()}
    if _SECONDS.fullmatch(found.get("retry-after-ms", "")):
        return float(found["retry-after-ms"]) / 1000
    if _SECONDS.fullmatch(found.get("retry-after", "")):
        return float(found["retry-after"])
    return None


def _advice(status: int | None, lost: bool) -> str:
    advice = {
        401: "; check the key",
        403: "; check that the key may use this model",
        404: "; check the model's name",
        429: "; wait, lower max_concurrent_calls, or check the account's quota",
    }
    if status is None:
        return "; is the server reachable, and not overloaded?" if lost else ""
    return advice.get(status, "; try again later" if status >= 500 else "")
