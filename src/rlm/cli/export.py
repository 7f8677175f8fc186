"""`rlm export`: a run in another form. Here are its options."""

from pathlib import Path

import click

from rlm.cli._options import recorded_argument

__all__ = ["export"]

FORMATS = ("sft", "openai-chat", "markdown", "html", "reference-jsonl")

EXAMPLES = """\b
Formats:
  sft              a row a step for training: the conversation so far and the reply
  openai-chat      a conversation a run, for OpenAI fine-tuning
  markdown, html   a report to read and to share
  reference-jsonl  a log as the reference engine writes it

\b
Examples:
  rlm export last --format html -o report.html
  rlm export logs/ --format sft > turns.jsonl
"""


@click.command(epilog=EXAMPLES)
@recorded_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    metavar="FORMAT",
    required=True,
    help="sft, openai-chat, markdown, html or reference-jsonl.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write it, readable only for you; else to stdout.",
)
@click.option("--force", is_flag=True, help="Overwrite FILE if it is there.")
def export(recorded: str, form: str, output: Path | None, force: bool) -> None:
    """Write a run in another form, to share or to train.

    Child runs are in it too. RUN is a run's id, a beginning or an end of it, or the word last. LOG
    is a file or a folder that --log-dir or RLMLogger wrote. The context is not part of a record,
    but what cells printed of it and what calls were asked is: look before you share.
    """
    from rlm.cli import _exporting

    _exporting.export_recorded(recorded, form, output, force=force)
