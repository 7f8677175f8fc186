"""The command line: answers on stdout, everything else on stderr."""

import click

import rlm
from rlm.cli.ask import ask

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(rlm.__version__, prog_name="rlm")
def main() -> None:
    """Right answers about contexts far larger than a model's window."""


main.add_command(ask)
