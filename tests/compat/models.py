"""A model of the reference's kind for tests: answers from a script, and counts."""

import threading
from typing import Any

from rlm.clients.base_lm import BaseLM
from rlm.core.types import ModelUsageSummary, UsageSummary


class ScriptedLM(BaseLM):
    """Answers in order; a function answers by the prompt. Every request uses 100 and 2 tokens."""

    def __init__(self, *replies: Any, cost: float | None = None, name: str = "scripted") -> None:
        super().__init__(model_name=name)
        self.replies = list(replies)
        self.prompts: list[Any] = []
        self.cost = cost
        self._lock = threading.Lock()

    def completion(self, prompt: Any) -> str:
        with self._lock:
            self.prompts.append(prompt)
            reply = self.replies[0] if callable(self.replies[0]) else self.replies.pop(0)
        answer: str = reply(prompt) if callable(reply) else reply
        return answer

    async def acompletion(self, prompt: Any) -> str:
        return self.completion(prompt)

    def get_usage_summary(self) -> UsageSummary:
        return UsageSummary({self.model_name: self._used(len(self.prompts))})

    def get_last_usage(self) -> ModelUsageSummary:
        return self._used(1)

    def _used(self, count: int) -> ModelUsageSummary:
        cost = None if self.cost is None else self.cost * count
        return ModelUsageSummary(count, 100 * count, 2 * count, cost)
