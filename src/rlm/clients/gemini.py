"""Gemini's generateContent API over HTTP."""

import re
from collections.abc import Mapping

from rlm.clients._dialect import HttpClient
from rlm.clients._gemini import GeminiDialect
from rlm.clients._http import Endpoint
from rlm.messages import ModelInfo

__all__ = ["GeminiClient"]

ADDRESS = "https://generativelanguage.googleapis.com"
VERSION = "/v1beta"

_VERSIONED = re.compile(r"/v\d+(alpha|beta)?\d*$")


class GeminiClient(HttpClient):
    """Gemini, or a server that speaks like it, at `base_url` with or without an API version.

    Never retries by itself.
    """

    def __init__(
        self,
        base_url: str = ADDRESS,
        api_key: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        infos: Mapping[str, ModelInfo] | None = None,
        key_variable: str | None = None,
        provider: str = "gemini",
    ) -> None:
        address = base_url.rstrip("/")
        endpoint = Endpoint(
            address if _VERSIONED.search(address) else address + VERSION,
            headers or {},
            api_key=api_key,
            key_variable=key_variable or "GEMINI_API_KEY (or GOOGLE_API_KEY)",
            auth={"x-goog-api-key": ""},
        )
        super().__init__(endpoint, GeminiDialect(), provider=provider, infos=infos)
