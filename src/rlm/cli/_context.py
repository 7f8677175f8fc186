"""Build the context from `-f` options or standard input."""

import glob
import json
import math
import os
import select
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import click

from rlm.cli._errors import LIMITED, say
from rlm.cli._options import ADDRESS, is_pattern
from rlm.context import ContextValue, FileSet, files, store_context
from rlm.context.streams import MAX_READ_CHARS
from rlm.data import Database, Fetched, FetchLimits, GivenTables, database, place, table, tables

STDIN = "-"
STANDARD_INPUT = "standard input"
READ_AT_ONCE = 1 << 20


def check_files(sources: Sequence[str]) -> None:
    """Raise for a file that does not exist, before models are looked for or anything is sent."""
    for source in sources:
        if source != STDIN and not ADDRESS.match(source) and not is_pattern(source):
            Path(source).stat()


def context_of(
    sources: Sequence[str],
    *,
    quiet: bool = False,
    max_fetch_mb: int | None = None,
    timeout: float | None = None,
) -> ContextValue:
    """Return the context of the sources; without any, standard input if it has text, else None.

    Files elsewhere are fetched, with progress on standard error unless `quiet`.
    Scheduled jobs and CI run commands with an empty standard input, which means no context. A
    named source that is empty is a mistake. A stream may take `timeout` seconds.
    """
    if not sources:
        if sys.stdin is None or sys.stdin.isatty():
            return None
        return _read_text(sys.stdin.buffer, STANDARD_INPUT, timeout) or None
    elsewhere = [
        fetched(each, quiet=quiet, max_fetch_mb=max_fetch_mb)
        for each in sources
        if ADDRESS.match(each)
    ]
    here = [source for source in sources if not ADDRESS.match(source)]
    streams = {source: _stream(source, timeout) for source in here if _is_stream(source)}
    paths = [source for source in here if source not in streams]
    if not (elsewhere or any(streams.values()) or any(map(_may_have_content, paths))):
        raise click.ClickException(
            f"the context is empty: there is nothing in {', '.join(sources)}; "
            "leave -f out to ask without a context"
        )
    if not (paths or elsewhere) and len(streams) == 1:
        return next(iter(streams.values()))
    named = {"stdin" if source == STDIN else source: text for source, text in streams.items()}
    found = _beside(_files(paths), elsewhere)
    return {**named, **_read(found)} if named else found


def data_of(
    table_files: Sequence[str],
    url: str | None,
    schemas: Sequence[str],
    *,
    quiet: bool = False,
    max_fetch_mb: int | None = None,
) -> GivenTables | Database | None:
    """Return the tables or the database of `--table` and `--db`; None without any."""
    if url is not None:
        return database(url, tuple(schemas) or ("public",))
    if not table_files:
        return None
    return tables(
        *(
            fetched(each, quiet=quiet, max_fetch_mb=max_fetch_mb) if ADDRESS.match(each) else each
            for each in table_files
        )
    )


def fetched(address: str, *, quiet: bool, max_fetch_mb: int | None = None) -> Fetched:
    """Fetch the files at an address, and show progress."""
    from rlm.cli._fetching import fetch_shown  # imported here because few sources are elsewhere

    limits = None if max_fetch_mb is None else FetchLimits(bytes=max_fetch_mb * 1_000_000)
    return fetch_shown(place(address, limits=limits), quiet=quiet)


def shown_source(source: str) -> str:
    """Return a source as messages show it: an address without its secrets."""
    return place(source).shown if ADDRESS.match(source) else source


def _beside(local: ContextValue, elsewhere: list[Fetched]) -> ContextValue:
    """Return local files and fetched ones as one context."""
    if not elsewhere:
        return local
    if isinstance(local, FileSet):
        raise click.ClickException(
            "a pattern of local files can't be combined with an address; name the folder, or fetch "
            "the address first"
        )
    if local is None:
        return elsewhere[0] if len(elsewhere) == 1 else elsewhere
    return [*(local if isinstance(local, list) else [local]), *elsewhere]


def is_piped() -> bool:
    """Return whether standard input is a pipe, a socket or a file, not a terminal or /dev/null."""
    try:
        mode = None if sys.stdin is None else os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):  # Tests and other programs replace it with an object in memory.
        return False
    return mode is not None and not stat.S_ISCHR(mode)


def has_unread_input(sources: Sequence[str]) -> bool:
    """Return whether a piped or redirected standard input has data that no source reads.

    Nothing is read, so the input is left for another reader, such as a shell loop.
    """
    if STDIN in sources or not is_piped() or sys.stdin is None:
        return False
    number = sys.stdin.fileno()
    facts = os.fstat(number)
    if any(_is_same(source, facts) for source in sources):  # such as /dev/stdin
        return False
    if stat.S_ISREG(facts.st_mode):
        return facts.st_size > os.lseek(number, 0, os.SEEK_CUR)
    try:
        import fcntl
        import termios
    except ImportError:  # Windows can't tell how much there is.
        return True
    waiting = bytearray(4)
    try:
        fcntl.ioctl(number, termios.FIONREAD, waiting)
    except OSError:
        return False
    return any(waiting)


def _is_same(source: str, facts: os.stat_result) -> bool:
    try:
        return os.path.samestat(Path(source).stat(), facts)
    except (OSError, ValueError):
        return False


def _files(sources: list[str]) -> ContextValue:
    """Return one path unchanged; several, or patterns, are searched together."""
    if not sources:
        return None
    paths = [Path(source) for source in sources]
    if not any(map(is_pattern, sources)):
        return paths[0] if len(paths) == 1 else paths
    if len(sources) == 1 and sources[0].endswith((".parquet", ".pq")):
        return table(sources[0])
    return files(*(each if is_pattern(each) else glob.escape(each) for each in sources))


def _read(value: ContextValue) -> dict[str, Any]:
    """Read files into a dict by name, to combine with a stream."""
    if value is None:
        return {}
    stored = store_context([value] if isinstance(value, Path | Fetched) else value)
    found: dict[str, Any] = json.loads(stored.data.decode("utf-8", "surrogatepass"))
    return found


def _is_stream(source: str) -> bool:
    """Return whether a source can be read only once: stdin, or a pipe such as `<(zcat log.gz)`."""
    if source == STDIN:
        return True
    return not is_pattern(source) and stat.S_ISFIFO(Path(source).stat().st_mode)


def _stream(source: str, timeout: float | None) -> str:
    if source != STDIN:
        with Path(source).open("rb") as pipe:
            return _read_text(pipe, source, timeout)
    if sys.stdin is None:
        raise click.ClickException("-f - reads standard input, but it is closed")
    if sys.stdin.isatty():
        click.echo("Reading the context from the terminal; end it with Ctrl-D.", err=True)
    return _read_text(sys.stdin.buffer, STANDARD_INPUT, timeout)


def _may_have_content(source: str) -> bool:
    """Return whether a source may have content; only a file can be seen to be empty here."""
    if is_pattern(source):
        return True
    facts = Path(source).stat()
    return not stat.S_ISREG(facts.st_mode) or facts.st_size > 0


def _read_text(stream: BinaryIO, name: str, seconds: float | None = None) -> str:
    """Decode the rest of a stream byte for byte: what is not UTF-8 becomes surrogates.

    Refuse more than is held in memory. With `seconds`, give up after that time.
    """
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    data = bytearray()
    while _is_ready(stream, deadline):
        block = _next_block(stream)
        if not block:
            return data.decode("utf-8", "surrogateescape")
        data += block
        if len(data) > MAX_READ_CHARS:
            raise click.ClickException(
                f"{name} holds more than {MAX_READ_CHARS >> 20} MiB; write it to a file and pass "
                "that with -f, so that it is not held in memory"
            )
    say(f"Stopped early: {name} did not end within {seconds:g} seconds; no model was asked.")
    raise click.exceptions.Exit(LIMITED)


def _next_block(stream: BinaryIO) -> bytes:
    """Return what is there, at most a block; wait only if nothing is."""
    read = getattr(stream, "read1", stream.read)
    block: bytes = read(READ_AT_ONCE)
    return block


def _is_ready(stream: BinaryIO, deadline: float) -> bool:
    """Wait until reading would not block; return False if that takes too long."""
    left = deadline - time.monotonic()
    if left == math.inf:
        return True
    if left <= 0:
        return False
    try:
        return bool(select.select([stream], [], [], left)[0])
    except (OSError, ValueError):  # an object in memory, or Windows, where only sockets can wait
        return True
