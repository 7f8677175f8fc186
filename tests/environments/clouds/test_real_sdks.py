"""The real SDKs against a server here: what they send for our options, and how refusals end.

Modal is left out: it speaks gRPC, which no small server plays.
"""

import importlib.util
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rlm.errors import ConfigError, SessionDied
from rlm.testing.conformance.bench import SuiteHost
from tests.environments.clouds.clouds import CLOUDS, KEY

ADDRESSES = {"prime": "PRIME_API_BASE_URL", "e2b": "E2B_API_URL", "daytona": "DAYTONA_API_URL"}
INSTALLED = [
    name for name in ADDRESSES if importlib.util.find_spec(CLOUDS[name].environment.package)
]
if not INSTALLED:
    pytest.skip(
        "no SDK with an HTTP API is installed here; `make test-clouds` has them",
        allow_module_level=True,
    )

# Two of the SDKs are told by their own libraries that something of theirs will change.
pytestmark = [
    pytest.mark.parametrize("name", INSTALLED),
    pytest.mark.filterwarnings("default::DeprecationWarning"),
]

SENT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "prime": (
        {"network_allowlist": [], "timeout_minutes": 60, "vm": True},
        {"timeout_minutes": 60},
    ),
    "e2b": ({"allow_internet_access": False, "timeout": 3_600}, {"allow_internet_access": True}),
    "daytona": (
        {"networkBlockAll": True, "ttlMinutes": 60, "autoDeleteInterval": 0},
        {"networkBlockAll": False},
    ),
}


class Api:
    """Answers every request alike, and keeps the bodies of those that create something."""

    def __init__(self) -> None:
        self.status = 401
        self.bodies: list[dict[str, Any]] = []

    async def answer(self, request: web.Request) -> web.Response:
        if request.method == "POST":
            self.bodies.append(json.loads(await request.text() or "{}"))
        told = {"code": self.status, "message": "no, says the server"}
        return web.json_response(told, status=self.status)


@pytest.fixture
async def api(name: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    api = Api()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.answer)
    async with TestServer(app) as server:
        monkeypatch.setenv(ADDRESSES[name], str(server.make_url("/")).rstrip("/"))
        monkeypatch.setenv(CLOUDS[name].environment.key_names[0], KEY)
        yield api


async def test_a_rejected_key_is_a_config_error(name: str, api: Api) -> None:
    environment = CLOUDS[name].environment()
    with pytest.raises(ConfigError, match=f"{name} refused: ") as caught:
        await environment.open(SuiteHost(), {})
    assert KEY not in str(caught.value)
    assert environment.key_help in str(caught.value)
    assert len(api.bodies) == 1


async def test_a_server_error_is_reported(name: str, api: Api) -> None:
    api.status = 400
    with pytest.raises(SessionDied, match=f"{name}: no sandbox could be created: "):
        await CLOUDS[name].environment().open(SuiteHost(), {})


async def test_isolation_settings_are_sent_to_the_provider(name: str, api: Api) -> None:
    choices: tuple[dict[str, Any], ...] = ({}, {"network_access": True})
    for options, expected in zip(choices, SENT[name], strict=True):
        api.bodies.clear()
        with pytest.raises(ConfigError):
            await CLOUDS[name].environment(**options).open(SuiteHost(), {})
        body = api.bodies[0]
        assert {key: body.get(key) for key in expected} == expected, body
    assert name != "prime" or "network_allowlist" not in body
