"""The command line: answers go to standard output, everything else to standard error."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

import rlm
from rlm.cli import _errors
from rlm.cli.ask import ask
from rlm.cli.batch import batch
from rlm.cli.bench import bench
from rlm.cli.chat import chat
from rlm.cli.completion import completion
from rlm.cli.config import config
from rlm.cli.doctor import doctor
from rlm.cli.env import env
from rlm.cli.fake_server import fake_server
from rlm.cli.index import index
from rlm.cli.judge import judge
from rlm.cli.keys import keys
from rlm.cli.mcp import mcp
from rlm.cli.models import models
from rlm.cli.provenance import provenance
from rlm.cli.resume import fork, replay, resume
from rlm.cli.runs import export, rm, runs, show
from rlm.cli.serve import serve
from rlm.cli.setup import setup
from rlm.cli.view import view

__all__ = ["commands", "main"]

EXAMPLES = """\b
Examples:
  rlm setup
  rlm ask "Which deadlines are named?" -f contract.txt
  cat server.log | rlm ask "When did the first error happen?"
  rlm chat contract.txt
  rlm runs
  rlm resume last
  rlm view
  rlm serve
  rlm doctor

\b
Without a key, rlm uses a model server on this machine (Ollama, LM Studio,
llama.cpp, vLLM), or else a search that only lists passages.
rlm setup finds a model: a key, a server, or a program such as claude or codex.
To use another model once, pass -m provider/model. See also rlm models, rlm doctor.
"""


class Commands(click.Group):
    """The built-in commands, and those that plugins offer."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from rlm.wiring.plugins import offers

        return sorted({*super().list_commands(ctx), *offers("rlm.commands")})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from rlm.wiring.plugins import offers

        built_in = super().get_command(ctx, cmd_name)
        if built_in is not None or cmd_name not in offers("rlm.commands"):
            return built_in
        return _offered(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, and give its options the defaults that the user has set."""
        typed = args[0] if args else ""
        if typed in OTHER_NAMES and self.get_command(ctx, typed) is None:
            ctx.fail(f"No such command {typed!r}. Did you mean {OTHER_NAMES[typed]!r}?")
        name, command, rest = super().resolve_command(ctx, args)
        # Help loads fast, and works whatever is wrong with the settings.
        takes = name in CONFIGURED or getattr(command, "takes_settings", False)
        if takes and name and command is not None and not {"-h", "--help"} & set(rest):
            ctx.default_map = {name: _configured(command)}
        return name, command, rest


OTHER_NAMES = {
    "auth": "keys",
    "benchmark": "bench",
    "configure": "setup",
    "continue": "resume",
    "dashboard": "view",
    "delete": "rm",
    "gateway": "mcp",
    "history": "runs",
    "init": "setup",
    "list": "runs",
    "log": "runs",
    "login": "keys",
    "logs": "runs",
    "ls": "runs",
    "query": "ask",
    "run": "ask",
    "server": "serve",
    "settings": "config",
    "ui": "view",
    "viewer": "view",
}
"""Names that other tools give to a command, and ours."""

CONFIGURED = ("ask", "batch", "chat", "serve")
"""Commands whose options default to the settings of the user and of the project.

A plugin's command does so if its attribute `takes_settings` is true.
"""

OF_ROWS = {"budget_usd": "row_budget_usd", "max_tokens": "row_max_tokens", "timeout": "row_timeout"}
"""Options of `rlm batch` by limit: a setting limits a run, and each row is a run."""


def _configured(command: click.Command) -> dict[str, object]:
    """Return the settings of the user and the project as defaults for a command's options."""
    from pathlib import Path

    from rlm.settings.configuration import Defaults
    from rlm.settings.schema import SETTINGS

    values = Defaults.read(os.environ, Path.cwd()).values()
    known = {each.name for each in command.params}
    renamed = OF_ROWS if command.name == "batch" else {}
    options = {SETTINGS[name].option: value for name, value in values.items()}
    found = {renamed.get(name, name): value for name, value in options.items() if name is not None}
    return {name: value for name, value in found.items() if name in known}


def _offered(name: str) -> click.Command:
    """Return a plugin's command; one that can't be loaded reports that when it is used."""
    from rlm.wiring.plugins import offers

    offer = offers("rlm.commands")[name]
    if (problem := offer.problem()) is None:
        command: click.Command = offer.load()
        return command

    def refuse() -> None:
        raise click.ClickException(problem)

    return click.Command(name, callback=refuse, help="(can't be loaded: see rlm doctor)")


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXAMPLES,
    invoke_without_command=True,
)
@click.version_option(rlm.__version__, prog_name="rlm")
@click.pass_context
def commands(ctx: click.Context) -> None:
    """Answer questions about contexts far larger than a model's window."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for command in (
    ask,
    batch,
    bench,
    chat,
    completion,
    config,
    doctor,
    env,
    export,
    fake_server,
    fork,
    index,
    judge,
    keys,
    mcp,
    models,
    provenance,
    replay,
    resume,
    rm,
    runs,
    serve,
    setup,
    show,
    view,
):
    commands.add_command(command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    sys.exit(_errors.run(commands, arguments))
