"""Adapters to models: a script, any chat endpoint over HTTP, OpenAI's dialect.

Each is a client of the engine; whatever else `rlm.RLM` accepts as a model works too, such as any
object with `complete(messages)`.
"""

import hashlib
import os
import re
from collections.abc import Iterable
from typing import Any

from rlm.clients.generic import GenericChatClient
from rlm.testing.scripted import Entry, Pattern, ScriptedClient
from rlm.wiring.registry import PROVIDERS

__all__ = ["FakeAdapter", "GenericChatAdapter", "OpenAICompatAdapter"]


class FakeAdapter(ScriptedClient):
    """Answer by the first rule that matches a request, else by the next entry of its script."""

    def __init__(self, script: Iterable[Entry] = ()) -> None:
        super().__init__(script)

    def add_rule(self, pattern: Pattern, reply: Entry, *, regex: bool = False) -> None:
        """Answer with `reply` what contains `pattern`, or what it matches as a regex."""
        super().add_rule(re.compile(pattern) if regex else pattern, reply)

    @property
    def identity(self) -> str:
        """Return all that decides its answers, so that a cache never mixes up two fakes."""
        settings = repr((self.script, self.rules))
        return hashlib.sha256(settings.encode("utf-8", "surrogatepass")).hexdigest()


class GenericChatAdapter(GenericChatClient):
    """One HTTP endpoint that takes a conversation as JSON and answers with JSON.

    `payload_builder(messages, max_tokens, temperature, model)` makes the body, and
    `response_parser(data)` takes the text out, or (text, usage); without them both are OpenAI's.
    Without an `api_key` there is no auth header. What may pass is tried `max_retries` times more.
    """

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        base_url: str = "",
        path: str = "/chat/completions",
        model: str | None = None,
        timeout: float = 60.0,
        max_retries: int = 3,
        **options: Any,
    ) -> None:
        address = endpoint or f"{base_url.rstrip('/')}/{path.lstrip('/')}"
        options |= {"timeout_seconds": timeout, "max_attempts": max_retries + 1}
        super().__init__(address, model, **options)


class OpenAICompatAdapter(GenericChatAdapter):
    """A server with OpenAI's dialect, including Llama servers.

    The key is `LLM_API_KEY` or `OPENAI_API_KEY`, the address `LLM_BASE_URL` or `OPENAI_BASE_URL`.
    """

    def __init__(
        self, model: str | None = None, *, base_url: str = "", api_key: str = "", **options: Any
    ) -> None:
        known, openai = PROVIDERS["openai-compatible"], PROVIDERS["openai"]
        base_url = base_url or _first_set(known.base_url_variables) or str(openai.base_url)
        api_key = api_key or _first_set(known.key_variables)
        super().__init__(base_url=base_url, model=model, api_key=api_key, **options)


def _first_set(variables: Iterable[str]) -> str:
    return next(filter(None, map(os.environ.get, variables)), "")
