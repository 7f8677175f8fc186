"""The command `rlm acp`. Light, because `rlm --help` loads it."""

from typing import Any

import click

__all__ = ["AcpCommand", "acp"]

EXAMPLES = """\b
Examples:
  rlm acp
  rlm acp -m openai/gpt-5-mini -m anthropic/claude-sonnet-4-5 --budget-usd 0.50

\b
An editor starts it and speaks to it on standard input and output. In Zed:
  "agent_servers": { "rlm": { "command": "rlm", "args": ["acp"] } }
"""


class AcpCommand(click.Command):
    """A command whose options default to the settings of the user and the project."""

    takes_settings = True


@click.command(cls=AcpCommand, epilog=EXAMPLES, short_help="Serve an agent for editors (ACP).")
@click.option(
    "-m",
    "--model",
    "models",
    multiple=True,
    help="provider/model; may be repeated: editors offer all of them. Default: your default model.",
)
@click.option("--sub-model", help="The model for calls from cells. Default: the model.")
@click.option(
    "--environment", default="auto", show_default=True, help="Where model-written code runs."
)
@click.option("--max-steps", type=click.IntRange(min=1), help="At most N steps of a prompt.")
@click.option(
    "--max-depth",
    type=click.IntRange(min=1),
    help="Levels of runs with a REPL; 1 means no child runs.",
)
@click.option(
    "--budget-usd",
    type=click.FloatRange(min=0, min_open=True),
    metavar="USD",
    help="At most this many US dollars for all prompts of a session together.",
)
@click.option(
    "--price",
    type=(float, float),
    metavar="IN OUT",
    help="The price of the models, in US dollars per million tokens.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    help="At most N tokens for all prompts of a session together.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="At most this many seconds per prompt.",
)
@click.option(
    "--no-save",
    "save",
    flag_value=False,
    default=True,
    help="Do not save sessions, so that editors can't load them again.",
)
def acp(**given: Any) -> None:
    """Serve an agent over the Agent Client Protocol, on standard input and output.

    The folder of an editor's session is its context: code reads it and can't change it. Messages
    of the protocol are lines of JSON; everything else goes to standard error.
    """
    from rlm.gateway.stdio import take_stdio

    pipe = take_stdio()  # before anything heavy is imported, which might print
    import os

    from recursivelm_acp.agent import EditorAgent
    from recursivelm_acp.options import AgentOptions
    from recursivelm_acp.transport import StdioTransport, run
    from rlm.records.journal import Places

    agent = EditorAgent(AgentOptions(**given), Places.usual(os.environ).root / "acp")
    run(agent, lambda: StdioTransport(pipe.reading, pipe.writing))
