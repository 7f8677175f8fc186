"""`rlm mcp`: folders for MCP clients, in bounded pieces. Here are its options."""

from pathlib import Path
from typing import Any

import click

from rlm.cli._mcp_options import to_serve

__all__ = ["mcp"]

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
