"""`rlm view`: runs in a browser, live."""

from typing import Any

import click

from rlm.cli._options import WholeNumber, complete_recorded
from rlm.viewer import DEFAULT_PORT

__all__ = ["view"]

EXAMPLES = """\b
Examples:
  rlm view
  rlm view last --open
  rlm view logs/
  rlm view bench-results/
  rlm view --record
  rlm view bench-results/ other-results/
  rlm view answers.jsonl
  rlm view trace.jsonl --context report.txt

\b
Ctrl-C stops it. The printed address contains the token that it requires.
From another machine: ssh -L 3001:localhost:3001 HOST, then open the address.
"""


@click.command(epilog=EXAMPLES)
@click.argument(
    "recorded", required=False, metavar="[LOG|DIR|RUN]", shell_complete=complete_recorded
)
@click.argument("other", required=False, metavar="[OTHER]")
@click.option(
    "--port",
    default=DEFAULT_PORT,
    show_default=True,
    type=WholeNumber(0, 65_535),
    help="The port to listen on; 0 picks a free one.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on; a token is always required beyond this machine.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@click.option(
    "--context",
    type=click.Path(path_type=str),
    metavar="FILE",
    help="The context of a log's runs, for the coverage map; it must be the same one.",
)
@click.option(
    "--token",
    envvar="RLM_VIEW_TOKEN",
    metavar="TOKEN",
    help="The token of the address (default: a new one); safer in RLM_VIEW_TOKEN, which other "
    "users cannot see.",
)
@click.option(
    "--record",
    is_flag=True,
    help="While it is running, record Python programs that you start, with their contexts.",
)
@click.option(
    "--no-token",
    is_flag=True,
    help="Let every user of this machine in.",
)
@click.pass_context
def view(ctx: click.Context, /, recorded: str | None, other: str | None, **given: Any) -> None:
    """Show runs in a browser, live while they are in progress.

    RUN is the id of a run, its first or last part, or the word last. LOG is a file written by
    --log-dir or RLMLogger, or the answers of `rlm batch`. DIR is a folder of such logs, or the
    results of `rlm bench run`. Two folders of results, or two files of answers, are compared.
    Without an argument, all recorded runs are shown.
    """
    from rlm.cli._viewing import Options, serve

    if given["context"] is not None and recorded is None:
        raise click.UsageError(
            "--context is for the runs of one log: give the LOG too; recorded runs have theirs", ctx
        )

    serve(recorded, other, Options(**given))
