"""Chat completions over HTTP: OpenAI itself, and every server that speaks its dialect."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec.structs import replace

from rlm.clients._azure import azure_address
from rlm.clients._chat import ChatDialect
from rlm.clients._dialect import HttpClient
from rlm.clients._http import Endpoint
from rlm.clients._quirks import quirks_for
from rlm.messages import ModelInfo

__all__ = ["OpenAICompatClient"]

AZURE_KNOWS_NEW_CAP = "2024-09"
"""The first dated version of Azure's API that takes `max_completion_tokens`."""


class OpenAICompatClient(HttpClient):
    """One server at `base_url`, used as given plus `/chat/completions`. Never retries by itself.

    `provider` decides its quirks, unless the host is a known one. `infos` tells windows and prices
    by model; `key_variable` is named when the key is refused. `api_version` is for `azure` alone,
    where a dated version means the older addresses with the deployment in them.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        infos: Mapping[str, ModelInfo] | None = None,
        key_variable: str | None = None,
        provider: str = "openai-compatible",
        api_version: str | None = None,
    ) -> None:
        quirks = quirks_for(provider, urlsplit(base_url).hostname or "")
        address = "{path}"
        if provider == "azure":
            base_url, address = azure_address(base_url, api_version)
            if api_version and api_version < AZURE_KNOWS_NEW_CAP:
                quirks = replace(quirks, cap_name="max_tokens", reads_openai_names=False)
        endpoint = Endpoint(
            base_url,
            headers or {},
            api_key=api_key,
            key_variable=key_variable or quirks.key_variable,
            auth=quirks.auth,
        )
        dialect = ChatDialect(quirks, address)
        super().__init__(endpoint, dialect, provider=provider, infos=infos)
