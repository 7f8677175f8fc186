"""`rlm runs`: the runs that are kept here, the newest first. Here are its options."""

import click

__all__ = ["runs"]

EXAMPLES = """\b
Examples:
  rlm runs
  rlm runs --status interrupted
  rlm runs --all --json | jq '.[] | select(.cost_usd > 1) | .run_id'

\b
Statuses: running; interrupted (its process was killed); answer, steps, limit,
cancelled or error, as the run ended. All but running and answer can be resumed.
"""

STATUSES = ("running", "interrupted", "answer", "steps", "limit", "cancelled", "error")


@click.command(epilog=EXAMPLES)
@click.option("--json", "as_json", is_flag=True, help="Print the runs as one JSON array.")
@click.option("--all", "every", is_flag=True, help="All of them, however many.")
@click.option(
    "-n", "--number", type=click.IntRange(min=1), default=20, help="At most so many; else 20."
)
@click.option(
    "--status",
    type=click.Choice(STATUSES),
    metavar="STATUS",
    help="Only those of this status, such as interrupted.",
)
def runs(as_json: bool, every: bool, number: int, status: str | None) -> None:
    """List the runs that are kept here.

    The newest come first. The first column is what `rlm show`, `rlm resume` and the others take for
    RUN; so is any other beginning or end of a run's id, and the word last.
    """
    from rlm.cli import _listing

    _listing.show_runs(as_json=as_json, most=None if every else number, status=status)
