"""`rlm replay`: run a recorded run again, offline, and compare. Here are its options."""

import click

from rlm.cli._options import recorded_argument

__all__ = ["replay"]

EXAMPLES = """\b
Examples:
  rlm replay last
  rlm replay logs/rlm_20261115-093000-123-5d41402a.jsonl -f contract.txt

\b
Exit codes: 0 the same happened again, 1 something else did, or an error.
"""


@click.command(epilog=EXAMPLES)
@recorded_argument
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    type=click.Path(allow_dash=True, path_type=str),
    help="The context, if it is not kept here; another one shows what would change.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@click.pass_context
def replay(ctx: click.Context, recorded: str, files: tuple[str, ...], as_json: bool) -> None:
    """Run it again without a model, and compare.

    RUN is a run's id, a beginning or an end of it, or the word last. LOG is a file that --log-dir
    or RLMLogger wrote.

    Models and tools answer from the record; the code of cells really runs, in the sandbox. Nothing
    is sent, nothing is paid for. The first difference is shown as a diff.
    """
    from rlm.cli import _comparing

    ctx.exit(_comparing.replay_recorded(recorded, files, as_json=as_json))
