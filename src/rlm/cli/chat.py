"""`rlm chat`: a conversation in a terminal, or one turn per line of standard input."""

from pathlib import Path
from typing import Any

import click

from rlm.cli._options import (
    SOURCE,
    WholeNumber,
    above_zero,
    environment_option,
    environment_settings_option,
    exclusive,
    max_depth_option,
    model_option,
    price_option,
    quiet_option,
    setup_code_option,
    sub_model_option,
    verbose_option,
)

__all__ = ["chat"]

EXAMPLES = """\b
Examples:
  rlm chat contract.txt letters/
  rlm chat --continue
  rlm chat report.txt --save report.rlm
  printf 'Who signed?\\nWhen?\\n' | rlm chat contract.txt

\b
Type /help to list its commands. Ctrl-C ends a turn, Ctrl-D the chat.
Exit codes: 0 answers, 1 an error, 2 wrong usage, 3 a limit, 4 only passages
(no language model is configured), 130 Ctrl-C.
"""


@click.command(epilog=EXAMPLES, short_help="Ask several questions; variables and answers are kept.")
@click.argument("sources", nargs=-1, type=SOURCE, metavar="[FILE|FOLDER]...")
@model_option
@sub_model_option
@click.option("--load", metavar="FILE|CHAT", help="Continue a saved chat, and save it there again.")
@click.option("--save", type=click.Path(path_type=Path), help="Save to this file after each turn.")
@click.option("--continue", "continue_newest", is_flag=True, help="Continue the newest chat.")
@click.option("--list", "listed", is_flag=True, help="List saved chats and exit.")
@environment_option
@environment_settings_option
@setup_code_option
@click.option("--max-steps", type=WholeNumber(min=1), help="At most N steps per turn.")
@max_depth_option
@click.option(
    "--budget-usd",
    type=above_zero,
    metavar="USD",
    help="At most this many US dollars for all turns together.",
)
@price_option
@click.option(
    "--max-tokens", type=WholeNumber(min=1), help="At most N tokens for all turns together."
)
@click.option(
    "--timeout", type=above_zero, metavar="SECONDS", help="At most this many seconds per turn."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per turn.")
@click.option(
    "--log-dir",
    type=click.Path(path_type=Path),
    help="Write a log of every event of the turns to this folder, as JSON lines.",
)
@click.option(
    "--no-journal",
    "journal",
    flag_value=False,
    default=True,
    help="Do not save this chat, except with --save (same as RLM_JOURNAL=0).",
)
@quiet_option
@verbose_option
@click.pass_context
def chat(
    ctx: click.Context,
    /,
    sources: tuple[str, ...],
    load: str | None,
    save: Path | None,
    continue_newest: bool,
    listed: bool,
    **given: Any,
) -> None:
    """Ask several questions about files and folders; variables and answers are kept.

    In a terminal, this is a conversation; in piped input, each line is a turn.
    """
    exclusive(ctx, quiet=given["quiet"], verbose=given["verbose"])
    exclusive(ctx, load=load, **{"continue": continue_newest})
    if listed:
        from rlm.cli._chat_commands import show_chats

        show_chats(as_json=given["as_json"])
        return
    from rlm.cli._asking import Options
    from rlm.cli._chatting import Wanted, converse

    options = Options(files=sources, strategy="rlm", schema=None, view=False, **given)
    ctx.exit(converse(options, Wanted(load, save, continue_newest)))
