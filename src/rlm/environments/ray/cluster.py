"""The package `ray`: imported late, joined once, and its errors translated."""

import asyncio
import contextlib
import functools
import importlib
import importlib.util
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from rlm._util.distribution import NAME, install_command
from rlm.errors import ConfigError, RLMError, SessionDied

__all__ = [
    "awaited",
    "has_room",
    "is_installed",
    "join",
    "landed",
    "leave",
    "missing",
    "sdk",
    "translated",
]

_MAX_WORDS_CHARS = 400
_NOT_THERE = "No module named 'rlm'"

_users = 0
_is_ours = False


def is_installed() -> bool:
    """Return whether the package is installed."""
    return importlib.util.find_spec("ray") is not None


def missing() -> str:
    """Return a message that says how to install Ray."""
    return f"environment='ray' needs Ray: {install_command('ray')}"


def sdk() -> Any:
    """Import the package, which takes about a second."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError(missing()) from error


async def join(address: str | None, runtime_env: dict[str, Any] | None) -> Any:
    """Connect to a cluster, or start one here, if not connected yet; return the package.

    Each `join` needs a `leave`; the last `leave` closes a connection that was opened here.
    """
    return await landed(_in_thread(functools.partial(_join, address, runtime_env)))


async def leave() -> None:
    """Close the connection if it was opened here and is no longer used."""
    await landed(_in_thread(_leave))


async def awaited(reference: Any) -> Any:
    """Return the value of an object reference, whether of Ray itself or of a `ray://` client."""
    errors: tuple[type[BaseException], ...] = (ConnectionError, sdk().exceptions.RayError)
    try:
        return await landed(reference.future())
    except errors as error:
        raise translated(error) from error


def landed(future: "Future[Any]") -> "asyncio.Future[Any]":
    """Wrap a future for this loop. Cancelling the wrapper leaves the future to Ray."""
    loop = asyncio.get_running_loop()
    here: asyncio.Future[Any] = loop.create_future()

    def settle() -> None:
        if here.cancelled():
            return
        if (error := future.exception()) is not None:
            here.set_exception(error)
        else:
            here.set_result(future.result())

    def tell(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed, so nothing waits for it.
            loop.call_soon_threadsafe(settle)

    future.add_done_callback(tell)
    return here


def has_room(takes: dict[str, float]) -> bool:
    """Return whether these resources are free, on all nodes together; may block."""
    try:
        free: dict[str, float] = sdk().available_resources()
    except (ConnectionError, RuntimeError, sdk().exceptions.RayError):
        return False
    return all(free.get(name, 0.0) >= amount for name, amount in takes.items())


def translated(error: BaseException) -> RLMError:
    """Return the error of a session for an error of Ray."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, RLMError):
        return type(cause)(str(cause))
    words = " ".join(str(error).split())
    if _NOT_THERE in words:
        return ConfigError(
            f"rlm is missing on a node of the Ray cluster: install {NAME} there, or pass "
            f"runtime_env={{'pip': ['{NAME}']}}"
        )
    return SessionDied(f"{type(error).__name__}: {words[:_MAX_WORDS_CHARS]}")


def _join(address: str | None, runtime_env: dict[str, Any] | None) -> Any:
    global _users, _is_ours
    ray = sdk()
    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # No usage statistics are sent.
        given: dict[str, Any] = {"runtime_env": runtime_env} if runtime_env else {}
        try:
            ray.init(
                address=address,
                log_to_driver=False,
                logging_level="error",
                **({} if _is_remote(address) else {"include_dashboard": False}),
                **given,
            )
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            words = " ".join(str(error).split())[:_MAX_WORDS_CHARS]
            raise ConfigError(
                f"no Ray cluster answers at {address or 'this machine'}: {words}"
            ) from (error)
        _is_ours = True
    _users += 1
    return ray


def _is_remote(address: str | None) -> bool:
    return bool(address or os.environ.get("RAY_ADDRESS"))


def _leave() -> None:
    global _users, _is_ours
    _users -= 1
    if not _users and _is_ours:
        _is_ours = False
        sdk().shutdown()


# -- the thread -----------------------------------------------------------------------------------

# The kernel kills what Ray started when the thread that started it ends, so this one never ends.

_orders: "queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]]" = queue.SimpleQueue()
_start = threading.Lock()
_thread: threading.Thread | None = None


def _in_thread(work: Callable[[], Any]) -> "Future[Any]":
    global _thread
    with _start:
        if _thread is None:
            _thread = threading.Thread(target=_serve, name="rlm-ray", daemon=True)
            _thread.start()
    outcome: Future[Any] = Future()
    _orders.put((work, outcome))
    return outcome


def _serve() -> None:
    while True:
        work, outcome = _orders.get()
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised in the waiting task
            outcome.set_exception(error)
        del work, outcome
