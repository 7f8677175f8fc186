"""`rlm mcp`: a gateway that shows files to MCP clients in bounded pieces."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rlm.cli._options import above_zero, key_and_value, prices

__all__ = ["mcp", "to_serve"]

Command = TypeVar("Command", bound=Callable[..., Any])
_COUNT = click.IntRange(min=1)

_FILES = (
    click.option(
        "--root",
        "roots",
        multiple=True,
        metavar="[NAME=]DIR",
        help="A folder to open for clients, and what they call it; may be given several times.",
    ),
    click.option(
        "--show-names", is_flag=True, help="Clients see names of files, not only handles."
    ),
    click.option("--all", "shows_ignored", is_flag=True, help="Also files that git ignores."),
    click.option(
        "--deny",
        multiple=True,
        metavar="PATTERN",
        help="Files and folders of that name are never shown; adds to those that never are.",
    ),
    click.option(
        "--allow",
        multiple=True,
        metavar="PATTERN",
        help="Take back one of the usual denials, written as it is there.",
    ),
    click.option(
        "--no-usual-denials", is_flag=True, help="Deny only what --deny says: keys are shown too."
    ),
    click.option(
        "--provenance",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="The record of what was shown; else a new file in the state folder of rlm.",
    ),
)
_CEILINGS = (
    click.option("--max-calls", type=_COUNT, help="Requests of a session."),
    click.option("--max-bytes", type=_COUNT, help="Bytes of files that a session is shown."),
    click.option("--max-seconds", type=above_zero, help="How long a session lasts."),
    click.option("--max-idle-seconds", type=above_zero, help="How long a session may rest."),
    click.option("--max-runs", type=click.IntRange(min=0), help="Runs of a session."),
    click.option("--max-run-files", type=_COUNT, help="Files that one run may be given."),
    click.option("--max-run-bytes", type=_COUNT, help="Bytes of files that one run may be given."),
    click.option(
        "--max-cost-usd", type=above_zero, metavar="USD", help="US dollars for a session's runs."
    ),
    click.option(
        "--search-seconds",
        type=above_zero,
        default="10",
        show_default=True,
        help="How long a search may take before it is ended.",
    ),
    click.option(
        "--exec-seconds",
        type=above_zero,
        default="30",
        show_default=True,
        help="How long a client's code may run before it is ended.",
    ),
)
_RUNS = (
    click.option(
        "-m",
        "--model",
        help="provider/model for runs; else RLM_MODEL or the first key's, else the client's own.",
    ),
    click.option("--sub-model", help="The model for calls made from cells; else the model."),
    click.option("--no-sampling", is_flag=True, help="Never ask the client's own model."),
    click.option(
        "--environment", default="local", show_default=True, help="Where model-written code runs."
    ),
    click.option(
        "--environment-option",
        "environment_options",
        type=key_and_value,
        multiple=True,
        metavar="KEY=VALUE",
        help="An option of the environment; may be given several times.",
    ),
    click.option("--max-steps", type=_COUNT, help="Steps of a run."),
    click.option("--max-depth", type=_COUNT, help="Levels of a run that own a REPL."),
    click.option("--max-tokens", type=_COUNT, help="Tokens of a whole run tree."),
    click.option("--timeout", type=above_zero, metavar="SECONDS", help="Seconds for a whole run."),
    click.option(
        "--price",
        type=prices,
        metavar="IN,OUT",
        help="What the models cost, in US dollars per million tokens.",
    ),
)
_HTTP = (
    click.option(
        "--http", is_flag=True, help="Serve over HTTP, at /mcp, instead of stdin and stdout."
    ),
    click.option(
        "--host",
        default="127.0.0.1",
        show_default=True,
        help="The address to listen at. Others than this machine need a token.",
    ),
    click.option(
        "--port",
        default=8420,
        show_default=True,
        type=click.IntRange(0, 65_535),
        help="Where to listen; 0 takes a free port.",
    ),
    click.option(
        "--token",
        envvar="RLM_MCP_TOKEN",
        help="The token that clients show; better in RLM_MCP_TOKEN, which others can't see.",
    ),
    click.option(
        "--token-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="A file of NAME:TOKEN lines; the names are recorded with what each was shown.",
    ),
    click.option(
        "--allowed-host",
        "allowed_hosts",
        multiple=True,
        metavar="NAME[:PORT]",
        help="A name under which clients reach it, as behind a proxy; may be given several times.",
    ),
    click.option(
        "--allowed-origin",
        "allowed_origins",
        multiple=True,
        metavar="URL",
        help="A web page's origin that may use it; may be given several times.",
    ),
)


def to_serve(command: Command) -> Command:
    """All options of `rlm mcp`."""
    for option in reversed((*_FILES, *_CEILINGS, *_RUNS, *_HTTP)):
        command = option(command)
    return command


EXAMPLES = """\b
Examples:
  rlm mcp install --client cursor --root .
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


@click.group(epilog=EXAMPLES, invoke_without_command=True)
@to_serve
@click.pass_context
def mcp(ctx: click.Context, /, **given: Any) -> None:
    """Serve folders to MCP clients: lists, spans, searches and whole runs, all on record."""
    said = {name for name in given if ctx.get_parameter_source(name) is COMMANDLINE}
    if ctx.invoked_subcommand is not None:
        if said:
            raise click.UsageError(f"put options after {ctx.invoked_subcommand!r}", ctx)
        return
    if not given["http"] and (alone := said & FOR_HTTP):
        named = ", ".join(sorted(f"--{name.replace('_', '-').removesuffix('s')}" for name in alone))
        raise click.UsageError(f"{named} is for --http", ctx)
    pipe = None
    if not given["http"]:
        from rlm.gateway.stdio import take_stdio

        pipe = take_stdio()  # before anything is imported that might print
    from rlm.cli._mcp_serving import Options, serve

    ctx.exit(serve(Options(**given), pipe))


@mcp.command()
@click.option(
    "--client", "client", type=click.Choice(CLIENTS), required=True, help="Whose configuration."
)
@click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="[NAME=]DIR",
    help="A folder that the client's gateway opens; may be given several times.",
)
@click.option(
    "--url", help="The address of a gateway that runs elsewhere, such as https://HOST/mcp."
)
@click.option(
    "--token-env",
    metavar="NAME",
    help="The variable that holds the token for --url; it is named in the file, not its value.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="A file that holds the token for --url; it is named in the file, not its content.",
)
@click.option(
    "--clear-token",
    is_flag=True,
    help="Write the value of the variable of --token-env into the file, for all to read.",
)
@click.option("--name", default="rlm", show_default=True, help="What the client calls the gateway.")
@click.option(
    "--project",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of a project; else the configuration for all projects.",
)
@click.option("--show-names", is_flag=True, help="The client's gateway shows names of files.")
@click.option("--remove", is_flag=True, help="Take the gateway out of the configuration.")
@click.option("--dry-run", is_flag=True, help="Print what the file would hold; write nothing.")
@click.pass_context
def install(ctx: click.Context, /, **given: Any) -> None:
    """Write the gateway into the configuration of a client.

    All else in the file stays as it is, comments too, and a copy of it is kept beside it.
    """
    from rlm.cli._mcp_install import Wanted, install_into

    if not given["remove"] and bool(given["roots"]) == bool(given["url"]):
        raise click.UsageError("give --root for a gateway here, or --url for one elsewhere", ctx)
    ctx.exit(install_into(Wanted(**given)))


@mcp.command()
@click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="[NAME=]DIR",
    help="A folder to try it with; the current one if none is given.",
)
@click.option("--url", help="A gateway that runs elsewhere: connect to it instead.")
@click.option("--token-env", metavar="NAME", help="The variable that holds the token for --url.")
@click.option(
    "--token-file", type=click.Path(path_type=Path), help="The file that holds the token for --url."
)
@click.option(
    "--project",
    type=click.Path(path_type=Path, file_okay=False),
    help="A project whose configuration to look at too.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON object.")
@click.pass_context
def doctor(ctx: click.Context, /, **given: Any) -> None:
    """Check the gateway: connect to it as a client, and read a span of a file.

    Exit code 1 means that a client could not use it.
    """
    from rlm.cli._mcp_doctor import Asked, examine

    ctx.exit(examine(Asked(**given)))


@mcp.command()
@click.option("--url", required=True, help="The address of the gateway, such as https://HOST/mcp.")
@click.option("--token-env", metavar="NAME", help="The variable that holds the token.")
@click.option(
    "--token-file", type=click.Path(path_type=Path), help="The file that holds the token."
)
@click.pass_context
def connect(ctx: click.Context, url: str, token_env: str | None, token_file: Path | None) -> None:
    """Stand in for a gateway elsewhere, for clients that only start commands."""
    from rlm.gateway.stdio import take_stdio

    pipe = take_stdio()
    from rlm.cli._mcp_connect import stand_in

    ctx.exit(stand_in(url, token_env, token_file, pipe))
