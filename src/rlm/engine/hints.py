"""The hint in the first message of a run, by the kind of answer that its query wants."""

from typing import TYPE_CHECKING

from rlm import prompts
from rlm.calls.calls import Calls
from rlm.calls.scope import Scope
from rlm.config import WEAK, RunConfig
from rlm.engine.kinds import kind_in, surely
from rlm.engine.task import Task
from rlm.errors import RLMError
from rlm.limits import Amount
from rlm.messages import PICODOLLARS
from rlm.prompts.hints import hint

if TYPE_CHECKING:
    from rlm.engine.mapreduce.asking import Asker

__all__ = ["hint_for"]

LARGE_BYTES = 50_000
"""In a smaller context, a poor approach costs less than asking about the kind."""

ROOM_TO_ASK = Amount(calls=50, tokens=100_000, picodollars=PICODOLLARS // 10)
"""With less than this left (ten cents), a run does not ask about the kind."""

OUTPUT_TOKENS = 512


async def hint_for(calls: Calls, task: Task, scope: Scope, config: RunConfig) -> str:
    """Return the hint; ask a model only if words decide nothing and much is at stake.

    Runs whose first message shows none of the context never send this extra request.
    """
    if not config.orchestrator or config.system_prompt is not None or not task.context.size_bytes:
        return ""
    kind = surely(task.query)
    if kind is None and _is_worth_asking(task, scope, config):
        from rlm.engine.mapreduce.asking import Asker

        kind = await _asked(Asker(calls, task, scope, config))
    profile = config.profile or calls.info(config.model).profile
    return hint(kind, weak=profile in WEAK)


def _is_worth_asking(task: Task, scope: Scope, config: RunConfig) -> bool:
    room = scope.budget.room()
    return (
        scope.depth == 0
        and config.preview_chars > 0
        and task.context.size_bytes > LARGE_BYTES
        and room.calls >= ROOM_TO_ASK.calls
        and room.tokens >= ROOM_TO_ASK.tokens
        and room.picodollars >= ROOM_TO_ASK.picodollars
    )


async def _asked(asker: "Asker") -> str | None:
    """Return the kind that the sub-model names, or None; a failed call must not end the run."""
    head, _ = asker.task.context.first_look(asker.config.preview_chars)
    try:
        reply = await asker.ask(prompts.kind_prompt(asker.task.query, head), OUTPUT_TOKENS)
    except RLMError:
        return None
    return kind_in(reply)
