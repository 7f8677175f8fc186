"""The command line: answers go to standard output, everything else to standard error."""

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
from rlm.cli.doctor import doctor
from rlm.cli.env import env
from rlm.cli.fake_server import fake_server
from rlm.cli.mcp import mcp
from rlm.cli.models import models
from rlm.cli.provenance import provenance
from rlm.cli.resume import fork, replay, resume
from rlm.cli.runs import export, rm, runs, show
from rlm.cli.serve import serve
from rlm.cli.view import view

__all__ = ["commands", "main"]

EXAMPLES = """\b
Examples:
  rlm ask "Which deadlines are named?" -f contract.txt
  cat server.log | rlm ask "When did the first error happen?"
  rlm chat contract.txt
  rlm runs
  rlm resume last
  rlm view
  rlm serve
  rlm doctor

\b
Without a key, a model server on this machine answers (Ollama, LM Studio,
llama.cpp, vLLM); otherwise a small offline model that only finds passages.
To use another, set a key such as OPENAI_API_KEY, or pass -m provider/model.
See also rlm models and rlm doctor.
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


def _offered(name: str) -> click.Command:
    """Return the command of a plugin; one that can't be loaded says so when it is used."""
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
    doctor,
    env,
    export,
    fake_server,
    fork,
    mcp,
    models,
    provenance,
    replay,
    resume,
    rm,
    runs,
    serve,
    show,
    view,
):
    commands.add_command(command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    sys.exit(_errors.run(commands, arguments))
