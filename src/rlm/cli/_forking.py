"""What `rlm fork` does: read the other reply, make the new run, and go on with it."""

import re
import sys
from pathlib import Path

import click

from rlm.cli._border import ANSWERED, say
from rlm.cli._going_on import GoOn, go_on
from rlm.cli._rebuilding import recipe_of
from rlm.cli._records import archive, facts_of, find_run
from rlm.errors import ConfigError
from rlm.records.journal import fork

__all__ = ["fork_run", "reply_in"]

MOST_BYTES = 10 << 20
STDIN = "-"


def fork_run(name: str, step: int, edit: str | None, options: GoOn, *, only_make: bool) -> int:
    """Fork and go on; returns the exit code."""
    kept = archive()
    run = find_run(kept, name)
    facts = facts_of(kept, run)
    if not only_make:
        recipe_of(facts).check(facts)
    reply = None if edit is None else reply_in(edit)
    run_id = fork(kept, run, step, reply)
    if only_make:
        click.echo(run_id)
        return ANSWERED
    if not options.quiet:
        say(f"Run {run_id} parts from {run.run_id} at step {step}.")
    return go_on(kept, kept.places.find(run_id), options)


def reply_in(source: str) -> str:
    """A reply from a file; one that ends in .py is code, and is put into a block of its own."""
    data = _bytes_in(source)
    if len(data) > MOST_BYTES:
        raise ConfigError(f"{source} has more than {MOST_BYTES:,} bytes; no reply is that long")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source} is not UTF-8: {error.reason} at byte {error.start}") from error
    if not text.strip():
        raise ConfigError(f"{source} is empty; leave out --edit to have the model asked again")
    return as_block(text) if source.endswith(".py") else text


def as_block(code: str) -> str:
    """Code as a model would write it, between fences that the code itself does not hold."""
    longest = max((len(each) for each in re.findall(r"`{3,}", code)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}repl\n{code.rstrip()}\n{fence}"


def _bytes_in(source: str) -> bytes:
    if source == STDIN:
        if sys.stdin is None:
            raise ConfigError("--edit - reads standard input, but it is closed")
        return sys.stdin.buffer.read(MOST_BYTES + 1)
    with Path(source).open("rb") as file:
        return file.read(MOST_BYTES + 1)
