"""Azure's addresses, in the forms in which people have them, and the requests made there."""

import pytest
from aiohttp import web

from rlm.clients.compatible import OpenAICompatClient, azure_address
from rlm.clients.responses import ResponsesClient
from rlm.errors import ConfigError
from tests.clients.misbehaving import Server, asked, completion

HOST = "https://x.openai.azure.com"
DATED = "/openai/deployments/{model}{path}?api-version=2024-10-21"


@pytest.mark.parametrize(
    ("endpoint", "version", "base", "template"),
    [
        (HOST, None, f"{HOST}/openai/v1", "{path}"),
        (f"{HOST}/", None, f"{HOST}/openai/v1", "{path}"),
        (f"{HOST}/openai", None, f"{HOST}/openai/v1", "{path}"),
        (f"{HOST}/openai/v1/", None, f"{HOST}/openai/v1", "{path}"),
        (f"{HOST}/openai/v1/chat/completions", None, f"{HOST}/openai/v1", "{path}"),
        (
            "https://gw.example.com/team/a",
            None,
            "https://gw.example.com/team/a/openai/v1",
            "{path}",
        ),
        ("https://gw.example.com/v1", None, "https://gw.example.com/v1", "{path}"),
        (HOST, "preview", f"{HOST}/openai/v1", "{path}?api-version=preview"),
        (HOST, "2024-10-21", HOST, DATED),
        (f"{HOST}/openai/", "2024-10-21", HOST, DATED),
        (f"{HOST}/openai/v1", "2024-10-21", HOST, DATED),
        ("https://gw.example.com/a", "2024-10-21", "https://gw.example.com/a", DATED),
        (
            f"{HOST}/openai/deployments/d1/chat/completions?api-version=2024-10-21",
            None,
            f"{HOST}/openai/deployments/d1",
            "{path}?api-version=2024-10-21",
        ),
    ],
)
def test_addresses(endpoint: str, version: str | None, base: str, template: str) -> None:
    assert azure_address(endpoint, version) == (base, template)


def test_a_deployment_needs_a_dated_version() -> None:
    with pytest.raises(ConfigError, match="AZURE_OPENAI_API_VERSION"):
        azure_address(f"{HOST}/openai/deployments/d1")


@pytest.mark.parametrize(
    ("version", "path", "cap"),
    [
        (None, "/openai/v1/chat/completions", "max_completion_tokens"),
        (
            "2024-10-21",
            "/openai/deployments/a%2Fb/chat/completions?api-version=2024-10-21",
            "max_completion_tokens",
        ),
        (
            "2024-06-01",
            "/openai/deployments/a%2Fb/chat/completions?api-version=2024-06-01",
            "max_tokens",
        ),
    ],
)
async def test_the_api_version_determines_the_path(
    server: Server, version: str | None, path: str, cap: str
) -> None:
    asked_for: list[str] = []

    async def behave(request: web.Request) -> web.StreamResponse:
        asked_for.append(request.raw_path)
        return web.json_response(completion("hello"))

    server.behave = behave
    endpoint = server.url.removesuffix("/v1")
    client = OpenAICompatClient(endpoint, "azure-key-0123", provider="azure", api_version=version)
    await client.complete(asked(model="a/b"), timeout_seconds=5)
    await client.close()
    assert asked_for == [path]
    assert server.bodies[0]["model"] == "a/b"
    assert server.bodies[0][cap] == 50
    assert server.headers[0]["api-key"] == "azure-key-0123"
    assert "Authorization" not in server.headers[0]


async def test_the_responses_api_is_at_the_v1_address(server: Server) -> None:
    async def behave(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"status": "completed", "output": []})

    server.behave = behave
    endpoint = server.url.removesuffix("/v1")
    client = ResponsesClient(endpoint, "azure-key-0123", provider="azure")
    await client.complete(asked(), timeout_seconds=5)
    await client.close()
    assert server.paths == ["/openai/v1/responses"]
    assert server.headers[0]["api-key"] == "azure-key-0123"
