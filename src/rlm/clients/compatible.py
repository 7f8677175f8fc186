"""Clients for OpenAI's chat completions, and for Azure."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, quote, urlunsplit

from msgspec.structs import replace

from rlm.clients._aws import Signer
from rlm.clients._chat import ChatDialect
from rlm.clients._dialect import HttpClient
from rlm.clients._http import Endpoint, checked_url
from rlm.clients._quirks import quirks_for
from rlm.errors import ConfigError
from rlm.messages import ModelInfo

__all__ = ["OpenAICompatClient", "azure_address"]

DEPLOYMENT = "/openai/deployments/"
V1_VERSIONS = frozenset({"", "v1", "preview", "latest"})
OPERATION = re.compile(r"/(chat/completions|responses)$")


def azure_address(endpoint: str, api_version: str | None = None) -> tuple[str, str]:
    """Return the base URL, and a template for the path below it.

    In the template, `{model}` is the deployment and `{path}` the operation. Without a dated version
    it is the v1 API, where the deployment is the request's model.
    """
    parts = checked_url(endpoint.strip())
    version = api_version or parse_qs(parts.query).get("api-version", [""])[0]
    path = OPERATION.sub("", parts.path.rstrip("/"))
    query = f"?api-version={quote(version, safe='')}" if version else ""
    if version in V1_VERSIONS:
        if DEPLOYMENT in path:
            raise ConfigError(
                "the Azure address names a deployment, which needs a dated version: set "
                "AZURE_OPENAI_API_VERSION, or shorten the address to its host"
            )
        return _url(parts.scheme, parts.netloc, _v1_path(path)), "{path}" + query
    if DEPLOYMENT in path:
        return _url(parts.scheme, parts.netloc, path), "{path}" + query
    path = re.sub(r"/openai(/v1)?$", "", path)
    template = DEPLOYMENT + "{model}{path}" + query
    return _url(parts.scheme, parts.netloc, path), template


def _v1_path(path: str) -> str:
    if path.endswith("/v1"):
        return path
    return f"{path.removesuffix('/openai')}/openai/v1"


def _url(scheme: str, netloc: str, path: str) -> str:
    return urlunsplit((scheme, netloc, path, "", ""))


AZURE_KNOWS_NEW_CAP = "2024-09"
"""The first dated version of Azure's API that accepts `max_completion_tokens`."""


class OpenAICompatClient(HttpClient):
    """One server at `base_url`, used as given plus `/chat/completions`. It never retries.

    `provider` decides its quirks, unless the host is a known one. `infos` gives windows and prices
    by model; `key_variable` is named when the key is refused, `url_variable` when the address is
    wrong. `api_version` is only for `azure`, where a dated version means the older addresses, which
    contain the deployment. A `signer` signs requests to AWS, in place of a key.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        infos: Mapping[str, ModelInfo] | None = None,
        key_variable: str | None = None,
        url_variable: str | None = None,
        provider: str = "openai-compatible",
        api_version: str | None = None,
        signer: Signer | None = None,
    ) -> None:
        quirks = quirks_for(provider, checked_url(base_url, url_variable).hostname or "")
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
            url_variable=url_variable,
            auth=quirks.auth,
            query=query,
            signer=signer,
        )
        dialect = ChatDialect(quirks, address)
        super().__init__(endpoint, dialect, provider=provider, infos=infos)
