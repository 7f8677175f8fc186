"""The messages that open a run of the loop: the instructions, and the task."""

from rlm import prompts
from rlm.calls.scope import Scope
from rlm.config import RunConfig
from rlm.engine.hints import hint_for
from rlm.engine.sessions import RunSession
from rlm.engine.task import Services, Task

__all__ = ["opening"]


async def opening(
    services: Services, config: RunConfig, scope: Scope, task: Task, session: RunSession
) -> tuple[str, str]:
    """Render the instructions and the task; a model may be asked which hint fits the query."""
    calls, context = services.calls, task.context
    hint = await hint_for(calls, task, scope, config)
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
        prologue="\n\n".join(filter(None, (task.prologue, session.take_loss(), hint))),
        max_steps=config.limits.max_steps,
        protocol=config.protocol,
    )
    return system, first
