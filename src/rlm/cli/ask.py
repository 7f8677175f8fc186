"""`rlm ask`: one question about files, folders, or what is piped in. Here are its options."""

from pathlib import Path
from typing import Any

import click

from rlm.cli._options import (
    above_zero,
    environment_option,
    environment_settings_option,
    exclusive,
    max_depth_option,
    model_option,
    price_option,
    quiet_option,
    strategy_option,
    sub_model_option,
    verbose_option,
)

__all__ = ["ask"]

EXAMPLES = """\b
Examples:
  rlm ask "Which deadlines are named?" -f contract.txt
  rlm ask "Who wrote to whom?" -f letters/ -f 'notes/*.md'
  cat server.log | rlm ask "When did the first error happen?"
  rlm ask "List the suppliers." -f report.txt --schema suppliers.json

\b
Exit codes: 0 an answer, 1 an error, 2 wrong usage, 3 a limit, 130 Ctrl-C.
"""


@click.command(epilog=EXAMPLES)
@click.argument("query")
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    type=click.Path(allow_dash=True, path_type=str),
    help="A file, a folder, a glob pattern, or - for stdin; may be given several times.",
)
@model_option
@sub_model_option
@environment_option
@environment_settings_option
@strategy_option
@click.option("--max-steps", type=click.IntRange(min=1), help="Steps of the root run.")
@max_depth_option
@click.option(
    "--budget-usd", type=above_zero, metavar="USD", help="US dollars for the whole run tree."
)
@price_option
@click.option("--max-tokens", type=click.IntRange(min=1), help="Tokens of the whole run tree.")
@click.option("--timeout", type=above_zero, metavar="SECONDS", help="Seconds for the whole run.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option(
    "--schema",
    type=click.Path(path_type=Path),
    help="A file with a JSON schema; the answer is then JSON that satisfies it.",
)
@click.option(
    "--log-dir",
    type=click.Path(path_type=Path),
    help="A folder for a log of every event of the run, as JSON lines.",
)
@click.option(
    "--no-journal",
    "journal",
    flag_value=False,
    default=True,
    help="Keep nothing of this run on disk: then it can't be resumed. RLM_JOURNAL=0 does so too.",
)
@click.option("--view", is_flag=True, help="Show the run in a browser while it goes on.")
@quiet_option
@verbose_option
@click.pass_context
def ask(ctx: click.Context, /, query: str, **given: Any) -> None:
    """Ask QUERY about the files given, or about what is piped in."""
    from rlm.cli._asking import Options, answer

    if not query.strip():
        raise click.UsageError("QUERY is empty", ctx)
    exclusive(ctx, quiet=given["quiet"], verbose=given["verbose"])
    ctx.exit(answer(query, Options(**given)))
