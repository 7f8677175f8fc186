"""`rlm fork`: go on from a step of a run with another reply. Here are its options."""

from typing import Any

import click

from rlm.cli._options import exclusive, of_going_on, run_argument

__all__ = ["fork"]

EXAMPLES = """\b
Examples:
  rlm fork last --step 3
  rlm fork 5d41402a --step 2 --edit better.py
  echo 'FINAL("42")' > answer.py && rlm fork last --step 4 --edit answer.py
  rlm fork last --step 3 --no-run

\b
Exit codes are those of `rlm ask`.
"""


@click.command(epilog=EXAMPLES)
@run_argument
@click.option("--step", type=click.IntRange(min=1), required=True, help="Where the new run parts.")
@click.option(
    "--edit",
    type=click.Path(allow_dash=True, path_type=str),
    metavar="FILE",
    help="Another reply for that step; code if it ends in .py; - reads stdin.",
)
@click.option("--no-run", is_flag=True, help="Only make the new run, and print its id.")
@of_going_on
@click.pass_context
def fork(
    ctx: click.Context, /, run: str, step: int, edit: str | None, no_run: bool, **given: Any
) -> None:
    """Part from a run at one of its steps, and go on.

    RUN is a run's id, a beginning or an end of it, or the word last; it stays as it is. The new run
    shares the steps before, which cost nothing. At the step, the reply is what --edit says; without
    it the model is asked again.
    """
    from rlm.cli import _forking
    from rlm.cli._going_on import GoOn

    exclusive(ctx, quiet=given["quiet"], verbose=given["verbose"])
    if edit == "-" and "-" in given["files"]:
        raise click.UsageError("--edit and -f can't both read stdin", ctx)
    ctx.exit(_forking.fork_run(run, step, edit, GoOn(**given), only_make=no_run))
