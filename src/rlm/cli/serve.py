"""`rlm serve`: runs behind OpenAI's HTTP interface."""

from pathlib import Path
from typing import Any

import click

from rlm.cli._options import (
    WholeNumber,
    above_zero,
    complete_models,
    environment_option,
    environment_settings_option,
    max_depth_option,
    model_name,
    price_option,
    setup_code_option,
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


@click.command(epilog=EXAMPLES, short_help="Serve runs over HTTP, behind OpenAI's interface.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    default=DEFAULT_PORT,
    show_default=True,
    type=WholeNumber(0, 65_535),
    help="The port to listen on; 0 picks a free one.",
)
@click.option(
    "-m",
    "--model",
    "models",
    multiple=True,
    type=model_name,
    metavar="MODEL",
    shell_complete=complete_models,
    help="provider/model, offered as rlm/provider/model; may be repeated.",
)
@sub_model_option
@environment_option
@environment_settings_option
@setup_code_option
@click.option(
    "--allow-environment",
    "environments",
    multiple=True,
    help="Another environment that requests may name; may be repeated.",
)
@click.option("--max-steps", type=WholeNumber(min=1), help="At most N steps of a root run.")
@max_depth_option
@click.option(
    "--budget-usd", type=above_zero, metavar="USD", help="At most this many US dollars per run."
)
@price_option
@click.option("--max-tokens", type=WholeNumber(min=1), help="At most N tokens per run.")
@click.option(
    "--timeout",
    type=above_zero,
    default=3_600.0,
    show_default=True,
    metavar="SECONDS",
    help="At most this many seconds per run.",
)
@click.option(
    "--context-over",
    type=WholeNumber(min=1),
    default=8_000,
    show_default=True,
    metavar="CHARS",
    help="Turn messages of more than N characters into a context; shorter ones go to the model.",
)
@click.option(
    "--token",
    "tokens",
    multiple=True,
    envvar="RLM_SERVE_TOKEN",
    metavar="TOKEN",
    help="A token that clients must send; safer in RLM_SERVE_TOKEN, which other users cannot see.",
)
@click.option(
    "--tokens-file",
    type=click.Path(path_type=Path),
    help="A file of tokens with names, budgets and models, as .toml or .json.",
)
@click.option(
    "--max-concurrent-runs",
    type=WholeNumber(min=1),
    default=32,
    show_default=True,
    help="Handle at most N requests at once.",
)
@click.option(
    "--max-queued",
    type=WholeNumber(min=0),
    default=256,
    show_default=True,
    help="Let at most N requests wait; more are refused with 429.",
)
@click.option(
    "--max-body-mb", type=above_zero, default=64.0, show_default=True, help="The largest request."
)
@click.option(
    "--max-memory-mb",
    type=above_zero,
    default=1024.0,
    show_default=True,
    help="The largest memory for the bodies of all requests.",
)
@click.option(
    "--max-file-mb", type=above_zero, default=512.0, show_default=True, help="The largest file."
)
@click.option(
    "--grace",
    type=above_zero,
    default=20.0,
    show_default=True,
    metavar="SECONDS",
    help="Give requests this many seconds after Ctrl-C or SIGTERM.",
)
@click.option(
    "--no-resume",
    "resumes",
    flag_value=False,
    default=True,
    help="Do not continue background runs of the previous server.",
)
@click.option(
    "--cors",
    "cors_origins",
    multiple=True,
    metavar="ORIGIN",
    help="An origin whose web pages may send requests; may be repeated.",
)
@click.option(
    "--view", is_flag=True, help="Show runs in a browser at /view; each token sees its own."
)
@click.option("-q", "--quiet", is_flag=True, help="Do not print a line per request.")
def serve(**given: Any) -> None:
    """Serve chat completions, responses, files and background runs over HTTP.

    Clients of OpenAI's interface work unchanged. A message larger than --context-over becomes the
    context of a run; a smaller one goes straight to the model. Options that limit a run are
    ceilings: requests may ask for less. Ctrl-C stops the server; background runs continue at its
    next start.
    """
    from rlm.cli._serving import Options, run_server

    run_server(Options(**given))
