"""Answer the requests of cells for data that stays on the host, such as `ctx.sql`."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rlm.calls.scope import Scope, failed
from rlm.context import StoredContext
from rlm.data import DataRefused
from rlm.errors import CallRefused, RLMError
from rlm.events import CUT, MAX_RESULT_CHARS, ToolCalled
from rlm.messages import Reply
from rlm.prompts.observation import cut

__all__ = ["RunData"]


class RunData:
    """The sources a run may ask, which are those of its contexts; `contexts` may grow."""

    def __init__(self, contexts: Mapping[str, Any], scope: Scope) -> None:
        self._contexts = contexts
        self._scope = scope

    def context(self, source_id: str) -> StoredContext:
        """Return the context with this source; CallRefused if the run has none."""
        stored = (each for each in self._contexts.values() if isinstance(each, StoredContext))
        for each in stored:
            if each.source is not None and each.source.id == source_id:
                return each
        raise CallRefused("this run has no such data", limit="kind")

    async def answer(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], Sequence[str]]:
        """Answer one request, or return what it was answered in an earlier execution.

        It counts as a call and is recorded like that of a tool.
        """
        method, given = arguments["method"], arguments["arguments"]
        if not (method.isidentifier() and method.isascii()):  # It becomes part of an event's name.
            raise _refusal("malformed request for data")
        source = self.context(arguments["source"]).source
        assert source is not None
        scope = self._scope
        scope.budget.count_call()
        encoded = json.dumps(given, sort_keys=True)
        digest = hashlib.sha256(f"{source.id}\0{method}\0{encoded}".encode()).hexdigest()[:32]
        key = scope.key("tool", digest)
        shown = given if len(encoded) <= MAX_RESULT_CHARS else {CUT: cut(encoded, MAX_RESULT_CHARS)}
        about = {"call_id": scope.call_id(key), "name": f"ctx.{method}", "arguments": shown}
        if (stored := await scope.recall(key)) is not None:
            if stored.finish_reason == "failed":
                scope.emit(ToolCalled, **about, stored=True, error=stored.text)
                raise _refusal(stored.text)
            result = cut(stored.text, MAX_RESULT_CHARS)
            scope.emit(ToolCalled, **about, result=result, stored=True)
            return {}, (stored.text,)
        started = time.monotonic()
        try:
            text = await source.answer(method, given)
        except (DataRefused, RLMError) as error:
            seconds = time.monotonic() - started
            scope.emit(ToolCalled, **about, seconds=seconds, error=str(error))
            await scope.remember(key, failed(error))
            raise _refusal(str(error)) from error
        await scope.remember(key, Reply(text=text))
        seconds = time.monotonic() - started
        scope.emit(ToolCalled, **about, result=cut(text, MAX_RESULT_CHARS), seconds=seconds)
        return {}, (text,)


def _refusal(reason: str) -> CallRefused:
    return CallRefused(reason, limit="data")
