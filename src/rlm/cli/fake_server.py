"""`rlm fake-server`: a script served over real HTTP, for tests of other programs."""

import errno
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from rlm._util.text import counted
from rlm.cli._options import Number, WholeNumber

if TYPE_CHECKING:
    from rlm.testing.fake_server import FakeServer, Received

__all__ = ["fake_server"]

EXAMPLES = """\b
A script is a TOML file (or .json, or .jsonl with one answer per line):
  [[answers]]
  when = "capital of France"    # a rule: a part of the request, or /regex/
  reply = "Paris"
  [[answers]]                   # the script: its answers in order
  status = 429
  retry_after = 2
  [[answers]]
  reply = "hello"
  behaviour = "drip"

\b
Examples:
  rlm fake-server script.toml
  rlm fake-server script.toml --port 8080 --loop --latency-ms 50
  curl -s http://127.0.0.1:8080/_requests
"""


@click.command(
    "fake-server", epilog=EXAMPLES, short_help="Serve scripted replies in place of a model."
)
@click.argument("script", type=click.Path(path_type=Path))
@click.option(
    "--port",
    default=0,
    type=WholeNumber(0, 65_535),
    help="The port to listen on; 0 picks a free one.",
)
@click.option(
    "--host",
    default="localhost",
    help="The address to listen on; with 0.0.0.0, other machines can reach it.",
)
@click.option(
    "--latency-ms",
    default=0.0,
    type=Number(0, 3_600_000),
    help="Delay every answer by this many milliseconds, in addition to its own delay.",
)
@click.option("--loop", is_flag=True, help="Start the script again when it is used up.")
@click.option("-q", "--quiet", is_flag=True, help="Do not print a line per request.")
def fake_server(
    script: Path, port: int, host: str, latency_ms: float, loop: bool, quiet: bool
) -> None:
    """Serve the answers in SCRIPT to any program that calls a model.

    It speaks chat completions, responses, Anthropic messages, Gemini and Amazon Bedrock's Converse
    at once. Its address is printed to standard output; the variables to export, and a line per
    request, to standard error. Ctrl-C stops it.
    """
    from rlm.testing.fake_server import FakeServer

    server = FakeServer.from_file(
        script,
        host=host,
        port=port,
        latency_seconds=latency_ms / 1000,
        loop=loop,
        on_request=None if quiet else _note,
    )
    signal.signal(signal.SIGTERM, _end)
    try:
        with _serving(server, host, port):
            click.echo(server.url)
            sys.stdout.flush()
            for name, value in server.variables.items():
                click.echo(f"export {name}={value}", err=True)
            _wait()
    except KeyboardInterrupt:
        click.echo(f"{counted(server.count, 'request')} received.", err=True)


@contextmanager
def _serving(server: "FakeServer", host: str, port: int) -> Generator[None, None, None]:
    try:
        server.start()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            reason = f"port {port} is taken, perhaps by another server; choose one with --port N"
        else:
            reason = f"the fake server can't listen on {host}:{port}: {error.strerror or error}"
        raise click.ClickException(reason) from error
    try:
        yield
    finally:
        server.stop()


def _wait() -> NoReturn:
    """Wait until a signal arrives."""
    while True:
        signal.pause()


def _end(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


def _note(received: "Received") -> None:
    """Print one harmless line for a request."""
    from rlm.records.recorders.console import one_line

    asked = received.asked
    kind = (
        "?"
        if asked is None
        else f"{asked.dialect} {asked.model}{' stream' if asked.stream else ''}"
    )
    status = "gone" if received.disconnected else received.status or "dropped"
    how = f" ({', '.join(sorted(received.behaviours))})" if received.behaviours else ""
    click.echo(one_line(f"{received.number} {received.path} {kind} -> {status}{how}"), err=True)
