"""Commands that run a record again: `rlm resume`, `rlm fork` and `rlm replay`."""

from typing import Any

import click

from rlm.cli._options import (
    SOURCE,
    WholeNumber,
    exclusive,
    of_going_on,
    recorded_argument,
    run_argument,
    run_or_last_argument,
)

__all__ = ["fork", "replay", "resume"]

RESUME_EXAMPLES = """\b
Examples:
  rlm resume
  rlm resume 5d41402a --max-steps 60
  rlm resume 20261115-093000-123-5d41402a --json

\b
Exit codes are those of `rlm ask`.
"""


@click.command(epilog=RESUME_EXAMPLES)
@run_or_last_argument
@of_going_on
@click.pass_context
def resume(ctx: click.Context, /, run: str, **given: Any) -> None:
    """Continue a run that was interrupted.

    It may have been killed, cancelled with Ctrl-C, ended by an error, or stopped at a limit. RUN is
    the id of a run, its first or last part, or the word last, which is the default; `rlm runs`
    lists them. The query, context, models and settings come from the record;
    keys and addresses come from the environment, as for `rlm ask`. Replies that were paid for are
    not requested again. A run that has an answer prints it again, at no cost.
    """
    from rlm.cli._records import archive, find_run
    from rlm.cli._resuming import ResumeOptions, resume_run

    exclusive(ctx, quiet=given["quiet"], verbose=given["verbose"])
    exclusive(ctx, file=bool(given["files"]), db=bool(given["db"]))
    kept = archive()
    ctx.exit(resume_run(kept, find_run(kept, run), ResumeOptions(**given)))


FORK_EXAMPLES = """\b
Examples:
  rlm fork last --step 3
  rlm fork 5d41402a --step 2 --edit better.py
  echo 'FINAL("42")' > answer.py && rlm fork last --step 4 --edit answer.py
  rlm fork last --step 3 --no-run

\b
Exit codes are those of `rlm ask`.
"""


@click.command(epilog=FORK_EXAMPLES)
@run_argument
@click.option(
    "--step",
    type=WholeNumber(min=1),
    required=True,
    help="The step at which the new run begins.",
)
@click.option(
    "--edit",
    type=click.Path(allow_dash=True, path_type=str),
    metavar="FILE",
    help="Use the text of FILE as the reply of that step (code if it ends in .py; - reads stdin).",
)
@click.option(
    "--no-run", is_flag=True, help="Create the new run without running it, and print its id."
)
@of_going_on
@click.pass_context
def fork(
    ctx: click.Context, /, run: str, step: int, edit: str | None, no_run: bool, **given: Any
) -> None:
    """Start a new run from a step of another run.

    RUN is the id of a run, its first or last part, or the word last; it is not changed. The new
    run shares the earlier steps, which cost nothing. --edit supplies the reply of the step;
    without it, the model is asked again.
    """
    from rlm.cli._resuming import ResumeOptions, fork_run

    exclusive(ctx, quiet=given["quiet"], verbose=given["verbose"])
    exclusive(ctx, file=bool(given["files"]), db=bool(given["db"]))
    if edit == "-" and "-" in given["files"]:
        raise click.UsageError("--edit and -f can't both read stdin", ctx)
    ctx.exit(fork_run(run, step, edit, ResumeOptions(**given), only_make=no_run))


REPLAY_EXAMPLES = """\b
Examples:
  rlm replay last
  rlm replay logs/rlm_20261115-093000-123-5d41402a.jsonl -f contract.txt

\b
Exit codes: 0 nothing differed, 1 something differed or failed.
"""


@click.command(epilog=REPLAY_EXAMPLES)
@recorded_argument
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    type=SOURCE,
    help="The context, if it was not recorded; a different one shows what would change.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@click.pass_context
def replay(ctx: click.Context, recorded: str, files: tuple[str, ...], as_json: bool) -> None:
    """Execute a recorded run again without a model, and compare.

    RUN is the id of a run, its first or last part, or the word last. LOG is a file written by
    --log-dir or RLMLogger.

    Models and tools answer from the record; the code of cells really runs, in the sandbox. Nothing
    is sent, and it costs nothing. The first difference is shown as a diff.
    """
    from rlm.cli import _replaying

    ctx.exit(_replaying.replay_recorded(recorded, files, as_json=as_json))
