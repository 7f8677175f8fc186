"""Run `rlm models pull`: have an Ollama server download a model, and show progress."""

import http.client
import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import urlsplit

import click

from rlm.cli import dotenv
from rlm.cli._errors import ANSWERED, say
from rlm.cli._models import address_of
from rlm.errors import ConfigError
from rlm.records.recorders.console import one_line

__all__ = ["pull_model"]

NAME = re.compile(r"\w[\w.-]*(?:[/:]\w[\w.-]*)*", re.ASCII)
LONGEST_NAME = 200
CONNECT_SECONDS = 5.0
SILENT_SECONDS = 300.0
"""How long a server may stay silent: it checks a large file after the download."""

LONGEST_LINE_BYTES = 65_536
SECONDS_BETWEEN_LINES = 10.0
INSTALL = "install it from https://ollama.com, or start it with `ollama serve`"


def pull_model(name: str, settings: dotenv.Settings) -> int:
    """Download a model and say how to use it; return the exit code."""
    name = name.removeprefix("ollama/")
    if len(name) > LONGEST_NAME or not NAME.fullmatch(name):
        raise click.UsageError(f"{name!r} is not the name of a model; give one such as qwen3:8b")
    address = address_of("ollama", settings.variables, settings.taken)
    root = address.rstrip("/").removesuffix("/v1")
    with _progress(name) as shown:
        _follow(name, root, shown)
    say(f'{name} is ready. Next: rlm ask "What is this about?" -f FILE -m ollama/{name}')
    return ANSWERED


def _follow(name: str, root: str, shown: "Lines") -> None:
    """Show the reports of the server until the last one; ConfigError if it fails."""
    again = f"run `rlm models pull {name}` again: what was downloaded is kept"
    try:
        for report in _reports(name, root):
            if error := report.get("error"):
                raise ConfigError(f"Ollama can't pull {name}: {one_line(str(error), 300)}")
            if report.get("status") == "success":
                return
            shown.update(report)
    except TimeoutError:
        raise ConfigError(f"Ollama sent nothing for {SILENT_SECONDS:g} s; {again}") from None
    except (OSError, http.client.HTTPException) as error:
        raise ConfigError(f"the connection to {root} was lost ({error}); {again}") from None
    raise ConfigError(f"Ollama ended the download before it was complete; {again}")


def _reports(name: str, root: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON lines of the server."""
    parts = urlsplit(root)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=CONNECT_SECONDS)
    try:
        connection.connect()
    except OSError as error:
        raise ConfigError(
            f"no Ollama server answers at {root} ({error.strerror or error}): {INSTALL}"
        ) from None
    try:
        connection.sock.settimeout(SILENT_SECONDS)
        body = json.dumps({"model": name, "stream": True})
        headers = {"Content-Type": "application/json"}
        connection.request("POST", f"{parts.path}/api/pull", body, headers)
        response = connection.getresponse()
        if response.status == 404:
            raise ConfigError(f"the server at {root} is not an Ollama server, or is a very old one")
        while line := response.readline(LONGEST_LINE_BYTES):
            yield _report(line, response.status)
    finally:
        connection.close()


def _report(line: bytes, status: int) -> dict[str, Any]:
    try:
        report = json.loads(line)
    except (ValueError, RecursionError):
        report = None
    if not isinstance(report, dict):
        return {"error": f"it answered {line[:100]!r}"}
    if status >= 400 and "error" not in report:
        return {"error": f"HTTP status {status}"}
    return report


# -- showing --------------------------------------------------------------------------------------


class Lines(AbstractContextManager["Lines"]):
    """Progress for logs: a line when something new begins, and one every few seconds."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._last = ""
        self._said_at = -SECONDS_BETWEEN_LINES

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, report: dict[str, Any]) -> None:
        """Show one report of the server, which may contain anything."""
        status = one_line(str(report.get("status", "")), 80)
        done, total = (_size(report.get(each)) for each in ("completed", "total"))
        self.show(status, min(done, total), total)

    def show(self, status: str, done: int, total: int) -> None:
        now = time.monotonic()
        if status != self._last or now - self._said_at >= SECONDS_BETWEEN_LINES:
            self._last, self._said_at = status, now
            say(f"{self._name}: {status}{f', {_megabytes(done, total)}' if total else ''}")


class Bar(Lines):
    """Progress for terminals: one bar per part of the model."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        super().__init__(name)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True, highlight=False, markup=False, emoji=False),
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._bars: dict[str, Any] = {}

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, status: str, done: int, total: int) -> None:
        if not total or len(self._bars) > 50:
            return
        if status not in self._bars:
            self._bars[status] = self._progress.add_task(status[:40], total=total)
        self._progress.update(self._bars[status], completed=done, total=total)


def _progress(name: str) -> Lines:
    return Bar(name) if sys.stderr is not None and sys.stderr.isatty() else Lines(name)


def _size(value: Any) -> int:
    is_size = isinstance(value, int) and not isinstance(value, bool)
    return max(0, min(value, 1 << 50)) if is_size else 0


def _megabytes(done: int, total: int) -> str:
    return f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
