"""Where a model of Azure OpenAI answers, from any form in which its endpoint is written."""

import re
from urllib.parse import parse_qs, quote, urlsplit, urlunsplit

from rlm.errors import ConfigError

__all__ = ["azure_address"]

DEPLOYMENT = "/openai/deployments/"
V1_VERSIONS = frozenset({"", "v1", "preview", "latest"})
OPERATION = re.compile(r"/(chat/completions|responses)$")


def azure_address(endpoint: str, api_version: str | None = None) -> tuple[str, str]:
    """The base URL, and what goes below it before the operation's own path and after it.

    The second is a template: `{model}` is the deployment, `{path}` the operation. Without a dated
    version it is the v1 API, where the deployment is the request's model.
    """
    parts = urlsplit(endpoint.strip())
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
