"""What the host gives monty beside the files here; stands in for it where CPython reads them."""

from typing import Any

__all__: list[str] = []

_rlm_max_chars = 10_000_000


def _rlm_ask(name: str, arguments: Any, named: dict[str, Any]) -> Any:
    raise NotImplementedError(name)


async def _rlm_async_ask(name: str, arguments: Any, named: dict[str, Any]) -> Any:
    raise NotImplementedError(name)
