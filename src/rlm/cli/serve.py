"""`rlm serve`: runs behind OpenAI's HTTP interface. Here are its options."""

from pathlib import Path
from typing import Any

import click

from rlm.cli._options import (
    above_zero,
    complete_models,
    environment_option,
    environment_settings_option,
    max_depth_option,
    price_option,
    sub_model_option,
)
from rlm.server import DEFAULT_PORT

__all__ = ["serve"]

EXAMPLES = """\b
Examples:
  rlm serve -m openai/gpt-5-mini
  rlm serve -m openai/gpt-5 -m anthropic/claude-sonnet-4-5 --max-depth 2
  rlm serve --host 0.0.0.0 --tokens-file tokens.toml --budget-usd 1

\b
Then, with any client of OpenAI's interface:
  export OPENAI_BASE_URL=http://127.0.0.1:8765/v1 OPENAI_API_KEY=none
  and ask for the model rlm/openai/gpt-5-mini.
"""


@click.command(epilog=EXAMPLES)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option(
    "--port",
    default=DEFAULT_PORT,
    show_default=True,
    type=click.IntRange(0, 65_535),
    help="Where to listen; 0 takes a free port.",
)
@click.option(
    "-m",
    "--model",
    "models",
    multiple=True,
    shell_complete=complete_models,
    help="provider/model, offered as rlm/provider/model; may be given several times.",
)
@sub_model_option
@environment_option
@environment_settings_option
@click.option(
    "--allow-environment",
    "environments",
    multiple=True,
    help="Another environment that requests may name; may be given several times.",
)
@click.option("--max-steps", type=click.IntRange(min=1), help="Steps of a root run, at most.")
@max_depth_option
@click.option("--budget-usd", type=above_zero, metavar="USD", help="US dollars of one run.")
@price_option
@click.option("--max-tokens", type=click.IntRange(min=1), help="Tokens of one run.")
@click.option(
    "--timeout",
    type=above_zero,
    default=3_600.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds of one run.",
)
@click.option(
    "--context-over",
    type=click.IntRange(min=1),
    default=8_000,
    show_default=True,
    metavar="CHARS",
    help="Messages with more characters become a context; smaller ones go to the model.",
)
@click.option(
    "--token",
    "tokens",
    multiple=True,
    envvar="RLM_SERVE_TOKEN",
    metavar="TOKEN",
    help="A token that clients must send; better in RLM_SERVE_TOKEN than in a list of processes.",
)
@click.option(
    "--tokens-file",
    type=click.Path(path_type=Path),
    help="Tokens with names, budgets and models, as .toml or .json.",
)
@click.option(
    "--max-concurrent-runs",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="Requests that are worked on at once.",
)
@click.option(
    "--max-queued",
    type=click.IntRange(min=0),
    default=256,
    show_default=True,
    help="Requests that wait for a place; more are sent away with 429.",
)
@click.option(
    "--max-body-mb", type=above_zero, default=64.0, show_default=True, help="Size of a request."
)
@click.option(
    "--max-memory-mb",
    type=above_zero,
    default=1024.0,
    show_default=True,
    help="Memory that the bodies of all requests may take once they are read.",
)
@click.option(
    "--max-file-mb", type=above_zero, default=512.0, show_default=True, help="Size of a file."
)
@click.option(
    "--grace",
    type=above_zero,
    default=20.0,
    show_default=True,
    metavar="SECONDS",
    help="How long requests may take after Ctrl-C or SIGTERM.",
)
@click.option(
    "--no-resume",
    "resumes",
    flag_value=False,
    default=True,
    help="Do not go on with background runs that the last server left.",
)
@click.option(
    "--cors", "cors_origins", multiple=True, metavar="ORIGIN", help="Pages that may ask, too."
)
@click.option("--view", is_flag=True, help="Show the viewer of all runs at the same port.")
@click.option("--quiet", is_flag=True, help="No line for each request.")
def serve(**given: Any) -> None:
    """Serve chat completions, responses, files and background runs over HTTP.

    Clients of OpenAI's interface can use it as it is. A message larger than --context-over becomes
    the context of a run; a small one goes straight to the model. Options that limit a run are
    ceilings: requests may ask for less. Ctrl-C ends it; background runs go on at the next start.
    """
    from rlm.cli._serving import Options, run_server

    run_server(Options(**given))
