"""`rlm rm`: remove runs that are kept here. Here are its options."""

import click

from rlm.cli._options import above_zero, complete_runs
from rlm.cli.runs import STATUSES

__all__ = ["rm"]

EXAMPLES = """\b
Examples:
  rlm rm last
  rlm rm 5d41402a 7215ee9c
  rlm rm --older-than 7 --status error
  rlm rm --all --yes
"""


@click.command(epilog=EXAMPLES)
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=complete_runs)
@click.option("--all", "every", is_flag=True, help="All of them.")
@click.option(
    "--older-than",
    type=above_zero,
    metavar="DAYS",
    help="Those that nothing happened to for so many days.",
)
@click.option(
    "--status",
    type=click.Choice(STATUSES),
    metavar="STATUS",
    help="Those of this status, such as error.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def rm(
    ctx: click.Context,
    runs: tuple[str, ...],
    every: bool,
    older_than: float | None,
    status: str | None,
    yes: bool,
) -> None:
    """Remove runs that are kept here.

    RUN is a run's id, a beginning or an end of it, or the word last. Contexts that no other run has
    go with them. A run that somebody is running is not removed. The ids of those that are gone are
    printed. Without this command, the oldest go
    by themselves: after 30 days, or when there are more than 1,000, or more than 10 GiB.
    """
    from rlm.cli import _removing

    chosen = every or older_than is not None or status is not None
    if bool(runs) == chosen:
        raise click.UsageError("name runs, or choose them by --all, --older-than or --status", ctx)
    if every and (older_than is not None or status is not None):
        raise click.UsageError("--all leaves nothing to choose by", ctx)
    ctx.exit(_removing.remove_runs(runs, older_than, status, yes=yes))
