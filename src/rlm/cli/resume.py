"""`rlm resume`: go on with a run that was interrupted. Here are its options."""

from typing import Any

import click

from rlm.cli._options import exclusive, of_going_on, run_argument

__all__ = ["resume"]

EXAMPLES = """\b
Examples:
  rlm resume last
  rlm resume 5d41402a --max-steps 60
  rlm resume 20261115-093000-123-5d41402a --json

\b
Exit codes are those of `rlm ask`.
"""


@click.command(epilog=EXAMPLES)
@run_argument
@of_going_on
@click.pass_context
def resume(ctx: click.Context, /, run: str, **given: Any) -> None:
    """Go on with a run that was interrupted.

    It may have been killed, cancelled with Ctrl-C, ended by an error, or stopped at a limit. RUN is
    a run's id, a beginning or an end of it, or the word last; `rlm runs` lists them. The query, the
    context, the models and the settings are those of the record; keys and addresses are taken from
    the environment, as `rlm ask` does. Replies that were paid for are not asked for again. A run
    that has answered prints its answer once more, for nothing.
    """
    from rlm.cli._going_on import GoOn, go_on
    from rlm.cli._records import archive, find_run

    exclusive(ctx, quiet=given["quiet"], verbose=given["verbose"])
    kept = archive()
    ctx.exit(go_on(kept, find_run(kept, run), GoOn(**given)))
