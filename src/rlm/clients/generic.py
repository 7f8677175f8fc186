"""Any HTTP endpoint that takes a conversation as JSON and answers with JSON."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from rlm.clients._chat import ChatDialect
from rlm.clients._dialect import HttpClient
from rlm.clients._estimate import message_text
from rlm.clients._fields import dump, usage_of
from rlm.clients._http import Endpoint
from rlm.clients._quirks import quirks_for
from rlm.errors import ConfigError
from rlm.messages import Message, Reply, Request

__all__ = ["GenericChatClient", "PayloadBuilder", "ResponseParser"]

PayloadBuilder = Callable[[list[dict[str, str]], int, float, str | None], dict[str, Any]]
"""(messages, max_tokens, temperature, model) → the body of a request."""

ResponseParser = Callable[[dict[str, Any]], Any]
"""A decoded response → its text, or (text, usage) with usage as chat completions state it."""

COMPATIBLE = "openai-compatible"
_PROBE = Request(model="", messages=(Message("user", ""),), max_output_tokens=1)


class GenericChatClient(HttpClient):
    """One model behind one URL; without a builder or parser, that side is OpenAI's dialect.

    A builder must send its `max_tokens`: budgets rely on it. `timeout_seconds` is per attempt,
    `max_attempts` the number of attempts.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        payload_builder: PayloadBuilder | None = None,
        response_parser: ResponseParser | None = None,
        timeout_seconds: float = 60.0,
        max_attempts: int = 5,
    ) -> None:
        if timeout_seconds <= 0 or max_attempts < 1:
            raise ConfigError("a chat endpoint needs a positive timeout and at least one attempt")
        self.model, self.timeout_seconds, self.max_attempts = model, timeout_seconds, max_attempts
        variables = "LLM_API_KEY or OPENAI_API_KEY"
        endpoint = Endpoint(url, headers or {}, api_key=api_key, key_variable=variables)
        dialect = _Configured(endpoint.host, model, payload_builder, response_parser)
        super().__init__(endpoint, dialect, provider=COMPATIBLE)
        parser = getattr(response_parser, "__qualname__", repr(response_parser))
        probe = dialect.body(_PROBE, stream=False)
        settings = repr((url, sorted((headers or {}).items()), probe, parser))
        self.identity = hashlib.sha256(settings.encode("utf-8", "surrogatepass")).hexdigest()

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        """Send one request and return its reply, within the shorter of both time limits."""
        seconds = min(timeout_seconds, self.timeout_seconds)
        return await super().complete(request, timeout_seconds=seconds)


class _Configured(ChatDialect):
    """Chat completions, unless configured otherwise."""

    def __init__(
        self,
        host: str,
        model: str | None,
        build: PayloadBuilder | None,
        parse: ResponseParser | None,
    ) -> None:
        super().__init__(quirks_for(COMPATIBLE, host))
        self._model, self._build, self._parse = model, build, parse

    def path(self, request: Request, *, stream: bool) -> str:
        return ""

    def body(self, request: Request, *, stream: bool) -> bytes:
        if self._build is None:
            return super().body(replace(request, model=self._model or "default"), stream=stream)
        messages = [{"role": m.role, "content": message_text(m)} for m in request.messages]
        temperature = request.sampling.get("temperature", 0.0)
        return dump(self._build(messages, request.max_output_tokens, temperature, self._model))

    def reply(self, payload: dict[str, Any]) -> Reply:
        if self._parse is None:
            return super().reply(payload)
        try:
            found = self._parse(payload)
            text, usage = found if isinstance(found, tuple) else (found, None)
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"response_parser: {type(error).__name__}: {error}") from error
        if not isinstance(text, str):
            raise ValueError(f"response_parser returned {type(text).__name__}, not a string")
        return Reply(text=text, usage=usage_of({"usage": usage}))
