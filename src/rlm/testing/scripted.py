"""A client that answers from a script, for tests of programs that use rlm."""

import asyncio
import re
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Literal, TypeAlias

from msgspec.structs import replace

from rlm._util.text import counted
from rlm.clients._estimate import capped_reply, request_text, word_by_word
from rlm.errors import ConfigError, ModelError
from rlm.messages import ModelInfo, Price, Reply, Request, Usage

__all__ = ["Entry", "Pattern", "ScriptedClient"]

Answer: TypeAlias = str | Reply | BaseException
Entry: TypeAlias = Answer | Callable[[Request], Answer]
"""What answers a request: a text, a whole reply, an error to raise, or a function that chooses."""

Pattern: TypeAlias = str | re.Pattern[str]
"""A rule's condition on the text of the whole request: a substring or a compiled regex."""


class ScriptedClient:
    """Answers requests of any model by the first matching rule, else the next script entry.

    `requests` holds everything received, in order; `max_in_flight` is how many overlapped.
    """

    def __init__(
        self,
        script: Iterable[Entry] = (),
        rules: Iterable[tuple[Pattern, Entry]] = (),
        *,
        price: Price | None = None,
        window_tokens: int | None = None,
        profile: Literal["frontier", "standard", "small", "tiny"] = "standard",
        delay_seconds: float = 0.0,
        usage: Callable[[Request, str], Usage | None] | None = None,
    ) -> None:
        if isinstance(script, str):  # It would be a reply for each character.
            raise ConfigError(f"script is a list of replies: write ScriptedClient([{script!r}])")
        self.script = list(script)
        self.rules = list(rules)
        self.delay_seconds = delay_seconds
        self.requests: list[Request] = []
        self.in_flight = 0
        self.max_in_flight = 0
        self._info = ModelInfo(window_tokens=window_tokens, price=price, profile=profile)
        self._usage = usage
        self._next = 0
        self._lock = threading.Lock()

    def add_rule(self, pattern: Pattern, reply: Entry) -> None:
        """Add a rule after the existing ones; the first that matches answers."""
        with self._lock:
            self.rules.append((pattern, reply))

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        """Return the answer after the delay; entries are given out in order of arrival."""
        entry, delay = self._take(request), self.delay_seconds  # It may change during the wait.
        try:
            await asyncio.sleep(min(delay, timeout_seconds))
            if delay > timeout_seconds:
                raise ModelError(
                    f"{request.model} did not answer within {timeout_seconds:g} s "
                    f"(the script's delay is {delay:g} s)",
                    retryable=True,
                    ambiguous=True,
                    timed_out=True,
                )
            return self._reply(request, entry)
        finally:
            with self._lock:
                self.in_flight -= 1

    async def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        """Yield the reply word by word, then whole."""
        reply = await self.complete(request, timeout_seconds=timeout_seconds)
        async for part in word_by_word(reply):
            yield part

    def info(self, model: str) -> ModelInfo:
        return self._info

    async def close(self) -> None:
        """Do nothing."""

    def _take(self, request: Request) -> Entry:
        """Store the request and choose its entry, in one step that no other request can split."""
        with self._lock:
            self.requests.append(request)
            entry = self._matching(request_text(request))
            if entry is None:
                entry = self._from_script(request)
            self.in_flight += 1
            self.max_in_flight = max(self.max_in_flight, self.in_flight)
            return entry

    def _matching(self, text: str) -> Entry | None:
        for pattern, entry in self.rules:
            found = pattern in text if isinstance(pattern, str) else pattern.search(text)
            if found:
                return entry
        return None

    def _from_script(self, request: Request) -> Entry:
        if self._next >= len(self.script):
            raise ModelError(
                f"the script for {request.model} is exhausted: it has "
                f"{counted(len(self.script), 'entry', 'entries')}, but this is request "
                f"{len(self.requests)}; add an entry, or a rule with add_rule()"
            )
        self._next += 1
        return self.script[self._next - 1]

    def _reply(self, request: Request, entry: Entry) -> Reply:
        answer = entry(request) if callable(entry) else entry
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, Reply):
            return answer
        reply = capped_reply(request, str(answer))
        return replace(reply, usage=self._usage(request, reply.text)) if self._usage else reply
