"""`rlm ask`: one question about files, folders, or piped input."""

import shlex
from pathlib import Path
from typing import Any

import click

from rlm.cli._options import (
    ADDRESS,
    SOURCE,
    WholeNumber,
    above_zero,
    db_option,
    db_schema_option,
    environment_option,
    environment_settings_option,
    exclusive,
    max_depth_option,
    max_fetch_option,
    model_option,
    price_option,
    quiet_option,
    raw_option,
    setup_code_option,
    strategy_option,
    sub_model_option,
    verbose_option,
)

__all__ = ["ask"]

EXAMPLES = """\b
Examples:
  rlm ask "Which deadlines are named?" -f contract.txt
  rlm ask "Who wrote to whom?" -f letters/ -f 'notes/*.md'
  rlm ask "Why did it fail?" -f 's3://logs/2026-03-*/*.log'
  cat server.log | rlm ask "When did the first error happen?"
  rlm ask "When does it end?" -f contract.txt --cite
  rlm ask "List the suppliers." -f report.txt --schema suppliers.json

\b
Exit codes: 0 an answer, 1 an error, 2 wrong usage, 3 a limit, 4 only passages
(no language model is configured), 130 Ctrl-C.
"""


@click.command(epilog=EXAMPLES)
@click.argument("query")
@click.argument("others", nargs=-1, expose_value=True, metavar="")
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    type=SOURCE,
    help="A file, a folder, a glob pattern, an address such as s3://bucket/logs/, or - for "
    "standard input; may be repeated.",
)
@click.option(
    "--table",
    "tables",
    multiple=True,
    type=SOURCE,
    metavar="FILE",
    help="A table for SQL: Parquet, CSV, TSV, SQLite or DuckDB, here or at an address, or a folder "
    "or glob pattern of Parquet files; may be repeated.",
)
@db_option
@db_schema_option
@max_fetch_option
@model_option
@sub_model_option
@environment_option
@environment_settings_option
@setup_code_option
@strategy_option
@click.option(
    "--preview-chars",
    type=WholeNumber(min=0),
    help="Show N characters of both ends of the context in the first message; 0 shows none.",
)
@click.option("--max-steps", type=WholeNumber(min=1), help="At most N steps of the root run.")
@max_depth_option
@click.option(
    "--budget-usd",
    type=above_zero,
    metavar="USD",
    help="At most this many US dollars for the whole run tree.",
)
@price_option
@click.option(
    "--max-tokens", type=WholeNumber(min=1), help="At most N tokens for the whole run tree."
)
@click.option(
    "--timeout",
    type=above_zero,
    metavar="SECONDS",
    help="At most this many seconds for the whole run.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option(
    "--samples",
    type=WholeNumber(1, 64),
    default=1,
    metavar="N",
    help="Answer up to N times, within the limits of one run, until most answers agree.",
)
@click.option("--cite", is_flag=True, help="Ask for citations, and print them as footnotes.")
@click.option(
    "--schema",
    type=click.Path(path_type=Path),
    help="A file with a JSON schema that the answer must satisfy; the answer is JSON.",
)
@click.option(
    "--log-dir",
    type=click.Path(path_type=Path),
    help="Write a log of every event of the run to this folder, as JSON lines.",
)
@click.option(
    "--no-journal",
    "journal",
    flag_value=False,
    default=True,
    help="Do not record this run, so that it cannot be resumed (same as RLM_JOURNAL=0).",
)
@click.option("--view", is_flag=True, help="Show the run in a browser while it is in progress.")
@raw_option
@quiet_option
@verbose_option
@click.pass_context
def ask(ctx: click.Context, /, query: str, others: tuple[str, ...], **given: Any) -> None:
    """Ask QUERY about the given files, or about piped input."""
    from rlm.cli._asking import Options, answer

    if others:
        raise click.UsageError(_meant(query, others), ctx)
    if not query.strip():
        raise click.UsageError("QUERY is empty", ctx)
    exclusive(ctx, quiet=given["quiet"], verbose=given["verbose"])
    exclusive(ctx, file=bool(given["files"]), table=bool(given["tables"]), db=bool(given["db"]))
    ctx.exit(answer(query, Options(**given)))


def _meant(query: str, others: tuple[str, ...]) -> str:
    """Say what was probably meant by arguments after the query."""
    if len(others) == 1 and Path(query).exists() and not Path(others[0]).exists():
        query, others = others[0], (query,)
    if any(Path(each).exists() or "*" in each or ADDRESS.match(each) for each in others):
        # An address may contain a secret, which does not belong on the screen.
        shown = [each.partition("?")[0] if ADDRESS.match(each) else each for each in others]
        files = " ".join(f"-f {shlex.quote(each)}" for each in shown)
        return f"name files with -f, before other options: rlm ask {shlex.quote(query)} {files}"
    query = shlex.quote(" ".join((query, *others)))
    return f"put the query in quotes, before other options: rlm ask {query}"
