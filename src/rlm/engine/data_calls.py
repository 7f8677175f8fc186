"""Answer the requests of cells for data that stays on the host, such as `ctx.sql`."""

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rlm._util.off_loop import LONG_CHARS, off_loop
from rlm.calls.scope import Scope, failed
from rlm.context import StoredContext
from rlm.data import DataRefused, QueryLimits
from rlm.data.answers import Answered, answered, request_text
from rlm.data.requests import check_count
from rlm.engine.data_reads import DataReads
from rlm.errors import CallRefused, RLMError
from rlm.events import CUT, DATA, MAX_RESULT_CHARS, ToolCalled
from rlm.messages import Reply
from rlm.prompts.observation import cut

__all__ = ["RunData"]


class RunData:
    """The sources a run may ask, which are those of its contexts; `contexts` may grow."""

    def __init__(self, contexts: Mapping[str, Any], scope: Scope) -> None:
        self._contexts = contexts
        self._scope = scope
        self._reads: DataReads | None = None

    def context(self, source_id: str) -> StoredContext:
        """Return the context with this source; CallRefused if the run has none."""
        stored = (each for each in self._contexts.values() if isinstance(each, StoredContext))
        for each in stored:
            if each.source is not None and each.source_manifest["id"] == source_id:
                return each
        raise CallRefused("this run does not have that data", limit="kind")

    async def answer(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], Sequence[str]]:
        """Answer one request, or return its answer from an earlier execution.

        It counts as a call and is recorded like a tool call, so that a log can be replayed; what
        the cell received is also summed up in `DataRead`.
        """
        method, given = arguments["method"], arguments["arguments"]
        if not (method.isidentifier() and method.isascii()):  # It becomes part of an event's name.
            raise _refusal("malformed data request")
        context = self.context(arguments["source"])
        source = context.source
        assert source is not None
        told = context.source_manifest
        scope = self._scope
        scope.budget.count_call()
        try:
            check_count(given, QueryLimits())
        except DataRefused as refused:  # Nothing that long is stored or recorded.
            self._note_failed(told, method, given, str(refused))
            raise _refusal(str(refused)) from None
        encode = partial(_encoded, f"{told['id']}\0{method}", given)
        shown, digest = encode() if _is_short(given) else await asyncio.to_thread(encode)
        key = scope.key("tool", digest)
        about = {"call_id": scope.call_id(key), "name": f"{DATA}{method}", "arguments": shown}
        if (stored := await scope.recall(key)) is not None:
            if stored.finish_reason == "failed":
                scope.emit(ToolCalled, **about, stored=True, error=stored.text)
                self._note_failed(told, method, given, stored.text, from_journal=True)
                raise _refusal(stored.text)
            result = cut(stored.text, MAX_RESULT_CHARS)
            scope.emit(ToolCalled, **about, result=result, stored=True)
            await self._note(told, method, given, stored.text, from_journal=True)
            return {}, (stored.text,)
        started = time.monotonic()
        try:
            text = await source.answer(method, given)
        except (DataRefused, RLMError) as error:
            seconds = time.monotonic() - started
            scope.emit(ToolCalled, **about, seconds=seconds, error=str(error))
            self._note_failed(told, method, given, str(error), seconds=seconds)
            await scope.remember(key, failed(error))
            raise _refusal(str(error)) from error
        await scope.remember(key, Reply(text=text))
        seconds = time.monotonic() - started
        scope.emit(ToolCalled, **about, result=cut(text, MAX_RESULT_CHARS), seconds=seconds)
        await self._note(told, method, given, text, seconds=seconds)
        return {}, (text,)

    async def _note(
        self, told: dict[str, Any], method: str, given: dict[str, Any], text: str, **how: Any
    ) -> None:
        answer = await off_loop(len(text), lambda: answered(method, given, text))
        self._add(told, method, request_text(method, given), answer, **how)

    def _note_failed(
        self, told: dict[str, Any], method: str, given: dict[str, Any], error: str, **how: Any
    ) -> None:
        self._add(told, method, request_text(method, given), Answered(), error=error, **how)

    def _add(self, *request: Any, **how: Any) -> None:
        if self._reads is None:  # Most runs read no data.
            self._reads = DataReads(self._scope)
            self._scope.report_reads = self._reads.report
        self._reads.add(*request, **how)


def _is_short(given: dict[str, Any]) -> bool:
    """Whether arguments can be encoded at once: most are a text or two, and few parameters."""
    values = [each for name, each in given.items() if name != "parameters"]
    parameters = given.get("parameters")
    values += parameters if isinstance(parameters, list) else [parameters]
    chars = sum(len(each) for each in values if isinstance(each, str))
    return chars <= LONG_CHARS and not any(isinstance(each, list | dict) for each in values)


def _encoded(name: str, given: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return what an event shows of arguments, and the digest of a request that has them."""
    encoded = json.dumps(given, sort_keys=True)
    shown = given if len(encoded) <= MAX_RESULT_CHARS else {CUT: cut(encoded, MAX_RESULT_CHARS)}
    return shown, hashlib.sha256(f"{name}\0{encoded}".encode()).hexdigest()[:32]


def _refusal(reason: str) -> CallRefused:
    return CallRefused(reason, limit="data")
