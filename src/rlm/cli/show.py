"""`rlm show`: what a run did, step by step. Here are its options."""

import click

from rlm.cli._options import recorded_argument

__all__ = ["show"]

EXAMPLES = """\b
Examples:
  rlm show last
  rlm show last --step 2
  rlm show logs/rlm_20261115-093000-123-5d41402a.jsonl
  rlm show last --json | jq -r 'select(.type == "call_ended") | .reply'
"""


@click.command(epilog=EXAMPLES)
@recorded_argument
@click.option(
    "--step",
    type=click.IntRange(min=0),
    help="Only this step, in full; 0 is what came before the first.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the events, children's included, as JSON lines."
)
def show(recorded: str, step: int | None, as_json: bool) -> None:
    """Show what a run did, step by step.

    RUN is a run's id, a beginning or an end of it, or the word last; the id of a child run works
    too. LOG is a file or a folder that --log-dir or RLMLogger wrote.
    """
    from rlm.cli import _showing

    _showing.show_recorded(recorded, step=step, as_json=as_json)
