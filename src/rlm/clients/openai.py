"""Chat completions over HTTP: OpenAI itself, and every server that speaks its dialect."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from rlm.clients._chat import ChatDialect
from rlm.clients._dialect import HttpClient
from rlm.clients._http import Endpoint
from rlm.messages import ModelInfo

__all__ = ["OpenAICompatClient"]

OPENAI_HOST = "api.openai.com"
KEY_VARIABLES = {
    OPENAI_HOST: "OPENAI_API_KEY",
    "openrouter.ai": "OPENROUTER_API_KEY",
    "api.groq.com": "GROQ_API_KEY",
    "api.portkey.ai": "PORTKEY_API_KEY",
    "ai-gateway.vercel.sh": "AI_GATEWAY_API_KEY",
}
UNKNOWN_HOST_KEYS = "LLM_API_KEY (or OPENAI_API_KEY)"


class OpenAICompatClient(HttpClient):
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
        provider: str = "openai-compatible",
        api_version: str | None = None,
    ) -> None:
        host = urlsplit(base_url).hostname or ""
        variable = key_variable or KEY_VARIABLES.get(host, UNKNOWN_HOST_KEYS)
        endpoint = Endpoint(base_url, headers or {}, api_key=api_key, key_variable=variable)
        cap_name = "max_completion_tokens" if host == OPENAI_HOST else "max_tokens"
        super().__init__(endpoint, ChatDialect(cap_name), provider=provider, infos=infos)
