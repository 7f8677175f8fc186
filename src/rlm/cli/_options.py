"""Options and arguments that several commands share. Light, because `--help` loads them."""

import glob
import json
import math
import os
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

__all__ = [
    "ADDRESS",
    "SOURCE",
    "Number",
    "WholeNumber",
    "above_zero",
    "complete_models",
    "complete_recorded",
    "complete_runs",
    "environment_name",
    "environment_option",
    "environment_settings_option",
    "exclusive",
    "is_pattern",
    "key_and_value",
    "max_depth_option",
    "max_fetch_option",
    "misused",
    "model_name",
    "model_option",
    "of_going_on",
    "price_option",
    "prices",
    "quiet_option",
    "raw_option",
    "recorded_argument",
    "recorded_or_last_argument",
    "run_argument",
    "run_or_last_argument",
    "setup_code_option",
    "strategy_option",
    "sub_model_option",
    "verbose_option",
]

Command = TypeVar("Command", bound=Callable[..., Any])

MAX_CODE_BYTES = 1 << 20
PROPOSED = 20
"""The number of runs offered as completions, newest first."""


class WholeNumber(click.IntRange):
    """A whole number within bounds, which help shows as N."""

    name = "whole number"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "N"


class Number(click.FloatRange):
    """A number within bounds, which help shows as N."""

    name = "number"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "N"


@contextmanager
def misused(option: str) -> Generator[None, None, None]:
    """Report what the block refuses as a value that an option does not take."""
    from rlm.errors import ConfigError

    try:
        yield
    except ConfigError as error:
        ctx = click.get_current_context(silent=True)
        raise click.BadParameter(str(error), ctx, param_hint=f"'{option}'") from error


def environment_name(value: str) -> str:
    """Check the name of an environment."""
    from rlm._util.text import no_such
    from rlm.wiring.registry import environments

    if value not in (known := environments()):
        raise click.BadParameter(no_such("environment", value, known))
    return value


def model_name(value: str) -> str:
    """Refuse an empty name: `-m "$MODEL"` without MODEL must not ask another model instead."""
    if not value.strip():
        raise click.BadParameter("the name is empty; leave the option out for the default")
    return value


def prices(value: str) -> tuple[float, float]:
    """Parse `IN,OUT`: two numbers that are not negative."""
    try:
        first, second = (float(part) for part in value.split(","))
    except ValueError:
        first = second = math.nan
    if not (0 <= first < math.inf and 0 <= second < math.inf):
        raise click.BadParameter(f"{value!r} is not two prices such as 0.25,2")
    return first, second


def is_pattern(source: str) -> bool:
    """Return whether a source is a pattern: the name of an existing file is taken literally."""
    return glob.has_magic(source) and not os.path.lexists(source)


class Source(click.Path):
    """A file, a folder, a pattern, `-`, or the address of files elsewhere."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Check an address; whether it exists is checked when it is read.

        Refuse an empty name: `-f "$FILE"` without FILE must not read the whole current folder.
        """
        if value == "":
            self.fail("the name is empty; leave it out, or name the current folder (.)", param, ctx)
        if isinstance(value, str) and ADDRESS.match(value):
            from rlm.data.places import place
            from rlm.errors import ConfigError

            try:
                place(value)
            except ConfigError as error:
                self.fail(str(error), param, ctx)
            return value
        return super().convert(value, param, ctx)


ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
SOURCE = Source(allow_dash=True, path_type=str)


def key_and_value(text: str) -> tuple[str, Any]:
    """Parse `KEY=VALUE`; the value is parsed as JSON if it is JSON."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise click.BadParameter(f"{text!r} is not KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def code_in(name: str) -> str:
    """Return the text of a Python file."""
    try:
        with Path(name).open("rb") as file:
            data = file.read(MAX_CODE_BYTES + 1)
        if len(data) > MAX_CODE_BYTES:
            raise click.BadParameter(f"{name} has more than {MAX_CODE_BYTES:,} bytes")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise click.ClickException(f"{name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{name} is not UTF-8: {error.reason}") from error


def above_zero(value: str) -> float:
    """Parse a finite number above zero."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise click.BadParameter(f"{value!r} is not a number above 0")
    return number


def exclusive(ctx: click.Context, **given: object) -> None:
    """Raise a usage error if more than one of these options was given."""
    named = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if len(named) > 1:
        raise click.UsageError(f"{' and '.join(named)} cannot be combined", ctx)


def complete_models(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Complete model names: providers, each with its slash."""
    from rlm.wiring.registry import PROVIDERS

    names = [*PROVIDERS, "command", "offline"]
    return [f"{name}/" for name in names if name.startswith(incomplete)]


# -- which run ------------------------------------------------------------------------------------


def complete_runs(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete runs: `last`, short ids and ids that begin with a text, with their queries."""
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
            summary_line = one_line(f"{summary.status}: {summary.query}", 60)
        except ConfigError:
            summary_line = "cannot be read"
        items.append(CompletionItem(one_line(name), help=summary_line))
    return items


def complete_recorded(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete runs, and files that may be logs."""
    return [*complete_runs(ctx, parameter, incomplete), CompletionItem(incomplete, type="file")]


# Options with the same text in several commands.
model_option = click.option(
    "-m",
    "--model",
    type=model_name,
    metavar="MODEL",
    shell_complete=complete_models,
    help="provider/model, or an alias. Default: RLM_MODEL, else `rlm config`, a key, a local "
    "server, or the offline model.",
)
sub_model_option = click.option(
    "--sub-model",
    type=model_name,
    metavar="MODEL",
    shell_complete=complete_models,
    help="The model for calls from cells. Default: RLM_SUB_MODEL, else `rlm config`, or the model.",
)
environment_option = click.option(
    "--environment",
    type=environment_name,
    metavar="NAME",
    default="auto",
    show_default=True,
    help="Where model-written code runs; `rlm env list` lists the choices. `auto` is the first of "
    "local, wasm and docker that can isolate it here.",
)
environment_settings_option = click.option(
    "--environment-option",
    "environment_options",
    type=key_and_value,
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the environment, such as image=python:3.13-slim; may be repeated.",
)
setup_code_option = click.option(
    "--setup-code",
    type=code_in,
    metavar="FILE",
    help="Python code that runs in every new session, before the first cell.",
)
max_depth_option = click.option(
    "--max-depth",
    type=WholeNumber(min=1),
    help="Levels of runs with a REPL; 1 means no child runs.",
)
price_option = click.option(
    "--price",
    type=prices,
    metavar="IN,OUT",
    help="The price of the models, in US dollars per million tokens.",
)
strategy_option = click.option(
    "--strategy",
    type=click.Choice(["rlm", "direct", "mapreduce", "auto"]),
    help="rlm (the loop), direct (one plain request), mapreduce (a request per part), or auto, "
    "which small models use by default; all others use rlm.",
)
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="Write only errors to standard error."
)
raw_option = click.option(
    "--raw", is_flag=True, help="In a terminal, do not render Markdown in the answer."
)
max_fetch_option = click.option(
    "--max-fetch-mb",
    type=WholeNumber(min=1),
    metavar="MB",
    help="Fetch at most this much from an address.",
)
db_option = click.option(
    "--db",
    metavar="URL",
    help="A database to query, read-only: postgresql://…, sqlite:///path, or '$NAME' of a variable "
    "that contains the URL.",
)
db_schema_option = click.option(
    "--db-schema",
    "db_schemas",
    multiple=True,
    metavar="NAME",
    help="A schema of PostgreSQL that can be read; may be repeated. Default: public.",
)
verbose_option = click.option(
    "--verbose",
    is_flag=True,
    help="Also write what the model says, its code, and the output of cells to standard error.",
)

run_argument = click.argument("run", shell_complete=complete_runs)
run_or_last_argument = click.argument("run", default="last", shell_complete=complete_runs)
recorded_argument = click.argument("recorded", metavar="RUN|LOG", shell_complete=complete_recorded)
recorded_or_last_argument = click.argument(
    "recorded", metavar="[RUN|LOG]", default="last", shell_complete=complete_recorded
)


# -- continuing a run ----------------------------------------------------------------------------

_GOING_ON = (
    click.option(
        "-f",
        "--file",
        "files",
        multiple=True,
        type=SOURCE,
        help="The context, if it is no longer stored; it must be the same.",
    ),
    db_option,
    db_schema_option,
    click.option(
        "--max-steps",
        type=WholeNumber(min=1),
        help="At most N steps of the root run, including those already made.",
    ),
    click.option(
        "--max-depth", type=WholeNumber(min=1), help="Levels of runs with a REPL, from now on."
    ),
    click.option(
        "--budget-usd",
        type=above_zero,
        metavar="USD",
        help="At most this many US dollars for the whole run tree, including those already spent.",
    ),
    click.option(
        "--price",
        type=prices,
        metavar="IN,OUT",
        help="The price of the models, in US dollars per million tokens.",
    ),
    click.option(
        "--max-tokens",
        type=WholeNumber(min=1),
        help="At most N tokens for the whole run tree, including those already used.",
    ),
    click.option(
        "--timeout",
        type=above_zero,
        metavar="SECONDS",
        help="At most this many seconds for the whole run, from now on.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object."),
    click.option(
        "--log-dir",
        type=click.Path(path_type=Path),
        help="Write a log of every event of the run to this folder, as JSON lines.",
    ),
    raw_option,
    quiet_option,
    verbose_option,
)


def of_going_on(command: Command) -> Command:
    """Add the options of commands that continue a run: `rlm resume` and `rlm fork`."""
    for option in reversed(_GOING_ON):
        command = option(command)
    return command
