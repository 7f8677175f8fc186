"""`rlm config`: what the user sets once, such as the default model, aliases and limits."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from rlm.settings.configuration import Defaults

__all__ = ["config"]

EXAMPLES = """\b
Examples:
  rlm config set model anthropic/claude-sonnet-5-5
  rlm config set alias.fast groq/llama-3.3-70b-versatile
  rlm ask "Which deadlines are named?" -f contract.txt -m fast
  rlm config set limits.max_cost_usd 0.50
  rlm config unset limits.max_cost_usd
  rlm config list

\b
The file is $XDG_CONFIG_HOME/rlm/config.toml, or ~/.config/rlm/config.toml.
A project may have its own rlm.toml, with models and lower limits.
"""


def complete_settings(
    _: click.Context, __: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the names of settings, with their meanings."""
    from rlm.settings.schema import SETTINGS

    return [
        CompletionItem(name, help=each.meaning)
        for name, each in SETTINGS.items()
        if name.startswith(incomplete)
    ]


@click.group(epilog=EXAMPLES, short_help="Set the default model, aliases and limits.")
def config() -> None:
    """Show and change your defaults; options and environment variables override them."""


name_argument = click.argument("name", shell_complete=complete_settings)


@config.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the settings as one JSON object.")
def list_settings(as_json: bool) -> None:
    """List the settings that apply here, and the file that each is from."""
    from rlm.cli._errors import say
    from rlm.cli._output import short_path, show_table

    defaults = _defaults()
    rows = _rows(defaults)
    if as_json:
        click.echo(json.dumps({row[0]: {"value": row[1], "from": row[2]} for row in rows}))
    elif rows:
        shown = [[name, _text(value), short_path(origin)] for name, value, origin in rows]
        show_table(["setting", "value", "from"], shown, name=0, right=3)
    else:
        say(f"Nothing is set in {short_path(defaults.user.path)}; `rlm setup` chooses a model.")
    for notice in defaults.notices():
        say(notice)


@config.command()
@name_argument
@click.pass_context
def get(ctx: click.Context, name: str) -> None:
    """Print the value of the setting NAME; exit code 1 if it is not set."""
    from rlm.cli._errors import FAILED
    from rlm.settings.schema import setting

    setting(name)
    found = {row[0]: row[1] for row in _rows(_defaults())}
    if name not in found:
        ctx.exit(FAILED)
    click.echo(_text(found[name]))


@config.command("set", context_settings={"ignore_unknown_options": True})
@name_argument
@click.argument("value")
def set_setting(name: str, value: str) -> None:
    """Set NAME to VALUE, for all runs of this user."""
    from rlm.cli._errors import say
    from rlm.cli._output import short_path
    from rlm.settings.configuration import set_value
    from rlm.settings.schema import ALIAS, parse_text
    from rlm.wiring.registry import check_provider

    wanted = parse_text(name, value)
    if name in {"model", "sub_model"} or name.startswith(ALIAS):
        check_provider(_defaults().resolve(wanted))
    path = set_value(os.environ, name, wanted)
    say(f"{name} is now {_text(wanted)}, in {short_path(path)}.")
    project = _defaults().project
    if name in project.values:
        used = _text(project.values[name])
        say(f"In this folder, {used} of {short_path(project.path)} is used instead.")


@config.command()
@name_argument
@click.pass_context
def unset(ctx: click.Context, name: str) -> None:
    """Remove the setting NAME; exit code 1 if it was not set."""
    from rlm.cli._errors import FAILED, say
    from rlm.cli._output import short_path
    from rlm.settings.configuration import read_user, set_value

    if name not in read_user(os.environ).values:
        ctx.exit(say(f"{name} is not set.", FAILED))
    path = set_value(os.environ, name, None)
    say(f"{name} is no longer set in {short_path(path)}.")


@config.command()
def path() -> None:
    """Print the path of the file with your settings."""
    from rlm.settings.configuration import user_file
    from rlm.settings.files import prepare_folder

    file = user_file(os.environ)
    click.echo(str(prepare_folder(None) if file is None else file))


def _defaults() -> "Defaults":
    from rlm.settings.configuration import Defaults

    return Defaults.read(os.environ, Path.cwd())


def _rows(defaults: "Defaults") -> list[tuple[str, Any, str]]:
    """Return names, values and files, sorted; only the values that apply."""
    found: dict[str, tuple[Any, str]] = {}
    for each in (defaults.user, defaults.project):
        found |= {name: (value, str(each.path)) for name, value in each.values.items()}
    return [(name, *found[name]) for name in sorted(found)]


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)
