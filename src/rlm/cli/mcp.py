"""`rlm mcp`: a gateway that shows files to MCP clients in bounded pieces."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rlm.cli._options import (
    WholeNumber,
    above_zero,
    environment_name,
    key_and_value,
    model_name,
    prices,
)

__all__ = ["mcp", "to_serve"]

Command = TypeVar("Command", bound=Callable[..., Any])
_COUNT = WholeNumber(min=1)

_FILES = (
    click.option(
        "--root",
        "roots",
        multiple=True,
        metavar="[NAME=]DIR",
        help="A folder to open to clients, and the name they see; may be repeated.",
    ),
    click.option(
        "--show-names", is_flag=True, help="Show names of files to clients, not only handles."
    ),
    click.option("--all", "shows_ignored", is_flag=True, help="Also show files that git ignores."),
    click.option(
        "--deny",
        multiple=True,
        metavar="PATTERN",
        help="Never show files and folders with that name, in addition to the usual denials.",
    ),
    click.option(
        "--allow",
        multiple=True,
        metavar="PATTERN",
        help="Remove one of the usual denials, spelled exactly.",
    ),
    click.option(
        "--no-usual-denials", is_flag=True, help="Deny only what --deny names: even keys are shown."
    ),
    click.option(
        "--provenance",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="The record of what was shown (default: a new file in rlm's state folder).",
    ),
)
_CEILINGS = (
    click.option("--max-calls", type=_COUNT, help="At most N requests per session."),
    click.option("--max-bytes", type=_COUNT, help="At most N bytes of files shown per session."),
    click.option("--max-seconds", type=above_zero, help="End a session after this many seconds."),
    click.option(
        "--max-idle-seconds", type=above_zero, help="End a session after this many idle seconds."
    ),
    click.option("--max-runs", type=WholeNumber(min=0), help="At most N runs per session."),
    click.option("--max-run-files", type=_COUNT, help="At most N files per run."),
    click.option("--max-run-bytes", type=_COUNT, help="At most N bytes of files per run."),
    click.option(
        "--budget-usd",
        type=above_zero,
        metavar="USD",
        help="At most this many US dollars for the runs of a session.",
    ),
    click.option(
        "--search-seconds",
        type=above_zero,
        default="10",
        show_default=True,
        help="Stop a search after this many seconds.",
    ),
    click.option(
        "--exec-seconds",
        type=above_zero,
        default="30",
        show_default=True,
        help="Stop a client's code after this many seconds.",
    ),
)
_RUNS = (
    click.option(
        "-m",
        "--model",
        type=model_name,
        metavar="MODEL",
        help="provider/model for runs. Default: RLM_MODEL, else by key, else the client's own.",
    ),
    click.option(
        "--sub-model",
        type=model_name,
        metavar="MODEL",
        help="The model for calls from cells (default: the model).",
    ),
    click.option("--no-sampling", is_flag=True, help="Never use the client's own model."),
    click.option(
        "--environment",
        type=environment_name,
        metavar="NAME",
        default="auto",
        show_default=True,
        help="Where model-written code runs.",
    ),
    click.option(
        "--environment-option",
        "environment_options",
        type=key_and_value,
        multiple=True,
        metavar="KEY=VALUE",
        help="An option of the environment; may be repeated.",
    ),
    click.option("--max-steps", type=_COUNT, help="At most N steps per run."),
    click.option("--max-depth", type=_COUNT, help="Levels of runs with a REPL."),
    click.option("--max-tokens", type=_COUNT, help="At most N tokens for a whole run tree."),
    click.option(
        "--timeout",
        type=above_zero,
        metavar="SECONDS",
        help="At most this many seconds for a whole run.",
    ),
    click.option(
        "--price",
        type=prices,
        metavar="IN,OUT",
        help="The price of the models, in US dollars per million tokens.",
    ),
)
_HTTP = (
    click.option(
        "--http", is_flag=True, help="Serve over HTTP at /mcp instead of standard input and output."
    ),
    click.option(
        "--host",
        default="127.0.0.1",
        show_default=True,
        help="The address to listen on; a token is required beyond this machine.",
    ),
    click.option(
        "--port",
        default=8420,
        show_default=True,
        type=WholeNumber(0, 65_535),
        help="The port to listen on; 0 picks a free one.",
    ),
    click.option(
        "--token",
        envvar="RLM_MCP_TOKEN",
        help="The token that clients send; safer in RLM_MCP_TOKEN, which other users cannot see.",
    ),
    click.option(
        "--token-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="A file of NAME:TOKEN lines; the record says what each NAME was shown.",
    ),
    click.option(
        "--allowed-host",
        "allowed_hosts",
        multiple=True,
        metavar="NAME[:PORT]",
        help="Another host name of the gateway, such as that of a proxy; may be repeated.",
    ),
    click.option(
        "--allowed-origin",
        "allowed_origins",
        multiple=True,
        metavar="URL",
        help="An origin whose web pages may use the gateway; may be repeated.",
    ),
)


def to_serve(command: Command) -> Command:
    """Add all options of `rlm mcp`."""
    for option in reversed((*_FILES, *_CEILINGS, *_RUNS, *_HTTP)):
        command = option(command)
    return command


EXAMPLES = """\b
Examples:
  rlm mcp install --client cursor --root .
  rlm mcp install --client claude-code --root docs --global
  rlm mcp --root . --show-names
  rlm mcp --root code=src --root docs --deny '*.sql'
  rlm mcp --root . --http --token-file tokens.txt --host 0.0.0.0
  rlm mcp doctor --root .

\b
Without --http it speaks over stdin and stdout to the client that started it.
"""

COMMANDLINE = click.core.ParameterSource.COMMANDLINE
FOR_HTTP = {"host", "port", "token", "token_file", "allowed_hosts", "allowed_origins"}
CLIENTS = ("cursor", "vscode", "claude", "claude-code", "zed")


@click.group(
    epilog=EXAMPLES,
    invoke_without_command=True,
    short_help="Serve folders to MCP clients, in bounded pieces.",
)
@to_serve
@click.pass_context
def mcp(ctx: click.Context, /, **given: Any) -> None:
    """Serve folders to MCP clients: lists, spans, searches and whole runs, all recorded."""
    said = {name for name in given if ctx.get_parameter_source(name) is COMMANDLINE}
    if ctx.invoked_subcommand is not None:
        if said:
            raise click.UsageError(f"put options after {ctx.invoked_subcommand!r}", ctx)
        return
    if not said and sys.stdin is not None and sys.stdin.isatty():
        click.echo(ctx.get_help())  # A client starts it with a pipe, and gets an error instead.
        return
    if not given["http"] and (alone := said & FOR_HTTP):
        named = ", ".join(sorted(f"--{name.replace('_', '-').removesuffix('s')}" for name in alone))
        raise click.UsageError(f"{named} can be used only with --http", ctx)
    pipe = None
    if not given["http"]:
        from rlm.gateway.stdio import take_stdio

        pipe = take_stdio()  # before importing anything that might print
    from rlm.cli._mcp_serving import Options, serve

    ctx.exit(serve(Options(**given), pipe))


@mcp.command(short_help="Add the gateway to a client's configuration.")
@click.option(
    "--client", "client", type=click.Choice(CLIENTS), required=True, help="The client to configure."
)
@click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="[NAME=]DIR",
    help="A folder that the client's gateway opens; may be repeated.",
)
@click.option("--url", help="The address of a gateway elsewhere, such as https://HOST/mcp.")
@click.option(
    "--token-env",
    metavar="NAME",
    help="The variable that contains the token for --url; the configuration only names it.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="A file that contains the token for --url; the configuration only names it.",
)
@click.option(
    "--clear-token",
    is_flag=True,
    help="Write the token of --token-env itself into the file, in clear text.",
)
@click.option(
    "--name", default="rlm", show_default=True, help="The name of the gateway in the client."
)
@click.option(
    "--project",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of a project (default: the project that contains this folder, if any).",
)
@click.option("--global", "everywhere", is_flag=True, help="Configure all projects.")
@click.option(
    "--show-names/--hide-names",
    default=None,
    help="Whether the client's gateway shows the names of files in --root (default: show).",
)
@click.option("--remove", is_flag=True, help="Remove the gateway from the configuration.")
@click.option("--dry-run", is_flag=True, help="Print what would be written, without writing it.")
@click.pass_context
def install(ctx: click.Context, /, **given: Any) -> None:
    """Add the gateway to the configuration of a client.

    In a project, this configures that project, if the client supports projects; elsewhere, and
    with --global, all projects. The rest of the file is unchanged, including comments, and a copy
    is kept beside it.
    """
    from rlm.cli._mcp_install import Wanted, install_into

    if given["everywhere"] and given["project"] is not None:
        raise click.UsageError("--global cannot be combined with --project", ctx)
    if given["show_names"] is not None and given["url"]:
        raise click.UsageError(
            "give --show-names or --hide-names to the gateway at --url, not here", ctx
        )
    if not given["remove"] and bool(given["roots"]) == bool(given["url"]):
        raise click.UsageError("give --root for a gateway here, or --url for one elsewhere", ctx)
    ctx.exit(install_into(Wanted(**given)))


@mcp.command(short_help="Connect to the gateway as a client, and check it.")
@click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="[NAME=]DIR",
    help="A folder to try (default: the current one).",
)
@click.option("--url", help="Connect to the gateway at this address instead.")
@click.option("--token-env", metavar="NAME", help="The variable that contains the token for --url.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="The file that contains the token for --url.",
)
@click.option(
    "--project",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also check the configuration of this project (default: that of this folder).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON object.")
@click.pass_context
def doctor(ctx: click.Context, /, **given: Any) -> None:
    """Check the gateway: connect to it as a client, and read a span of a file.

    Exit code 1 means that a client could not use it.
    """
    from rlm.cli._mcp_doctor import Asked, examine

    ctx.exit(examine(Asked(**given)))


@mcp.command(short_help="Forward to a gateway elsewhere.")
@click.option("--url", required=True, help="The address of the gateway, such as https://HOST/mcp.")
@click.option("--token-env", metavar="NAME", help="The variable that contains the token.")
@click.option(
    "--token-file", type=click.Path(path_type=Path), help="The file that contains the token."
)
@click.pass_context
def connect(ctx: click.Context, url: str, token_env: str | None, token_file: Path | None) -> None:
    """Forward to a gateway elsewhere, for clients that only start commands."""
    from rlm.gateway.stdio import take_stdio

    pipe = take_stdio()
    from rlm.cli._mcp_connect import stand_in

    ctx.exit(stand_in(url, token_env, token_file, pipe))
