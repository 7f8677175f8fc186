"""OpenAI's /responses over HTTP, for models that answer there alone."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from rlm.clients._azure import azure_address
from rlm.clients._dialect import HttpClient
from rlm.clients._http import Endpoint
from rlm.clients._quirks import quirks_for
from rlm.clients._responses import ResponsesDialect
from rlm.messages import ModelInfo

__all__ = ["ResponsesClient"]


class ResponsesClient(HttpClient):
    """One server at `base_url`, used as given plus `/responses`. Never retries by itself.

    Of `azure` it takes the endpoint and finds the v1 API there. Nothing is stored on the server.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        infos: Mapping[str, ModelInfo] | None = None,
        key_variable: str | None = None,
        provider: str = "openai-responses",
    ) -> None:
        quirks = quirks_for(provider, urlsplit(base_url).hostname or "")
        if provider == "azure":
            base_url, _ = azure_address(base_url)
        endpoint = Endpoint(
            base_url,
            headers or {},
            api_key=api_key,
            key_variable=key_variable or quirks.key_variable,
            auth=quirks.auth,
        )
        super().__init__(endpoint, ResponsesDialect(quirks), provider=provider, infos=infos)
