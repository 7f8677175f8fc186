"""`rlm setup`: find a model that works here, try it, and use it from now on."""

import click

from rlm.cli._options import complete_models, model_name

__all__ = ["setup"]

EXAMPLES = """\b
Examples:
  rlm setup
  rlm setup --yes
  rlm setup --model "command/claude -p" --yes
  rlm setup --model ollama/qwen3:8b --yes --no-try
"""


@click.command(epilog=EXAMPLES, short_help="Choose a model once: keys, servers, programs.")
@click.option(
    "-m",
    "--model",
    type=model_name,
    metavar="MODEL",
    shell_complete=complete_models,
    help="Choose this model: provider/model.",
)
@click.option("--yes", is_flag=True, help="Ask nothing; without --model, take the first one found.")
@click.option("--no-try", "tries", flag_value=False, default=True, help="Do not try the model.")
@click.pass_context
def setup(ctx: click.Context, model: str | None, yes: bool, tries: bool) -> None:
    """Find keys, model servers and programs that can answer, and choose one of them.

    The choice is tried with one tiny question, which may cost a fraction of a cent, and stored as
    the default model; `rlm config set model` changes it.
    """
    from rlm.cli._setting_up import set_up

    ctx.exit(set_up(model, yes=yes, tries=tries))
