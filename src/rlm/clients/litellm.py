"""Models through litellm: every provider it knows, with its names, keys and prices.

litellm is imported on first use, which takes seconds. It uses the price table it ships, because
importing it would otherwise fetch one from the network. Its retries are off; `calls.py` retries.
"""

import contextlib
import os
from collections.abc import AsyncGenerator, Generator, Mapping
from typing import Any

from msgspec.structs import replace

from rlm.clients._adapters import each_within, imported, model_error, public_line, reply_of
from rlm.clients._chat import ChatDialect
from rlm.clients._fields import parse
from rlm.errors import ConfigError, ModelError
from rlm.messages import Message, ModelInfo, Price, Reply, Request

__all__ = ["LiteLLMClient"]

OWN_TABLE = "LITELLM_LOCAL_MODEL_COST_MAP"
CARRIED = "litellm"
CARRIED_PARTS = ("thinking_blocks", "reasoning_items", "provider_specific_fields")
"""Parts of a message that some providers want back unchanged in the next request."""

LONG_PRICES = (128_000, 200_000, 256_000, 272_000)
MILLION = 1_000_000


class LiteLLMClient:
    """Asks any model that litellm can reach; `request.model` is litellm's name for it.

    Without `api_key` and `base_url`, litellm uses its own variables. `parameters` are sent with
    every request, e.g. {"aws_region_name": "eu-west-1"}. For streams without stated usage, litellm
    counts the tokens itself.
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        api_version: str | None = None,
        headers: Mapping[str, str] | None = None,
        parameters: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        infos: Mapping[str, ModelInfo] | None = None,
    ) -> None:
        if query:
            raise ConfigError(
                "litellm can't add query parameters (query, default_query) to its requests and "
                "sends them in the body instead: don't use litellm, as in "
                "RLM('openai-compatible/model', client_options=…) with base_url and query"
            )
        self._library = _litellm()
        given = {"api_key": api_key, "api_base": base_url, "api_version": api_version}
        self._settings: dict[str, Any] = {
            **{name: value for name, value in given.items() if value is not None},
            **({"extra_headers": dict(headers)} if headers else {}),
            **(parameters or {}),
        }
        self._secrets = _texts_in([api_key, dict(headers or {}), dict(parameters or {})])
        self._infos = dict(infos or {})

    @classmethod
    def for_model(
        cls,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        api_version: str | None = None,
        headers: Mapping[str, str] | None = None,
        parameters: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        infos: Mapping[str, ModelInfo] | None = None,
    ) -> "LiteLLMClient":
        """Return a client for `litellm/<model>`; raise ConfigError if its provider is unknown."""
        client = cls(
            api_key=api_key,
            base_url=base_url,
            api_version=api_version,
            headers=headers,
            parameters=parameters,
            query=query,
            infos=infos,
        )
        client._check_provider(model)
        return client

    def __repr__(self) -> str:
        return "LiteLLMClient()"

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        """Send one request, and return its reply."""
        pieces = self._whole(request, timeout_seconds)
        return await reply_of(each_within(pieces, timeout_seconds, request.model))

    def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        """Yield the text as it comes, then the whole reply."""
        pieces = self._pieces(request, timeout_seconds)
        return each_within(pieces, timeout_seconds, request.model)

    def info(self, model: str) -> ModelInfo:
        """Return what was given, else what litellm's table says."""
        return self._infos.get(model) or _info(_row(self._library, model))

    async def close(self) -> None:
        """Close litellm's connections, including those of its other users in this process."""
        await self._library.close_litellm_async_clients()

    async def _whole(
        self, request: Request, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        with self._translated(request):
            response = await self._complete(request, timeout_seconds, stream=False)
            yield self._priced(request, self._reply(response.model_dump()), response)

    async def _pieces(
        self, request: Request, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        streamed, chunks = ChatDialect().streamed(), []
        with self._translated(request):
            response = await self._complete(request, timeout_seconds, stream=True)
            async for chunk in response:
                chunks.append(chunk)
                if text := streamed.add(chunk.model_dump()):
                    yield text
            if not streamed.complete:
                raise ModelError(
                    f"{request.model}: the stream was cut off", retryable=True, ambiguous=True
                )
            built = self._library.stream_chunk_builder(chunks)
            reply = _with_carried(streamed.reply(), _message_in(built.model_dump()))
            yield self._priced(request, reply, built)

    async def _complete(self, request: Request, timeout_seconds: float, *, stream: bool) -> Any:
        body = parse(ChatDialect().body(request, stream=stream))
        body["messages"] = [
            wire | _carried_by(message)
            for wire, message in zip(body["messages"], request.messages, strict=True)
        ]
        retries = {"num_retries": 0, "max_retries": 0}
        return await self._library.acompletion(
            **{**body, **self._settings, **retries, "timeout": timeout_seconds}
        )

    def _reply(self, payload: dict[str, Any]) -> Reply:
        reply = _with_carried(ChatDialect().reply(payload), _message_in(payload))
        usage = reply.usage
        unsaid = usage is not None and not usage.input_tokens  # litellm writes 0 for "not reported"
        return replace(reply, usage=None) if unsaid else reply

    def _priced(self, request: Request, reply: Reply, response: Any) -> Reply:
        """Return the reply with cached tokens and litellm's cost, unless a price was given."""
        usage = reply.usage
        if usage is None:
            return reply
        stated = getattr(response, "usage", None)
        details = getattr(stated, "prompt_tokens_details", None)
        written = _count(getattr(stated, "cache_creation_input_tokens", None)) or _count(
            getattr(details, "cache_creation_tokens", None)
        )
        given = self._infos.get(request.model)
        cost = None if given and given.price else self._cost(request, response)
        return replace(reply, usage=replace(usage, cache_write_tokens=written, cost_usd=cost))

    def _cost(self, request: Request, response: Any) -> float | None:
        """Return the cost by litellm's table; None for a model that is not in it."""
        if not _row(self._library, request.model):
            return None
        hidden = getattr(response, "_hidden_params", None)
        cost = hidden.get("response_cost") if isinstance(hidden, Mapping) else None
        if cost is None:
            cost = self._library.completion_cost(completion_response=response, model=request.model)
        return float(cost) if isinstance(cost, int | float) and cost >= 0 else None

    def _check_provider(self, model: str) -> None:
        known = self._library
        try:
            known.get_llm_provider(model, api_base=self._settings.get("api_base"))
        except known.BadRequestError as error:
            reason = public_line(str(error), self._secrets)
            raise ConfigError(
                f"litellm/{model}: litellm does not know the provider of this model; write it as "
                f"litellm/provider/model, e.g. litellm/openai/{model} ({reason})"
            ) from None

    @contextlib.contextmanager
    def _translated(self, request: Request) -> Generator[None, None, None]:
        """Raise litellm's errors as ModelError. `from None`: they contain requests and keys."""
        try:
            yield
        except (ModelError, ConfigError):
            raise
        except ValueError as error:
            raise ModelError(
                f"{request.model}: {public_line(str(error), self._secrets)}",
                retryable=True,
                ambiguous=True,
            ) from None
        except Exception as error:  # noqa: BLE001 - it is raised again, without its secrets
            raise model_error(request.model, error, self._secrets) from None


def _litellm() -> Any:
    """Import the library with its own price table and without advertisements on stdout."""
    before = os.environ.get(OWN_TABLE)
    os.environ[OWN_TABLE] = before or "True"
    try:
        library = imported("litellm", "litellm", "litellm/…")
    finally:
        if before is None:
            del os.environ[OWN_TABLE]
    library.suppress_debug_info = True
    return library


def _message_in(payload: Any) -> dict[str, Any]:
    choices = payload.get("choices") if isinstance(payload, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    return message if isinstance(message, dict) else {}


def _with_carried(reply: Reply, message: dict[str, Any]) -> Reply:
    """Return the reply with the parts that must be sent back, besides those of the dialect."""
    parts = {name: message[name] for name in CARRIED_PARTS if message.get(name)}
    if not parts:
        return reply
    others = reply.opaque if isinstance(reply.opaque, dict) else {}
    return replace(reply, opaque={**others, CARRIED: parts})


def _carried_by(message: Message) -> dict[str, Any]:
    parts = message.opaque.get(CARRIED) if isinstance(message.opaque, Mapping) else None
    return dict(parts) if isinstance(parts, Mapping) else {}


def _row(library: Any, model: str) -> dict[str, Any]:
    """Return the model's row in litellm's table, by its full name or without its provider."""
    table = library.model_cost
    for name in (model, model.partition("/")[2]):
        row = table.get(name) if name and isinstance(table, Mapping) else None
        if isinstance(row, dict):
            return row
    return {}


def _info(row: dict[str, Any]) -> ModelInfo:
    window = _count(row.get("max_input_tokens")) or _count(row.get("max_tokens"))
    return ModelInfo(window_tokens=window or None, price=_price(row))


def _price(row: dict[str, Any]) -> Price | None:
    """Return the table's price, with the higher one for long requests if there is one."""
    usual = _price_at(row, "")
    if usual is None:
        return None
    for size in LONG_PRICES:
        dearer = _price_at(row, f"_above_{size // 1000}k_tokens")
        if dearer is not None:
            return replace(usual, long=(size, dearer))
    return usual


def _price_at(row: dict[str, Any], suffix: str) -> Price | None:
    sent, written, read, stored = (
        _per_million(row.get(f"{name}{suffix}"))
        for name in (
            "input_cost_per_token",
            "output_cost_per_token",
            "cache_read_input_token_cost",
            "cache_creation_input_token_cost",
        )
    )
    return None if sent is None or written is None else Price(sent, written, read, stored)


def _per_million(price: Any) -> float | None:
    is_price = isinstance(price, int | float) and not isinstance(price, bool) and price >= 0
    return round(price * MILLION, 9) if is_price else None


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _texts_in(given: Any) -> list[str]:
    """Return every text in nested settings: any of them may be a secret."""
    if isinstance(given, str):
        return [given]
    if isinstance(given, Mapping):
        return _texts_in(list(given.values()))
    return [text for each in given for text in _texts_in(each)] if isinstance(given, list) else []
