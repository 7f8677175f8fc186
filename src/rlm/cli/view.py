"""`rlm view`: runs in a browser, live."""

from typing import Any

import click

from rlm.cli._options import complete_recorded
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
Ctrl-C ends it. The address that is printed has a token in it, which is needed.
From elsewhere: ssh -L 3001:localhost:3001 HOST, then open that address here.
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
    type=click.IntRange(0, 65_535),
    help="The port to listen on; 0 takes a free one.",
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
    help="The context of the runs of a log, for the coverage map; it must be the same one.",
)
@click.option(
    "--token",
    envvar="RLM_VIEW_TOKEN",
    metavar="TOKEN",
    help="The token of the address; else a new one. Better in RLM_VIEW_TOKEN, which others can't "
    "see.",
)
@click.option(
    "--record",
    is_flag=True,
    help="While this is open, record the runs of Python programs that start, with their contexts.",
)
@click.option(
    "--no-token",
    is_flag=True,
    help="Let every user of this machine in.",
)
def view(recorded: str | None, other: str | None, **given: Any) -> None:
    """Show runs in a browser, live while they are in progress.

    RUN is the id of a run, the first or last part of it, or the word last. LOG is a file, DIR a
    folder of files written by --log-dir or RLMLogger, or one of results of `rlm bench run`; LOG may
    also be the answers of `rlm batch`. Two folders of results, or two files of answers, are
    compared. Without an argument, all recorded runs are shown.
    """
    from rlm.cli._viewing import Options, serve

    serve(recorded, other, Options(**given))
