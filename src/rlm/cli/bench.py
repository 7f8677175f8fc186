"""`rlm bench`: tasks with exact gold, by several methods and sizes. Here are its options."""

from pathlib import Path
from typing import Any

import click

from rlm.cli._options import (
    above_zero,
    environment_option,
    environment_settings_option,
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
  rlm bench run s-niah/single,depth=50 oolong -m openai/gpt-5-mini --size 8k,128k,1M
  rlm bench run codeqa,tree=src graphwalks --method rlm,plain --max-cost 5
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
    help="Sizes of contexts in tokens, as 8k,32k,1M; four characters count as one.",
)
count_option = click.option(
    "--n",
    "count",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    help="Samples of each task, variant and size.",
)
seed_option = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    help="Of the first sample; the others have the seeds that follow.",
)


@click.group(epilog=EXAMPLES)
def bench() -> None:
    """Evaluate models and methods on tasks whose right answers are known."""


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
    help="A folder for samples.jsonl and the contexts.",
)
@quiet_option
def generate(
    tasks: tuple[str, ...], sizes: str, count: int, seed: int, out: Path, quiet: bool
) -> None:
    """Write the samples of each TASK into a folder, for other engines."""
    from rlm.cli._benching import write_samples

    write_samples(tasks, sizes, count, seed, out, quiet=quiet)


@bench.command()
@tasks_argument
@model_option
@sub_model_option
@size_option
@count_option
@seed_option
@click.option(
    "--method",
    "methods",
    default="rlm",
    metavar="METHODS",
    show_default=True,
    help="rlm, plain (one call with everything in it) or mapreduce; several as rlm,plain.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 500),
    default=4,
    show_default=True,
    help="Samples at the same time; all of them share one scheduler and one budget.",
)
@click.option(
    "--max-cost",
    type=above_zero,
    metavar="USD",
    help="US dollars for the whole folder, what is spent already included.",
)
@price_option
@environment_option
@environment_settings_option
@click.option("--max-steps", type=click.IntRange(min=1), help="Steps of a run.")
@max_depth_option
@click.option("--max-tokens", type=click.IntRange(min=1), help="Tokens of a run tree.")
@click.option("--timeout", type=above_zero, metavar="SECONDS", help="Seconds for a run.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default="bench-results",
    show_default=True,
    help="A folder for the results; run again with the same, only what is missing is done.",
)
@click.option("--keep-runs", is_flag=True, help="Keep the journals of trials that are done.")
@quiet_option
@click.pass_context
def run(ctx: click.Context, /, **given: Any) -> None:
    """Answer samples of each TASK, score the answers, and write a report.

    A TASK is a name of `rlm bench list`, with or without a variant: s-niah, s-niah/single. Options
    of a task follow after commas: s-niah/single,depth=50. Your own is file.py:Class.
    """
    from rlm.cli._benching import Options, run_bench

    ctx.exit(run_bench(Options(**given)))


@bench.command()
@click.argument(
    "folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FOLDER..."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="A folder for the report and its pictures; else the first FOLDER.",
)
def report(folders: tuple[Path, ...], out: Path | None) -> None:
    """Write a report in markdown with SVG pictures, of one FOLDER or several beside each other."""
    from rlm.bench.report import write_report

    click.echo(str(write_report(folders, out or folders[0])))
