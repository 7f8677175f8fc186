"""`rlm bench`: tasks with known answers, by several methods and sizes."""

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from rlm.cli._options import (
    WholeNumber,
    above_zero,
    environment_option,
    environment_settings_option,
    exclusive,
    max_depth_option,
    model_option,
    price_option,
    quiet_option,
    sub_model_option,
)

__all__ = ["bench"]

EXAMPLES = """\b
Examples:
  rlm bench list
  rlm bench run s-niah -m offline/extractive --size 8k,32k --n 5 --out first
  rlm bench run oolong -m openai/gpt-5-mini --quick
  rlm bench run s-niah/single,depth=50 oolong -m openai/gpt-5-mini --size 8k,128k,1M
  rlm bench run codeqa,tree=src graphwalks --method rlm,plain --budget-usd 5
  rlm bench report first
  rlm bench generate multihop --size 128k --n 50 --out dataset
"""

tasks_argument = click.argument("tasks", nargs=-1, required=True, metavar="TASK...")
size_option = click.option(
    "--size",
    "sizes",
    default="8k",
    metavar="SIZES",
    show_default=True,
    help="Context sizes in tokens, such as 8k,32k,1M; four characters count as one token.",
)
count_option = click.option(
    "--n",
    "count",
    type=WholeNumber(1, 100_000),
    default=20,
    show_default=True,
    help="Run N samples of each task, variant and size.",
)
seed_option = click.option(
    "--seed",
    type=WholeNumber(min=0),
    default=0,
    help="The seed of the first sample; the others use the following seeds.",
)


@click.group(epilog=EXAMPLES)
def bench() -> None:
    """Evaluate models and methods on tasks with known answers."""


@bench.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the tasks as one JSON array.")
def list_tasks(as_json: bool) -> None:
    """List tasks, their variants and how answers are scored."""
    from rlm.cli._benching import show_tasks

    show_tasks(as_json=as_json)


@bench.command()
@tasks_argument
@size_option
@count_option
@seed_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="The folder for samples.jsonl and the contexts.",
)
@quiet_option
def generate(
    tasks: tuple[str, ...], sizes: str, count: int, seed: int, out: Path, quiet: bool
) -> None:
    """Write the samples of each TASK into a folder, for other engines."""
    from rlm.cli._benching import write_samples

    write_samples(tasks, sizes, count, seed, out, quiet=quiet)


@bench.command(short_help="Answer samples, score the answers, write a report.")
@tasks_argument
@model_option
@sub_model_option
@size_option
@count_option
@click.option("--quick", is_flag=True, help="A first try: 2 samples instead of --n.")
@seed_option
@click.option(
    "--method",
    "methods",
    default="rlm",
    metavar="METHODS",
    show_default=True,
    help="rlm, plain (one call with everything in it), mapreduce or operators (oolong/counting); "
    "separate several with commas.",
)
@click.option(
    "--concurrency",
    type=WholeNumber(1, 500),
    default=4,
    show_default=True,
    help="Run N samples at the same time; they share one scheduler and one budget.",
)
@click.option(
    "--budget-usd",
    type=above_zero,
    metavar="USD",
    help="At most this many US dollars for the whole folder, including those already spent.",
)
@price_option
@environment_option
@environment_settings_option
@click.option("--max-steps", type=WholeNumber(min=1), help="At most N steps per run.")
@max_depth_option
@click.option("--max-tokens", type=WholeNumber(min=1), help="At most N tokens per run tree.")
@click.option(
    "--timeout", type=above_zero, metavar="SECONDS", help="At most this many seconds per run."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default="bench-results",
    show_default=True,
    help="The folder for results; a repeated command runs only what is missing.",
)
@click.option("--keep-runs", is_flag=True, help="Keep the journals of finished trials.")
@quiet_option
@click.pass_context
def run(ctx: click.Context, /, quick: bool, **given: Any) -> None:
    """Answer samples of each TASK, score the answers, and write a report.

    A TASK is a name from `rlm bench list`, with or without a variant: s-niah, s-niah/single.
    Options of a task follow after commas: s-niah/single,depth=50. Name a task of your own as
    file.py:Class.
    """
    from rlm.cli._benching import QUICK_COUNT, Options, run_bench

    if quick:
        is_given = ctx.get_parameter_source("count") is not ParameterSource.DEFAULT
        exclusive(ctx, quick=True, n=is_given)
        given["count"] = QUICK_COUNT
    ctx.exit(run_bench(Options(**given)))


@bench.command(short_help="Write a report with charts, comparing results.")
@click.argument(
    "folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FOLDER..."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Write the report and its pictures to this folder (default: the first FOLDER).",
)
def report(folders: tuple[Path, ...], out: Path | None) -> None:
    """Write a report in Markdown with SVG pictures, comparing one or more FOLDERs."""
    from rlm.bench.report import write_report

    click.echo(str(write_report(folders, out or folders[0])))
