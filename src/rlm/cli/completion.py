"""`rlm completion`: the script that completes commands in a shell."""

import click
from click.shell_completion import get_completion_class

__all__ = ["completion"]

HOW = """\b
For the current shell:
  eval "$(rlm completion bash)"
  eval "$(rlm completion zsh)"
  rlm completion fish | source

\b
For every new shell, add that line to ~/.bashrc or ~/.zshrc, or:
  rlm completion fish > ~/.config/fish/completions/rlm.fish
"""


@click.command(epilog=HOW, short_help="Print the completion script for a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes rlm's commands and options in SHELL."""
    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(ctx.find_root().command, {}, "rlm", "_RLM_COMPLETE").source())
