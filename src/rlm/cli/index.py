"""`rlm index`: make a corpus from folders and files that are larger than memory."""

from pathlib import Path
from typing import Any

import click

from rlm.cli._options import (
    ADDRESS,
    SOURCE,
    Number,
    max_fetch_option,
    quiet_option,
)

__all__ = ["index"]

EXAMPLES = """\b
A text file is one document; a .jsonl file has one document per line. The files
stay where they are: the corpus refers to them. Files at an address are fetched
into the folder of the corpus.

\b
Examples:
  rlm index papers -o corpus
  rlm index dump.jsonl -o corpus --text-field body --id-field url
  rlm index -o corpus            (again: reads only what is new or changed)
  rlm index -o corpus --watch
  rlm index s3://bucket/papers/ -o corpus

\b
Exit codes: 0 everything is indexed, 1 an error, 2 wrong usage, 130 Ctrl-C. The
same command continues where it stopped, even after a crash.
"""


@click.command(epilog=EXAMPLES)
@click.argument("sources", nargs=-1, type=SOURCE, metavar="[FOLDER|FILE|ADDRESS]...")
@click.option(
    "-o",
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="CORPUS",
    help="The folder of the corpus; created if it does not exist.",
)
@click.option(
    "--text-field", metavar="NAME", help="The field of JSON lines that contains the text."
)
@click.option("--id-field", metavar="NAME", help="The field of JSON lines that names a document.")
@click.option("--watch", is_flag=True, help="Keep indexing changes until Ctrl-C.")
@click.option(
    "--every",
    type=Number(min=0.1),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="With --watch, look for changes this often.",
)
@max_fetch_option
@quiet_option
@click.pass_context
def index(
    ctx: click.Context,
    /,
    sources: tuple[str, ...],
    out: Path,
    max_fetch_mb: int | None,
    **given: Any,
) -> None:
    """Index folders and files into a corpus, or update one.

    Without sources, a corpus is updated from the files and addresses it covers.
    """
    from msgspec.structs import replace

    from rlm.cli._indexing import IndexOptions, run_index
    from rlm.data.places import WIDE, place

    most = WIDE.bytes if max_fetch_mb is None else max_fetch_mb * 1_000_000
    limits = replace(WIDE, bytes=most)
    named = [place(each, limits=limits) if ADDRESS.match(each) else Path(each) for each in sources]
    ctx.exit(run_index(named, out, IndexOptions(**given)))
