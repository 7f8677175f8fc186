"""What a client and a tool may offer besides the required methods."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from rlm import RLM
from rlm.messages import ModelInfo, Reply, Request
from rlm.protocols import MAX_ATTEMPTS, ClientTraits
from rlm.tools import release_tools


class PlainClient:
    """Has the required methods and nothing else."""

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        return Reply(text="done")

    async def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        yield await self.complete(request, timeout_seconds=timeout_seconds)

    def info(self, model: str) -> ModelInfo:
        return ModelInfo()

    async def close(self) -> None: ...


class Delegating(PlainClient):
    """Forwards unknown attributes, as a client around another one does."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def client_with(**attributes: Any) -> PlainClient:
    client = PlainClient()
    vars(client).update(attributes)
    return client


@pytest.mark.parametrize(
    ("client", "traits"),
    [
        (PlainClient(), ClientTraits(None, MAX_ATTEMPTS)),
        (client_with(identity="here"), ClientTraits("here", MAX_ATTEMPTS)),
        (client_with(max_attempts=1), ClientTraits(None, 1)),
        (client_with(identity="", max_attempts=2), ClientTraits(None, 2)),
        (client_with(identity=5), ClientTraits(None, MAX_ATTEMPTS)),
        (Delegating(client_with(identity="inner", max_attempts=3)), ClientTraits("inner", 3)),
    ],
)
def test_traits_are_read_or_have_defaults(client: PlainClient, traits: ClientTraits) -> None:
    assert ClientTraits.of(client) == traits


async def test_a_client_with_only_the_required_methods_works() -> None:
    async with RLM(PlainClient(), strategy="direct") as engine:
        assert (await engine.aask("What?")).answer == "done"


async def test_only_tools_with_a_release_method_are_released() -> None:
    released: list[str] = []

    class Plain:
        name = description = "plain"

        async def call(self, arguments: dict[str, Any]) -> Any: ...

    class Releasable(Plain):
        name = "releasable"

        async def release(self) -> None:
            released.append(self.name)

    await release_tools([Plain(), Releasable(), Plain(), Releasable()])
    assert released == ["releasable", "releasable"]
