"""A misbehaving server and a client of it, for every test here."""

from collections.abc import AsyncIterator

import pytest

from rlm.clients.compatible import OpenAICompatClient
from tests.clients.misbehaving import Server, serving


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[OpenAICompatClient]:
    made = OpenAICompatClient(server.url)
    yield made
    await made.close()
