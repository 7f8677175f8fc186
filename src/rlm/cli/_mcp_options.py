"""The options with which the operator of a gateway says what clients may have."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rlm.cli._options import above_zero, key_and_value, prices

__all__ = ["to_serve"]

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
