"""Anthropic's messages API over HTTP."""

from collections.abc import Mapping

from rlm.clients._anthropic import AnthropicDialect
from rlm.clients._dialect import HttpClient
from rlm.clients._http import Endpoint
from rlm.messages import ModelInfo

__all__ = ["AnthropicClient"]

ADDRESS = "https://api.anthropic.com"
VERSION = {"anthropic-version": "2023-06-01"}
"""The newest version in which models that take a temperature still do."""


class AnthropicClient(HttpClient):
    """Anthropic, or a server that speaks like it, at `base_url` with or without `/v1`.

    A header `anthropic-version` of your own wins over the built-in one. Never retries by itself.
    """

    def __init__(
        self,
        base_url: str = ADDRESS,
        api_key: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        infos: Mapping[str, ModelInfo] | None = None,
        key_variable: str | None = None,
        provider: str = "anthropic",
    ) -> None:
        endpoint = Endpoint(
            base_url.rstrip("/").removesuffix("/v1") + "/v1",
            headers or {},
            api_key=api_key,
            key_variable=key_variable or "ANTHROPIC_API_KEY",
            auth={"x-api-key": ""},
            fixed=VERSION,
        )
        super().__init__(endpoint, AnthropicDialect(), provider=provider, infos=infos)
