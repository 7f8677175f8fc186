"""The messages that open a run of the loop: the instructions, and the task with a hint.

The hint depends on the kind of answer that the query wants.
"""

from typing import TYPE_CHECKING

from rlm import prompts
from rlm.calls.calls import Calls
from rlm.calls.scope import Scope
from rlm.config import WEAK, RunConfig
from rlm.engine.kinds import kind_in, surely
from rlm.engine.sessions import RunSession
from rlm.engine.task import Services, Task
from rlm.errors import RLMError
from rlm.limits import Amount
from rlm.messages import PICODOLLARS
from rlm.prompts.hints import hint

if TYPE_CHECKING:
    from rlm.engine.mapreduce.asking import Asker

__all__ = ["opening"]

LARGE_BYTES = 50_000
"""In a smaller context, a poor approach costs less than asking about the kind."""

ROOM_TO_ASK = Amount(calls=50, tokens=100_000, picodollars=PICODOLLARS // 10)
"""With less than this left (ten cents), a run does not ask about the kind."""

OUTPUT_TOKENS = 512


async def opening(
    services: Services, config: RunConfig, scope: Scope, task: Task, session: RunSession
) -> tuple[str, str]:
    """Render the instructions and the task; a model may be asked which hint fits the query."""
    calls, context = services.calls, task.context
    advice = await hint_for(calls, task, scope, config)
    system = prompts.system_prompt(
        config,
        calls.info(config.model),
        calls.info(config.sub_model),
        scope.depth,
        (*services.tool_lines, *prompts.prepared_lines(session.prepared)),
        grants=bool(services.child_toolset.names),
        pictures=bool(context.pictures),
        source=context.source_kind,
    )
    first = prompts.first_message(
        task.query,
        task.description or context.described(config.preview_chars),
        look=context.first_look(config.preview_chars),
        prologue="\n\n".join(filter(None, (task.prologue, session.take_loss(), advice))),
        max_steps=config.limits.max_steps,
        protocol=config.protocol,
    )
    return system, first


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
