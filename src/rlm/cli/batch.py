"""`rlm batch`: answer thousands of questions from a file into another file."""

from pathlib import Path
from typing import Any

import click

from rlm.cli._options import (
    WholeNumber,
    above_zero,
    environment_option,
    environment_settings_option,
    max_depth_option,
    model_option,
    price_option,
    quiet_option,
    setup_code_option,
    strategy_option,
    sub_model_option,
)

__all__ = ["batch"]

EXAMPLES = """\b
A row of TASKS is a JSON object: query, context or context_file (a path or list
of paths, relative to the folder of TASKS) and, optionally, id and meta.

\b
Examples:
  rlm batch tasks.jsonl
  rlm batch tasks.jsonl -o answers.jsonl --concurrency 64 --budget-usd 20
  rlm batch tasks.jsonl --on ray://head-node:10001

\b
Exit codes: 0 every row has an answer, 1 some failed or an error, 2 wrong usage,
3 the budget is used up, 4 only passages (no language model is configured),
130 Ctrl-C. The same command resumes where it stopped.
"""


@click.command(epilog=EXAMPLES)
@click.argument("tasks", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    help="Write answers to FILE, in the order of the rows (default TASKS.answers.jsonl).",
)
@click.option(
    "--concurrency",
    type=WholeNumber(min=1),
    default=16,
    show_default=True,
    help="Answer N rows at the same time.",
)
@model_option
@sub_model_option
@environment_option
@environment_settings_option
@setup_code_option
@click.option("--on", metavar="ray[://ADDRESS]", help="Run the code of cells on a Ray cluster.")
@strategy_option
@click.option("--max-steps", type=WholeNumber(min=1), help="At most N steps per row.")
@max_depth_option
@click.option(
    "--budget-usd",
    type=above_zero,
    metavar="USD",
    help="At most this many US dollars for all rows together.",
)
@click.option(
    "--max-tokens", type=WholeNumber(min=1), help="At most N tokens for all rows together."
)
@click.option(
    "--row-budget-usd", type=above_zero, metavar="USD", help="At most this many US dollars per row."
)
@click.option("--row-max-tokens", type=WholeNumber(min=1), help="At most N tokens per row.")
@click.option(
    "--row-timeout", type=above_zero, metavar="SECONDS", help="At most this many seconds per row."
)
@price_option
@click.option(
    "--schema",
    type=click.Path(path_type=Path),
    help="A file with a JSON schema that each answer must satisfy; answers are JSON.",
)
@click.option(
    "--tries",
    type=WholeNumber(min=1),
    default=2,
    show_default=True,
    help="Try a failing row at most N times each time the command is run.",
)
@click.option(
    "--failures-in-a-row",
    type=WholeNumber(min=1),
    default=25,
    show_default=True,
    help="Stop after N consecutive failed rows.",
)
@click.option(
    "--skip-bad-rows",
    is_flag=True,
    help="If some rows are invalid, answer the others instead of none; only those rows fail.",
)
@click.option("--keep-runs", is_flag=True, help="Keep the journals of answered rows.")
@click.option(
    "--overwrite", is_flag=True, help="Start over, ignoring the existing file of answers."
)
@quiet_option
@click.pass_context
def batch(ctx: click.Context, /, tasks: Path, **given: Any) -> None:
    """Answer every row of TASKS, a file of JSON lines."""
    from rlm.cli._batching import BatchOptions, answer_all

    ctx.exit(answer_all(tasks, BatchOptions(**given)))
