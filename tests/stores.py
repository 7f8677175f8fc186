"""A ReplyStore in memory, for tests."""

from collections.abc import Sequence

from rlm.messages import Reply, ReplyKey, Request, Usage
from rlm.results import Shown

__all__ = ["MemoryStore"]


class MemoryStore:
    """What one run tree knows of its earlier executions, as long as the test lasts."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {}
        self.kept: list[Usage] = []
        self.told: dict[tuple[str, int, str], Shown] = {}

    async def get(self, key: ReplyKey, request: Request | None) -> Reply | None:
        return self.replies.get(str(key))

    async def put(self, key: ReplyKey, reply: Reply) -> None:
        self.replies[str(key)] = reply

    def keep(self, key: ReplyKey, usage: Usage) -> None:
        self.kept.append(usage)

    def take_unrecalled(self) -> Sequence[tuple[ReplyKey, Usage]]:
        return ()

    async def recorded(self, path: str, step: int, what: str) -> Shown | None:
        return self.told.get((path, step, what))

    async def show(self, path: str, step: int, what: str, shown: Shown) -> str:
        self.told[path, step, what] = shown
        return shown.text
