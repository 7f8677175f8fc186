"""Run `rlm export`: write the text piece by piece to standard output or a new file."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from rlm._util.atomic import replacing
from rlm._util.text import counted
from rlm.cli._errors import say
from rlm.cli._records import find_recorded
from rlm.errors import ConfigError
from rlm.records.recorders.console import harmless
from rlm.records.trajectories import open_trajectory
from rlm.records.trajectories.exports import export

__all__ = ["export_recorded", "write_new"]


def export_recorded(name: str, form: str, output: Path | None, *, force: bool) -> None:
    recorded = find_recorded(name)
    target = None if output is None else _free(output, force=force)
    trajectory = open_trajectory(recorded.path)
    pieces = export(trajectory, form, run_id=recorded.run_id)
    if target is None:
        _print(pieces)
    else:
        size_bytes = write_new(target, pieces)
        say(f"Wrote {output} ({counted(size_bytes, 'byte')}).")
    if warning := str(trajectory.skipped):
        say(warning)


def _print(pieces: Iterable[str]) -> None:
    """Print harmless text to a terminal, and exact text elsewhere."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    for piece in pieces:
        click.echo(harmless(piece) if is_terminal else _encoded(piece), nl=False)


def _free(output: Path, *, force: bool) -> Path:
    """Return the path of the new file; an existing file is overwritten only with --force."""
    target = Path(os.path.realpath(output))
    if target.exists() and not target.is_file():
        raise ConfigError(f"{output} is not a file; leave out -o to write to stdout")
    if target.exists() and not force:
        raise ConfigError(f"{output} already exists; pass --force to overwrite it")
    return target


def write_new(target: Path, pieces: Iterable[str]) -> int:
    """Write a temporary file beside the target, then rename it, so that no one sees half a file."""
    with replacing(target) as file:
        return sum(file.write(_encoded(piece)) for piece in pieces)


def _encoded(piece: str) -> bytes:
    return piece.encode("utf-8", "replace")
