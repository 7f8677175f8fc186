"""Requests of one rollout, with the headers by which verifiers tells them apart."""

from collections.abc import AsyncIterator

from msgspec.structs import replace
from verifiers.v1.semantic import ACP_MODEL_REQUEST_ID_HEADER

from recursivelm_verifiers.lineage import Lineage
from rlm.clients.compatible import OpenAICompatClient
from rlm.messages import ModelInfo, Reply, Request
from rlm.protocols import current_call

__all__ = ["RolloutClient"]


class RolloutClient:
    """Send every request to the endpoint of a rollout, which records it.

    An attempt that is repeated has the same `Idempotency-Key`, so it makes one turn, not two.
    """

    def __init__(self, endpoint: str, secret: str, *, window_tokens: int | None = None) -> None:
        self.lineage = Lineage()
        self._inner = OpenAICompatClient(endpoint, secret, key_variable="the rollout's secret")
        self._info = ModelInfo(window_tokens=window_tokens)

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        marked, name = self._marked(request)
        reply = await self._inner.complete(marked, timeout_seconds=timeout_seconds)
        self.lineage.answered(name)
        return reply

    async def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncIterator[str | Reply]:
        """Yield a whole reply: nobody watches a rollout."""
        reply = await self.complete(request, timeout_seconds=timeout_seconds)
        yield reply.text
        yield reply

    def info(self, model: str) -> ModelInfo:
        return self._info

    async def close(self) -> None:
        await self._inner.close()

    def _marked(self, request: Request) -> tuple[Request, str]:
        key = current_call()
        if key is None:
            return request, ""
        name = self.lineage.asked(key)
        headers = {
            # A retry may have a smaller cap, and so be another request for the server.
            "Idempotency-Key": f"{name}.{request.max_output_tokens}",
            ACP_MODEL_REQUEST_ID_HEADER: name,
        }
        given = request.sampling.get("extra_headers") or {}
        sampling = {**request.sampling, "extra_headers": {**given, **headers}}
        return replace(request, sampling=sampling), name
