"""Chat completions over HTTP: OpenAI itself, and every server that speaks its dialect."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import urlsplit

from rlm.clients._chat import StreamedReply, body, reply_of
from rlm.clients._http import Endpoint
from rlm.clients._json import parse
from rlm.messages import ModelInfo, Reply, Request

__all__ = ["OpenAICompatClient"]

PATH = "/chat/completions"
OPENAI_HOST = "api.openai.com"
KEY_VARIABLES = {
    OPENAI_HOST: "OPENAI_API_KEY",
    "openrouter.ai": "OPENROUTER_API_KEY",
    "api.groq.com": "GROQ_API_KEY",
    "api.portkey.ai": "PORTKEY_API_KEY",
    "ai-gateway.vercel.sh": "AI_GATEWAY_API_KEY",
}
UNKNOWN_HOST_KEYS = "LLM_API_KEY (or OPENAI_API_KEY)"


class OpenAICompatClient:
    """One server at `base_url`, used as given plus `/chat/completions`. Never retries by itself.

    `infos` tells windows and prices by model; `key_variable` is named when the key is refused.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        infos: Mapping[str, ModelInfo] | None = None,
        key_variable: str | None = None,
    ) -> None:
        host = urlsplit(base_url).hostname or ""
        variable = key_variable or KEY_VARIABLES.get(host, UNKNOWN_HOST_KEYS)
        self._endpoint = Endpoint(base_url, headers or {}, api_key=api_key, key_variable=variable)
        self._infos = dict(infos or {})
        self._cap_name = "max_completion_tokens" if host == OPENAI_HOST else "max_tokens"

    def __repr__(self) -> str:
        return f"OpenAICompatClient({self._endpoint.host!r})"

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        """One request, one reply."""
        sent = body(request, cap_name=self._cap_name, stream=False)
        async with self._endpoint.post(
            PATH, sent, model=request.model, timeout_seconds=timeout_seconds
        ) as response:
            return self._reply(request, await response.read())

    async def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        """The text as it comes, piece by piece, and at the end the whole reply."""
        sent = body(request, cap_name=self._cap_name, stream=True)
        async with self._endpoint.post(
            PATH, sent, model=request.model, timeout_seconds=timeout_seconds
        ) as response:
            if response.is_json:  # a server that does not stream
                reply = self._reply(request, await response.read())
                yield reply.text
                yield reply
                return
            streamed = StreamedReply()
            async for line in response.lines():
                if text := self._add_line(request, streamed, line):
                    yield text
                if streamed.done:
                    break
            if not streamed.complete:
                raise self._endpoint.broken(request.model, "the stream was cut off")
            yield streamed.reply()

    def info(self, model: str) -> ModelInfo:
        return self._infos.get(model, ModelInfo())

    async def close(self) -> None:
        """Close the connections of every event loop this client was used on."""
        await self._endpoint.close()

    def _reply(self, request: Request, data: bytes) -> Reply:
        payload = self._parsed(request, data)
        try:
            return reply_of(payload)
        except ValueError as error:
            raise self._endpoint.broken(request.model, str(error)) from None

    def _add_line(self, request: Request, streamed: StreamedReply, line: str) -> str:
        """One line of the event stream; every data line is an event of its own in this dialect."""
        if not line.startswith("data:"):
            return ""
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            streamed.done = True
        return streamed.add(self._parsed(request, data)) if data and not streamed.done else ""

    def _parsed(self, request: Request, data: bytes | str) -> dict[str, Any]:
        """A decoded object that is no error report; some gateways report errors with status 200."""
        try:
            payload = parse(data)
        except ValueError:
            payload = None
        if not isinstance(payload, dict):
            raise self._endpoint.broken(request.model, "the response is malformed or cut off")
        error = payload.get("error")
        if error and not payload.get("choices"):
            code = error.get("code") if isinstance(error, dict) else None
            status = code if isinstance(code, int) and 400 <= code < 600 else None
            if status is None:
                raise self._endpoint.broken(request.model, f"the server reported: {error}")
            raise self._endpoint.error(request.model, status, payload, ambiguous=True)
        return payload
