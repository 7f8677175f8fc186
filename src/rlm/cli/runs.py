"""Commands about recorded runs: `rlm runs`, `rlm show`, `rlm export` and `rlm rm`."""

from pathlib import Path
from typing import Any

import click

from rlm.cli._options import (
    WholeNumber,
    above_zero,
    complete_recorded,
    complete_runs,
    recorded_or_last_argument,
)

__all__ = ["export", "rm", "runs", "show"]

RUNS_EXAMPLES = """\b
Examples:
  rlm runs
  rlm runs --status interrupted
  rlm runs --where "tag=good and cost<0.01"
  rlm runs --all --json | jq '.[] | select(.cost_usd > 1) | .run_id'

\b
Statuses: running; interrupted (its process was killed); answer, passages, steps,
limit, cancelled or error, as the run ended. All but running, answer and passages
can be resumed.
"""

STATUSES = ("running", "interrupted", "answer", "passages", "steps", "limit", "cancelled", "error")


class Status(click.types.StringParamType):
    """A status, or another word for it that `--where` understands too, such as failed."""

    name = "status"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the word that `rlm runs` shows."""
        from rlm.records.judging.where import STATUSES as WORDS

        return click.Choice(STATUSES).convert(WORDS.get(value.lower(), value), param, ctx)


where_option = click.option(
    "--where",
    metavar="CONDITION",
    help="Only runs that match, such as 'score>0.8' or 'tag=good and not status=error'.",
)


@click.command(epilog=RUNS_EXAMPLES)
@click.option("--json", "as_json", is_flag=True, help="Print the runs as one JSON array.")
@click.option("--all", "every", is_flag=True, help="Show all runs.")
@click.option(
    "-n",
    "--number",
    type=WholeNumber(min=1),
    default=20,
    metavar="N",
    help="Show at most N runs (default 20).",
)
@click.option(
    "--status",
    type=Status(),
    metavar="STATUS",
    help="Show only runs with this status, such as interrupted.",
)
@where_option
def runs(as_json: bool, every: bool, number: int, status: str | None, where: str | None) -> None:
    """List the recorded runs, newest first.

    The first column is what `rlm show`, `rlm resume` and other commands accept as RUN. They also
    accept the first or last part of a run's id, and the word last.
    """
    from rlm.cli import _listing

    _listing.show_runs(as_json=as_json, most=None if every else number, status=status, where=where)


SHOW_EXAMPLES = """\b
Examples:
  rlm show
  rlm show --step 2
  rlm show logs/rlm_20261115-093000-123-5d41402a.jsonl
  rlm show 5d41402a --json | jq -r 'select(.type == "call_ended") | .reply'
"""


@click.command(epilog=SHOW_EXAMPLES)
@recorded_or_last_argument
@click.option(
    "--step",
    type=WholeNumber(min=0),
    help="Show only this step, in full; 0 is everything before the first step.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print all events as JSON lines, including those of child runs.",
)
def show(recorded: str, step: int | None, as_json: bool) -> None:
    """Show what a run did, step by step.

    RUN is the id of a run, its first or last part, or the word last, which is the default; the id
    of a child run works too. LOG is a file or folder written by --log-dir
    or RLMLogger.
    """
    from rlm.cli import _showing

    _showing.show_recorded(recorded, step=step, as_json=as_json)


FORMATS = ("sft", "trl", "openai-chat", "markdown", "html", "reference-jsonl")

EXPORT_EXAMPLES = """\b
Formats:
  sft              one row per reply to a step or call: what it answers, and its origin
  trl              the same in the columns that TRL's trainers and datasets read
  openai-chat      one conversation per run, for OpenAI fine-tuning
  markdown, html   a report to read and to share
  reference-jsonl  a log as the reference engine writes it

\b
Examples:
  rlm export last --format html -o report.html
  rlm export logs/ --format sft > turns.jsonl
  rlm export --format sft --where "score>0.8 and not tag=draft" > turns.jsonl

\b
Conditions compare score, tag, status, model, cost, tokens, steps, seconds, query,
answer, comment and id with = != < <= > >= and ~ (contains); and, or, not, ( ).
"""


@click.command(epilog=EXPORT_EXAMPLES)
@click.argument("recorded", nargs=-1, metavar="[RUN|LOG]...", shell_complete=complete_recorded)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    metavar="FORMAT",
    required=True,
    help="sft, trl, openai-chat, markdown, html or reference-jsonl.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write to FILE, readable only by you, instead of standard output.",
)
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
@where_option
@click.pass_context
def export(
    ctx: click.Context,
    recorded: tuple[str, ...],
    form: str,
    output: Path | None,
    force: bool,
    where: str | None,
) -> None:
    """Export runs, to share them or to train on them.

    Child runs are included. RUN is the id of a run, its first or last part, or the word last.
    LOG is a file or folder written by --log-dir or RLMLogger. The context itself is not exported,
    but what cells printed of it and the prompts of calls are: check before you share. With --where
    and without a name, all recorded runs that match are exported. Tags, scores and comments of
    `rlm judge` and the viewer are exported with their runs, except to openai-chat and
    reference-jsonl, which have no place for them.
    """
    from rlm.cli import _exporting

    if not recorded and where is None:
        raise click.UsageError("name a run or a log, or choose recorded runs with --where", ctx)
    _exporting.export_recorded(recorded, form, output, force=force, where=where)


RM_EXAMPLES = """\b
Examples:
  rlm rm last
  rlm rm 5d41402a 7215ee9c
  rlm rm --older-than 7 --status error
  rlm rm --all --yes
"""


@click.command(epilog=RM_EXAMPLES)
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=complete_runs)
@click.option("--all", "every", is_flag=True, help="Remove all runs.")
@click.option(
    "--older-than",
    type=above_zero,
    metavar="N",
    help="Remove runs untouched for N days.",
)
@click.option(
    "--status",
    type=Status(),
    metavar="STATUS",
    help="Remove runs with this status, such as error.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_context
def rm(
    ctx: click.Context,
    runs: tuple[str, ...],
    every: bool,
    older_than: float | None,
    status: str | None,
    yes: bool,
) -> None:
    """Remove recorded runs.

    RUN is the id of a run, its first or last part, or the word last. Contexts that no other
    run uses are removed too. A run in progress is not removed. The ids of removed runs are printed.
    The oldest runs are also removed automatically: after 30 days, or when there are more than
    1,000 runs or 10 GiB.
    """
    from rlm.cli import _listing

    chosen = every or older_than is not None or status is not None
    if bool(runs) == chosen:
        raise click.UsageError(
            "name runs, or choose them with --all, --older-than or --status", ctx
        )
    if every and (older_than is not None or status is not None):
        raise click.UsageError("--all cannot be combined with --older-than or --status", ctx)
    ctx.exit(_listing.remove_runs(runs, older_than, status, yes=yes))
