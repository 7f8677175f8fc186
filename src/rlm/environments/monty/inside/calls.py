"""Batches: their failed items become FailedReply, which a host can't make inside monty."""

from typing import Any

from rlm.environments.monty.inside.given import _rlm_ask, _rlm_async_ask

__all__ = [
    "CallFailed",
    "FailedReply",
    "ToolFailed",
    "llm_batch",
    "llm_query_batched",
    "map_query",
    "rlm_query_batched",
]

# -- sent from here --

CallFailed = RuntimeError
ToolFailed = RuntimeError


class FailedReply:
    """The place of a failed item in a batch; it reads `[call failed: reason]`."""

    failed = True

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.text = "[call failed: " + reason + "]"

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return repr(self.text)

    def __eq__(self, other: object) -> bool:
        return self.text == str(other)

    def __hash__(self) -> int:
        return hash(self.text)

    def __contains__(self, part: str) -> bool:
        return part in self.text

    def __add__(self, other: str) -> str:
        return self.text + other

    def __radd__(self, other: str) -> str:
        return other + self.text


def _rlm_replies(items: list[Any]) -> list[Any]:
    """What came from the host: texts, and a list of one reason for each item that failed."""
    return [FailedReply(item[0]) if isinstance(item, list) else item for item in items]


def llm_query_batched(*arguments: Any, **named: Any) -> list[Any]:
    return _rlm_replies(_rlm_ask("llm_query_batched", arguments, named))


def rlm_query_batched(*arguments: Any, **named: Any) -> list[Any]:
    return _rlm_replies(_rlm_ask("rlm_query_batched", arguments, named))


def map_query(*arguments: Any, **named: Any) -> list[Any]:
    return _rlm_replies(_rlm_ask("map_query", arguments, named))


async def _rlm_async_llm_query_batched(*arguments: Any, **named: Any) -> list[Any]:
    return _rlm_replies(await _rlm_async_ask("llm_query_batched", arguments, named))


async def _rlm_async_rlm_query_batched(*arguments: Any, **named: Any) -> list[Any]:
    return _rlm_replies(await _rlm_async_ask("rlm_query_batched", arguments, named))


async def _rlm_async_map_query(*arguments: Any, **named: Any) -> list[Any]:
    return _rlm_replies(await _rlm_async_ask("map_query", arguments, named))


llm_batch = llm_query_batched
_rlm_async_llm_batch = _rlm_async_llm_query_batched
