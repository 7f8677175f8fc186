"""Options and arguments that several commands share; light, because `--help` loads them."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

__all__ = [
    "above_zero",
    "complete_models",
    "complete_recorded",
    "complete_runs",
    "environment_option",
    "environment_settings_option",
    "exclusive",
    "key_and_value",
    "max_depth_option",
    "model_option",
    "of_going_on",
    "price_option",
    "prices",
    "quiet_option",
    "recorded_argument",
    "run_argument",
    "strategy_option",
    "sub_model_option",
    "verbose_option",
]

Command = TypeVar("Command", bound=Callable[..., Any])

PROPOSED = 20
"""So many runs are proposed to a shell, the newest first."""


def prices(value: str) -> tuple[float, float]:
    """`IN,OUT`: two numbers, neither negative."""
    try:
        first, second = (float(part) for part in value.split(","))
    except ValueError:
        first = second = math.nan
    if not (0 <= first < math.inf and 0 <= second < math.inf):
        raise click.BadParameter(f"{value!r} is not two prices such as 0.25,2")
    return first, second


def key_and_value(text: str) -> tuple[str, Any]:
    """`KEY=VALUE`; the value is read as JSON where it is JSON."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise click.BadParameter(f"{text!r} is not KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def above_zero(value: str) -> float:
    """A finite number above zero."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise click.BadParameter(f"{value!r} is not a number above 0")
    return number


def exclusive(ctx: click.Context, **given: object) -> None:
    """Complain if more than one of these was given."""
    named = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if len(named) > 1:
        raise click.UsageError(f"{' and '.join(named)} exclude each other", ctx)


def complete_models(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """For the shell: the providers, each with its slash."""
    from rlm.wiring.registry import PROVIDERS

    return [f"{name}/" for name in [*PROVIDERS, "offline"] if name.startswith(incomplete)]


# -- which run ------------------------------------------------------------------------------------


def complete_runs(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """For the shell: `last`, short ids and ids that begin like that, with what was asked."""
    from rlm.cli._records import archive, newest_first, short_id
    from rlm.errors import ConfigError
    from rlm.records.recorders.console import one_line

    items = [CompletionItem("last", help="the newest run")] if "last".startswith(incomplete) else []
    try:
        kept = archive()
        runs = newest_first(kept.places)
    except (ConfigError, OSError):
        return items
    found = [
        (run, name)
        for run in runs
        for name in dict.fromkeys((short_id(run.run_id, runs), run.run_id if incomplete else ""))
        if name and name.startswith(incomplete)
    ]
    for run, name in found[:PROPOSED]:
        try:
            summary = kept.summary(run)
            told = one_line(f"{summary.status}: {summary.query}", 60)
        except ConfigError:
            told = "can't be read"
        items.append(CompletionItem(one_line(name), help=told))
    return items


def complete_recorded(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Runs, and files that may be logs."""
    return [*complete_runs(ctx, parameter, incomplete), CompletionItem(incomplete, type="file")]


# What several commands have in the same words.
model_option = click.option(
    "-m",
    "--model",
    shell_complete=complete_models,
    help="provider/model; else RLM_MODEL, the first key's, a local server's, the offline one.",
)
sub_model_option = click.option(
    "--sub-model",
    shell_complete=complete_models,
    help="The model for calls made from cells; else RLM_SUB_MODEL, else the model.",
)
environment_option = click.option(
    "--environment", default="local", help="Where model-written code runs."
)
environment_settings_option = click.option(
    "--environment-option",
    "environment_options",
    type=key_and_value,
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the environment, as image=python:3.13-slim; may be given several times.",
)
max_depth_option = click.option(
    "--max-depth",
    type=click.IntRange(min=1),
    help="Levels that own a REPL; 1 means no child runs.",
)
price_option = click.option(
    "--price",
    type=prices,
    metavar="IN,OUT",
    help="What the models cost, in US dollars per million tokens.",
)
strategy_option = click.option(
    "--strategy", type=click.Choice(["rlm", "direct", "mapreduce", "auto"]), default="rlm"
)
quiet_option = click.option("--quiet", is_flag=True, help="Nothing on stderr but errors.")
verbose_option = click.option(
    "--verbose", is_flag=True, help="Also the code and the output of cells, on stderr."
)

run_argument = click.argument("run", shell_complete=complete_runs)
recorded_argument = click.argument("recorded", metavar="RUN|LOG", shell_complete=complete_recorded)


# -- going on with one ----------------------------------------------------------------------------

_GOING_ON = (
    click.option(
        "-f",
        "--file",
        "files",
        multiple=True,
        type=click.Path(allow_dash=True, path_type=str),
        help="The context once more, if it is not kept any more; it must be the same.",
    ),
    click.option(
        "--max-steps",
        type=click.IntRange(min=1),
        help="Steps of the root run, those it has made included.",
    ),
    click.option(
        "--max-depth", type=click.IntRange(min=1), help="Levels that own a REPL, from here on."
    ),
    click.option(
        "--budget-usd",
        type=above_zero,
        metavar="USD",
        help="US dollars for the whole run tree, those it has spent included.",
    ),
    click.option(
        "--price",
        type=prices,
        metavar="IN,OUT",
        help="What the models cost, in US dollars per million tokens.",
    ),
    click.option(
        "--max-tokens",
        type=click.IntRange(min=1),
        help="Tokens of the whole run tree, those it has used included.",
    ),
    click.option(
        "--timeout", type=above_zero, metavar="SECONDS", help="Seconds from now on, for all of it."
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object."),
    click.option(
        "--log-dir",
        type=click.Path(path_type=Path),
        help="A folder for a log of every event of the run, as JSON lines.",
    ),
    quiet_option,
    verbose_option,
)


def of_going_on(command: Command) -> Command:
    """The options of commands that go on with a run: `rlm resume` and `rlm fork`."""
    for option in reversed(_GOING_ON):
        command = option(command)
    return command
