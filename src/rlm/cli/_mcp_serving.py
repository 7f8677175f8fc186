"""Run `rlm mcp`: open the roots, serve them, and leave nothing behind."""

import asyncio
import contextlib
import gc
import importlib.util
import logging
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click
from msgspec import Struct, structs

import rlm
from rlm._util.distribution import install_command
from rlm.cli._errors import say
from rlm.cli._mcp_roots import denials_of, keep_out_of, needs_unix, new_record, roots_of
from rlm.errors import ConfigError
from rlm.gateway.models import DEFAULT_LIMITS, Models
from rlm.gateway.paths import Root
from rlm.gateway.principals import LOCAL, UNNAMED, Tokens, check_address, read_tokens
from rlm.gateway.provenance import Provenance
from rlm.gateway.sessions import Ceilings
from rlm.gateway.stdio import StdioPipe
from rlm.settings.configuration import Defaults, read_user
from rlm.settings.for_programs import with_stored_keys
from rlm.web.hosts import bracketed
from rlm.wiring.registry import environments, split_model

if TYPE_CHECKING:
    from rlm.gateway.gateway import Gateway

__all__ = ["Options", "models_of", "needs_the_extra", "serve"]


class Said(Protocol):
    """The options about runs."""

    @property
    def model(self) -> str | None: ...
    @property
    def sub_model(self) -> str | None: ...
    @property
    def environment(self) -> str: ...
    @property
    def environment_options(self) -> tuple[tuple[str, Any], ...]: ...
    @property
    def max_steps(self) -> int | None: ...
    @property
    def max_depth(self) -> int | None: ...
    @property
    def max_tokens(self) -> int | None: ...
    @property
    def timeout(self) -> float | None: ...
    @property
    def price(self) -> tuple[float, float] | None: ...


def models_of(said: Said, variables: Mapping[str, str]) -> Models:
    """Return the models from options, then variables, then the user's settings.

    No `.env` and no file of a project is read: the project may be untrusted.
    """
    defaults = Defaults(read_user(variables))
    chosen = defaults.choose(with_stored_keys(variables), said.model, said.sub_model)
    model, sub_model = (None, None) if chosen is None else (chosen.model, chosen.sub_model)
    for name in filter(None, (model, sub_model)):
        split_model(name)  # raises if it is invalid
    if said.environment not in environments():
        known = ", ".join(environments())
        raise ConfigError(f"there is no environment {said.environment!r}; choose one of {known}")
    given = {
        "max_steps": said.max_steps,
        "max_depth": said.max_depth,
        "max_tokens": said.max_tokens,
        "max_seconds": said.timeout,
    }
    limits = structs.replace(
        DEFAULT_LIMITS, **{name: value for name, value in given.items() if value is not None}
    )
    options: dict[str, Any] = {
        "environment": said.environment,
        "environment_kwargs": dict(said.environment_options),
    }
    if model is not None:
        options["sub_model"] = sub_model
        if said.price is not None:
            options["prices"] = dict.fromkeys(filter(None, (model, sub_model)), said.price)
    return Models(model, limits=limits, **options)


LONGEST_NOTE_CHARS = 10_000


class Options(Struct, frozen=True, kw_only=True):
    """The options of the command line."""

    roots: tuple[str, ...]
    show_names: bool
    shows_ignored: bool
    deny: tuple[str, ...]
    allow: tuple[str, ...]
    no_usual_denials: bool
    provenance: Path | None
    max_calls: int | None
    max_bytes: int | None
    max_seconds: float | None
    max_idle_seconds: float | None
    max_runs: int | None
    max_run_files: int | None
    max_run_bytes: int | None
    budget_usd: float | None
    search_seconds: float
    exec_seconds: float
    model: str | None
    sub_model: str | None
    no_sampling: bool
    environment: str
    environment_options: tuple[tuple[str, Any], ...]
    max_steps: int | None
    max_depth: int | None
    max_tokens: int | None
    timeout: float | None
    price: tuple[float, float] | None
    http: bool
    host: str
    port: int
    token: str | None
    token_file: Path | None
    allowed_hosts: tuple[str, ...]
    allowed_origins: tuple[str, ...]

    def ceilings(self) -> Ceilings:
        given: dict[str, Any] = {
            "calls": self.max_calls,
            "bytes": self.max_bytes,
            "seconds": self.max_seconds,
            "idle_seconds": self.max_idle_seconds,
            "runs": self.max_runs,
            "run_files": self.max_run_files,
            "run_bytes": self.max_run_bytes,
            "cost_usd": self.budget_usd,
        }
        return Ceilings(**{name: value for name, value in given.items() if value is not None})


def needs_the_extra() -> None:
    """Return the error for a missing package."""
    if importlib.util.find_spec("mcp") is None:
        raise click.ClickException(f"the gateway needs a package: {install_command('mcp')}")


def serve(options: Options, pipe: StdioPipe | None) -> int:
    """Serve until the client closes the pipe, or a signal arrives."""
    needs_the_extra()
    needs_unix()
    gc.disable()  # imported objects stay; collecting them again and again takes time
    _log_to_stderr()
    denials = denials_of(options.deny, options.allow, usual=not options.no_usual_denials)
    with contextlib.ExitStack() as opened:
        roots = roots_of(options.roots, denials)
        for root in roots:
            opened.callback(root.close)
        path = options.provenance or new_record()
        keep_out_of(roots, path, "the provenance file")
        if options.token_file is not None:
            keep_out_of(roots, options.token_file, "the token file")
        tokens = _tokens(options)
        listening = None
        if pipe is None:
            from rlm.web.serving import open_socket

            check_address(options.host, tokens)
            listening = opened.enter_context(open_socket(options.host, options.port, "gateway"))
        record = Provenance(path)
        opened.callback(record.close)
        if pipe is not None:
            asyncio.run(_over_stdio(options, roots, record, pipe))
        elif listening is not None:
            asyncio.run(_over_http(options, roots, record, tokens, listening))
    return 0


def _gateway(options: Options, roots: list[Root], record: Provenance) -> "Gateway":
    from rlm.gateway.gateway import Gateway

    return Gateway(
        roots,
        record,
        ceilings=options.ceilings(),
        shows_names=options.show_names,
        shows_ignored=options.shows_ignored,
        search_seconds=options.search_seconds,
        exec_seconds=options.exec_seconds,
        models=models_of(options, os.environ),
        samples=not options.no_sampling,
    )


async def _over_stdio(
    options: Options, roots: list[Root], record: Provenance, pipe: StdioPipe
) -> None:
    from rlm.gateway.server import make_server
    from rlm.gateway.stdio import serve_until_signal

    if os.isatty(pipe.reading):
        say("Waiting for a client's JSON; `rlm mcp install` sets up a client. Ctrl-D stops it.")
    gateway = _gateway(options, roots, record)
    try:
        server = make_server(gateway, lambda _context: LOCAL, rlm.__version__)
        _all_is_imported()
        await serve_until_signal(server, pipe)
    finally:
        await gateway.close()


async def _over_http(
    options: Options,
    roots: list[Root],
    record: Provenance,
    tokens: Tokens | None,
    listening: socket.socket,
) -> None:
    from rlm.gateway.http import PATH, make_app, principal_of, serve_http
    from rlm.gateway.server import make_server

    gateway = _gateway(options, roots, record)
    try:
        port = listening.getsockname()[1]
        server = make_server(gateway, principal_of, rlm.__version__)
        app = make_app(
            server,
            tokens,
            host=options.host,
            port=port,
            allowed_hosts=options.allowed_hosts,
            allowed_origins=options.allowed_origins,
        )
        _all_is_imported()
        address = f"http://{bracketed(options.host)}:{port}{PATH}"
        await serve_http(app, listening, lambda: _tell(address, record))
    finally:
        await gateway.close()


def _tokens(options: Options) -> Tokens | None:
    if not options.http:
        return None
    named = read_tokens(options.token_file) if options.token_file is not None else {}
    if options.token:
        named[UNNAMED] = options.token.strip()
    return Tokens(named) if named else None


def _tell(address: str, record: Provenance) -> None:
    say(f"Gateway: {address} (Ctrl-C stops it); record: {record.path}")


def _all_is_imported() -> None:
    gc.freeze()
    gc.enable()


def _log_to_stderr() -> None:
    """Log problems to standard error as harmless text, since clients choose some of it."""
    from rlm.records.recorders.console import harmless

    class Harmless(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return harmless(super().format(record))[:LONGEST_NOTE_CHARS]

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Harmless("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
