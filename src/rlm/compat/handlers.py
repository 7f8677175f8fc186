"""`LMHandler`: which model answers the calls of a REPL, found by an address.

In the reference it is a socket server. Here REPLs and models are in one program, so an address only
names a handler, and nothing listens.
"""

import itertools
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from rlm.compat.types import Completion, UsageTotals
from rlm.errors import ConfigError, RLMError

__all__ = [
    "LMHandler",
    "LMRequest",
    "LMResponse",
    "handler_at",
    "send_lm_request",
    "send_lm_request_batched",
]

Address = tuple[str, int]
_handlers: "weakref.WeakValueDictionary[Address, LMHandler]" = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


@dataclass
class LMRequest:
    """One prompt for a handler."""

    prompt: Any = None
    prompts: list[Any] | None = None
    model: str | None = None
    depth: int = 0

    @property
    def is_batched(self) -> bool:
        return bool(self.prompts)


@dataclass
class LMResponse:
    """What a handler answers: a completion, or why there is none."""

    error: str | None = None
    chat_completion: Completion | None = None
    chat_completions: list[Completion] | None = None

    @property
    def success(self) -> bool:
        return self.error is None


class LMHandler:
    """Chooses the client that answers: by a model's name, else by the depth of the caller."""

    def __init__(
        self,
        client: Any,
        host: str = "127.0.0.1",
        port: int = 0,
        other_backend_client: Any = None,
        batch_max_concurrent: int = 16,
    ) -> None:
        self.default_client = client
        self.other_backend_client = other_backend_client
        self.batch_max_concurrent = batch_max_concurrent
        self.host = host
        self.port = port or next(_numbers)
        self.clients: dict[str, Any] = {}
        self.register_client(client.model_name, client)

    @property
    def address(self) -> Address:
        return self.host, self.port

    def register_client(self, model_name: str, client: Any) -> None:
        """Let calls name this model."""
        self.clients[model_name] = client

    def get_client(self, model: str | None = None, depth: int = 0) -> Any:
        if model and model in self.clients:
            return self.clients[model]
        if depth == 1 and self.other_backend_client is not None:
            return self.other_backend_client
        return self.default_client

    def completion(self, prompt: Any, model: str | None = None) -> str:
        answer: str = self.get_client(model).completion(prompt)
        return answer

    def get_usage_summary(self) -> UsageTotals:
        """Return what all its clients have used."""
        merged: dict[str, Any] = {}
        for client in (self.default_client, self.other_backend_client, *self.clients.values()):
            if client is not None:
                merged |= client.get_usage_summary().model_usage_summaries
        return UsageTotals(merged)

    def start(self) -> Address:
        """Answer at `address` from now on."""
        _handlers[self.address] = self
        return self.address

    def stop(self) -> None:
        _handlers.pop(self.address, None)

    def __enter__(self) -> "LMHandler":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def handler_at(address: Any) -> LMHandler:
    """Return the handler that answers at an address; raise if there is none in this program."""
    found = _handlers.get(tuple(address)) if isinstance(address, list | tuple) else None
    if found is None:
        raise ConfigError(
            f"no LMHandler of this program is listening at {address!r}: start it first"
        )
    return found


def send_lm_request(address: Any, request: LMRequest, timeout: int = 300) -> LMResponse:
    """Ask a handler of this program."""
    started = time.perf_counter()
    try:
        client = handler_at(address).get_client(request.model, request.depth)
        text = client.completion(request.prompt)
    except (RLMError, RuntimeError, ValueError, OSError) as error:
        return LMResponse(error=str(error))
    model = request.model or str(client.model_name)
    used = UsageTotals({model: client.get_last_usage()})
    seconds = time.perf_counter() - started
    return LMResponse(chat_completion=Completion(model, request.prompt, text, used, seconds))


def send_lm_request_batched(
    address: Any, prompts: list[Any], model: str | None = None, depth: int = 0, timeout: int = 300
) -> list[LMResponse]:
    """Ask a handler about several prompts at once; failures are returned in their places."""
    workers = max(1, min(len(prompts), handler_at(address).batch_max_concurrent))
    with ThreadPoolExecutor(workers) as threads:
        ask = partial(send_lm_request, address)
        return list(threads.map(ask, (LMRequest(each, None, model, depth) for each in prompts)))
