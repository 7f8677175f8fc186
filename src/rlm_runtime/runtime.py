"""`RLM(adapter=…).run(query, context)`: one run of the engine, and what it did."""

import os
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rlm import api
from rlm.calls.cache import ReplyCache, as_cache
from rlm.config import Guards
from rlm.errors import PolicyError
from rlm.portal import portal
from rlm.wiring.registry import setup_code_of
from rlm.worker.runtime_names import CELL_NAMES
from rlm_runtime.context import Context
from rlm_runtime.policy import Policy
from rlm_runtime.trace import Trace

__all__ = ["RLM"]


class RLM:
    """Answers queries about contexts with an adapter's model, under a policy.

    `cache` (a folder, True for the usual one, or a ReplyCache) replays sub-calls; `max_tokens` caps
    one reply to the run itself. Further keywords are the fields of `Guards` and those of `rlm.RLM`.
    """

    def __init__(
        self,
        adapter: Any,
        policy: Policy | None = None,
        cache: bool | str | Path | ReplyCache | None = None,
        *,
        subcall_adapter: Any = None,
        max_tokens: int = 8_192,
        **options: Any,
    ) -> None:
        guards = {name: options.pop(name) for name in Guards.__struct_fields__ if name in options}
        options = {"strategy": "rlm", "preview_chars": 0, **options}
        options |= setup_code_of(options.get("setup_code"), options.get("environment_kwargs"))
        options["setup_code"] = f"{CELL_NAMES}\n{options['setup_code'] or ''}"
        self._engine = api.RLM(
            adapter,
            sub_model=subcall_adapter,
            limits=replace((policy or Policy()).limits(), step_output_tokens=max_tokens),
            guards=Guards(**guards),
            cache=_replaying(cache),
            **options,
        )

    def run(self, query: str, context: Context | str) -> tuple[str, Trace]:
        """Return the answer and its trace; at a limit, raise its PolicyError.

        It has the best answer available as `partial_answer`, and the `trace`.
        """
        return portal().call(lambda: self.arun(query, context))

    async def arun(self, query: str, context: Context | str) -> tuple[str, Trace]:
        """Run asynchronously. Cells find the text as `P`, several documents as `context`."""
        given = Context.from_text(context) if isinstance(context, str) else context
        value = list(given.documents) if given.num_documents() > 1 else given.text
        result = await self._engine.aask(query, value)
        trace, why = Trace.of(result.events), result.detail or result.stop_reason
        answer = None if result.answer is None else str(result.answer)
        kind = {each.limit: each for each in PolicyError.__subclasses__()}.get(result.limit or "")
        if kind is None and answer is not None:
            return answer, trace
        raise (kind or PolicyError)(why, partial_answer=answer, trace=trace)

    def close(self) -> None:
        """Release connections and sessions; otherwise this happens at exit."""
        self._engine.close()


def _replaying(cache: bool | str | Path | ReplyCache | None) -> ReplyCache | None:
    """Return a cache of the replies to all sub-calls, and to nothing else, in a folder."""
    if isinstance(cache, ReplyCache):
        return cache
    usual = as_cache(cache, os.environ)
    return usual and ReplyCache(usual.folder, always=True, calls_only=True)
