"""Run `rlm serve`: models, environments, tokens, and the server."""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

import rlm
from rlm._util.distribution import install_command
from rlm.api import RLM
from rlm.cli import dotenv
from rlm.cli._asking import _client_options, _infos, _notices
from rlm.cli._errors import say
from rlm.cli._models import Choice, choose, find_servers, windows_of
from rlm.cli._records import where_to_journal
from rlm.errors import ConfigError
from rlm.limits import Limits
from rlm.protocols import Environment
from rlm.records.journal import Archive, Places
from rlm.records.judging import Judgments
from rlm.records.searching import index_path
from rlm.server.engines import PREFIX, Engines
from rlm.server.settings import MIB, Settings
from rlm.server.tokens import read_tokens
from rlm.web.hosts import HostPolicy, bracketed
from rlm.wiring.registry import make_environment, setup_code_of

if TYPE_CHECKING:
    from rlm.server.service import Service
    from rlm.server.viewing import TenantViewers
    from rlm.viewer.application import ViewerApp

__all__ = ["Options", "run_server"]

CALLS_A_RUN = 4


class Options(Struct, frozen=True, kw_only=True):
    """The options of the command line."""

    host: str
    port: int
    models: tuple[str, ...]
    sub_model: str | None
    environment: str
    environment_options: tuple[tuple[str, Any], ...]
    environments: tuple[str, ...]
    setup_code: str | None
    max_steps: int | None
    max_depth: int | None
    budget_usd: float | None
    price: tuple[float, float] | None
    max_tokens: int | None
    timeout: float
    context_over: int
    tokens: tuple[str, ...]
    tokens_file: Path | None
    max_concurrent_runs: int
    max_queued: int
    max_body_mb: float
    max_memory_mb: float
    max_file_mb: float
    grace: float
    resumes: bool
    cors_origins: tuple[str, ...]
    view: bool
    quiet: bool

    def limits(self) -> Limits:
        given: dict[str, Any] = {
            "max_steps": self.max_steps,
            "max_depth": self.max_depth,
            "max_cost_usd": self.budget_usd,
            "max_tokens": self.max_tokens,
            "max_seconds": self.timeout,
        }
        return Limits(**{name: value for name, value in given.items() if value is not None})

    @property
    def calls_at_once(self) -> int:
        """Return the concurrent calls per model: several for each run."""
        return max(Limits().max_concurrent_calls, CALLS_A_RUN * self.max_concurrent_runs)

    def settings(self, folder: Path) -> Settings:
        return Settings(
            folder=folder,
            limits=self.limits(),
            context_over=self.context_over,
            max_concurrent_runs=self.max_concurrent_runs,
            max_queued=self.max_queued,
            max_body_bytes=int(self.max_body_mb * MIB),
            max_memory_bytes=int(self.max_memory_mb * MIB),
            max_file_bytes=int(self.max_file_mb * MIB),
            grace_seconds=self.grace,
            cors_origins=self.cors_origins,
            resumes=self.resumes,
        )


def run_server(options: Options) -> None:
    """Serve until a signal arrives."""
    try:
        import prometheus_client
        import python_multipart
    except ImportError as error:
        raise ConfigError(f"rlm serve needs {error.name}: {install_command('server')}") from error
    del prometheus_client, python_multipart
    from rlm.server.access import check_address
    from rlm.web.serving import open_socket

    tokens = read_tokens(options.tokens_file, options.tokens)
    check_address(options.host, bool(tokens))
    settings = dotenv.settings(os.environ, Path.cwd())
    settings.defaults.check_limits()
    folder, problem = where_to_journal(settings.variables, wanted=True)
    if folder is None:
        why = problem or "RLM_JOURNAL is off"
        raise ConfigError(f"rlm serve keeps background runs in a journal, but {why}")
    choices = _choices(options, settings)
    if not options.quiet:
        for notice in dict.fromkeys(n for each in choices for n in _notices(each, settings, "")):
            say(notice)
    _log_to_stderr(quiet=options.quiet)
    bound = open_socket(options.host, options.port)
    with bound:
        asyncio.run(_serve(options, settings, choices, folder, bound))
    say("The server has stopped.")


async def _serve(
    options: Options,
    settings: dotenv.Settings,
    choices: list[Choice],
    folder: Path,
    bound: socket.socket,
) -> None:
    from rlm.server.service import Service
    from rlm.server.serving import serve

    archive = Archive(Places(folder))
    service = Service(
        options.settings(folder / "server"),
        _engines(options, settings, choices, folder),
        read_tokens(options.tokens_file, options.tokens),
        archive,
        HostPolicy(options.host, bound.getsockname()[1]),
    )
    viewer = (
        _viewer(options.host, bound.getsockname()[1], archive, service) if options.view else None
    )
    for line in _welcome(options, service.engines.models, bound.getsockname()[1]):
        print(line, file=sys.stderr, flush=True)
    if viewer is not None:
        print(f"Viewer: {viewer[1]}", file=sys.stderr, flush=True)
    await serve(service, bound, None if viewer is None else viewer[0])


def _viewer(
    host: str, port: int, kept: Archive, service: "Service"
) -> "tuple[ViewerApp | TenantViewers, str]":
    """Return the viewer and its address: of each token's own runs, or without tokens of all runs.

    Without tokens it has one of its own, because other users of this machine can reach it.
    """
    from rlm.server.viewing import PREFIX as VIEW
    from rlm.server.viewing import TenantViewers

    if service.tokens:
        shown = f"http://{bracketed(host)}:{port}{VIEW}/ (sign in with a token of the server)"
        return TenantViewers(service.tokens, kept, service.settings.folder), shown
    from rlm.cli._viewing import RecordedEngines
    from rlm.viewer.access import Access
    from rlm.viewer.application import ViewerApp
    from rlm.viewer.contexts import Contexts
    from rlm.viewer.library import Journals, Library

    access = Access(host, port, token=os.environ.get("RLM_VIEW_TOKEN"), prefix=VIEW)
    viewer = ViewerApp(
        Library(Journals(kept)),
        Contexts(kept.contexts),
        RecordedEngines(kept),
        access,
        version=rlm.__version__,
        judgments=Judgments(kept.places.root),
        index=index_path(kept.places.root, "runs"),
    )
    return viewer, access.url


def _choices(options: Options, settings: dotenv.Settings) -> list[Choice]:
    """Return the requested models; without any, the one that `rlm ask` would use."""
    variables, doubtful = settings.variables, settings.taken
    asked: Iterable[str | None] = options.models or (None,)
    return [
        choose(
            model,
            options.sub_model,
            variables,
            lambda: find_servers(variables, doubtful),
            settings.defaults,
            doubtful,
        )
        for model in asked
    ]


def _engines(
    options: Options, settings: dotenv.Settings, choices: list[Choice], folder: Path
) -> Engines:
    """Return one `RLM` per model and environment; they share the environments."""
    variables, doubtful = settings.variables, settings.taken
    by_name = {choice.model: choice for choice in choices}
    found = setup_code_of(options.setup_code, dict(options.environment_options))
    usual = make_environment(options.environment, found["environment_kwargs"])
    environments = {
        usual.name: usual,  # What `auto` chose, under its own name.
        **{name: make_environment(name, {}) for name in options.environments},
    }

    def make(model: str, environment: Environment) -> RLM:
        choice = by_name[model]
        infos = _infos(choice, windows_of(choice, variables, doubtful))
        return RLM(
            choice.model,
            sub_model=choice.sub_model,
            environment=environment,
            setup_code=found["setup_code"],
            limits=replace(options.limits(), max_concurrent_calls=options.calls_at_once),
            prices=dict.fromkeys(choice.names, options.price) if options.price else None,
            journal=folder,
            variables=variables,
            client_options=_client_options(infos),
        )

    return Engines(list(by_name), environments, make)


def _welcome(options: Options, models: tuple[str, ...], port: int) -> list[str]:
    host = f"[{options.host}]" if ":" in options.host else options.host
    base, model = f"http://{host}:{port}/v1", PREFIX + models[0]
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello"}}]}}'
    guarded = bool(options.tokens or options.tokens_file)
    key = ' -H "Authorization: Bearer $TOKEN"' if guarded else ""
    offered = ", ".join(PREFIX + each for each in models)
    example = f"curl {base}/chat/completions -H 'Content-Type: application/json'{key} -d '{body}'"
    return [f"Listening at {base} (models: {offered}). Ctrl-C stops it.", f"  {example}"]


def _log_to_stderr(*, quiet: bool) -> None:
    """Log one line per request, without bodies and keys."""
    logger = logging.getLogger("rlm.server")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%S"))
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING if quiet else logging.INFO)
    logger.propagate = False
