"""Run `rlm ask`: settings, models, context, progress, and the run itself."""

import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import click
from msgspec import Struct
from msgspec.structs import replace

from rlm import models, prompts
from rlm.api import RLM
from rlm.cli import dotenv
from rlm.cli._context import check_files, context_of, data_of, has_unread_input, is_piped
from rlm.cli._errors import say, unknown_price
from rlm.cli._models import Choice, choose, find_servers, windows_of
from rlm.cli._output import check_stdout
from rlm.cli._progress import Manner, RunDisplay
from rlm.cli._records import where_to_journal
from rlm.config import Strategy
from rlm.engine.answer_types import LibraryMissing, answer_type
from rlm.errors import ConfigError, UnknownPriceError
from rlm.limits import Limits
from rlm.messages import ModelInfo
from rlm.protocols import Recorder
from rlm.results import RunResult
from rlm.wiring.registry import PROVIDERS, split_model


class Options(Struct, frozen=True, kw_only=True):
    """The options of the command line, without the question."""

    files: tuple[str, ...]
    model: str | None
    sub_model: str | None
    environment: str
    environment_options: tuple[tuple[str, Any], ...]
    strategy: Strategy | None
    max_steps: int | None
    max_depth: int | None
    budget_usd: float | None
    price: tuple[float, float] | None
    max_tokens: int | None
    timeout: float | None
    as_json: bool
    schema: Path | None
    log_dir: Path | None
    journal: bool
    view: bool
    quiet: bool
    verbose: bool
    max_concurrent_calls: int | None = None
    setup_code: str | None = None
    preview_chars: int | None = None
    cite: bool = False
    raw: bool = False
    samples: int = 1
    tables: tuple[str, ...] = ()
    db: str | None = None
    db_schemas: tuple[str, ...] = ()
    max_fetch_mb: int | None = None

    @property
    def manner(self) -> Manner:
        return Manner(
            as_json=self.as_json,
            log_dir=self.log_dir,
            quiet=self.quiet,
            verbose=self.verbose,
            cite=self.cite,
            raw=self.raw,
        )

    def limits(self) -> Limits:
        given: dict[str, Any] = {
            "max_steps": self.max_steps,
            "max_depth": self.max_depth,
            "max_cost_usd": self.budget_usd,
            "max_tokens": self.max_tokens,
            "max_seconds": self.timeout,
            "max_concurrent_calls": self.max_concurrent_calls,
        }
        return Limits(**{name: value for name, value in given.items() if value is not None})


def answer(query: str, options: Options) -> int:
    """Answer the query, show the answer, and return the exit code."""
    check_stdout()
    made_of = prepare(options)
    display = RunDisplay(options.manner, journaled=made_of.journal is not None)
    with _page(options.view, made_of.journal) as page:
        beside = [] if page is None else [page]
        with make_rlm(options, made_of, [*display.recorders, *beside]) as engine:
            if made_of.schema is not None:
                _check_can_type(engine, made_of.choice.model)
            result = _run(query, options, made_of, display, engine)
            # Before the engine closes, which Ctrl-C can interrupt.
            code = display.show(result, made_of.choice.model, typed=made_of.schema is not None)
        if page is not None:
            page.wait()
        return code


def prepare(options: Options) -> "Setting":
    """Check the files, choose models and settings, and print notices about them."""
    check_files(options.files)
    settings = dotenv.settings(os.environ, Path.cwd())
    settings.defaults.check_limits()
    variables, doubtful = settings.variables, settings.taken
    choice = choose(
        options.model,
        options.sub_model,
        variables,
        lambda: find_servers(variables, doubtful),
        settings.defaults,
        doubtful,
    )
    infos = _infos(choice, windows_of(choice, variables, doubtful))
    schema = None if options.schema is None else _schema(options.schema)
    folder, problem = where_to_journal(variables, wanted=options.journal)
    if not options.quiet:
        for notice in _notices(choice, settings, problem):
            say(notice)
    return Setting(settings, choice, infos, schema, folder)


def _page(wanted: bool, journal: Path | None) -> AbstractContextManager[Any]:
    """Return the viewer beside the run, if it was requested."""
    if not wanted:
        return nullcontext()
    if journal is None:
        raise click.ClickException("--view shows journaled runs: leave out --no-journal")
    from rlm.cli._viewing import view_beside

    return view_beside()


class Setting(NamedTuple):
    """What a run needs besides the options."""

    settings: dotenv.Settings
    choice: Choice
    infos: dict[str, ModelInfo]
    schema: Any
    journal: Path | None


def _run(
    query: str, options: Options, made_of: Setting, display: RunDisplay, engine: RLM
) -> RunResult:
    """Run once. Mistakes in options are reported before standard input is read."""
    unread = _UnreadInput(options)
    unread.tell()
    fetching: Any = {"quiet": options.quiet, "max_fetch_mb": options.max_fetch_mb}
    data = data_of(options.tables, options.db, options.db_schemas, **fetching)
    if data is None:
        context: Any = context_of(options.files, **fetching, timeout=options.timeout)
    else:
        context = data
    if context is None and options.strategy == "mapreduce":
        raise click.UsageError(
            "--strategy mapreduce reads a context part by part, but there is none: use --strategy "
            "direct, or add a context with -f FILE",
            click.get_current_context(silent=True),
        )
    if context is None and not options.quiet:
        say(_without_context(engine, made_of.choice.model))
    try:
        return display.run(
            engine,
            lambda: engine.ask(
                query,
                context,
                response_model=made_of.schema,
                cite=options.cite,
                samples=options.samples,
            ),
        )
    except UnknownPriceError as error:
        raise unknown_price(made_of.choice.names) from error
    finally:
        unread.tell()  # A slow program may have written something only now.


class _UnreadInput:
    """Say once that standard input is ignored, if options name the context and it is not empty."""

    def __init__(self, options: Options) -> None:
        self._sources = options.files
        given = {"-f": options.files, "--table": options.tables, "--db": options.db}
        self._option = next((name for name, value in given.items() if value), None)
        self._is_told = options.quiet or self._option is None

    def tell(self) -> None:
        if not self._is_told and has_unread_input(self._sources):
            self._is_told = True
            advice = ": add -f - to read it too" if self._sources else ""
            say(f"Standard input is not read, because {self._option} names the context{advice}.")


def _without_context(engine: RLM, model: str) -> str:
    if not engine.runner.resources.info(model).is_language_model:
        return (
            "There is no context to search, and no language model that could answer without one. "
            "Add a context with -f FILE, or run `rlm setup`."
        )
    if is_piped():
        return "Standard input is empty, so the query is asked without a context."
    return "There is no context: the model answers from what it knows. Add one with -f FILE."


def make_rlm(options: Options, made_of: Setting, recorders: list[Recorder]) -> RLM:
    """Build the `RLM` that the options describe."""
    choice, infos = made_of.choice, made_of.infos
    engine = RLM(
        choice.model,
        sub_model=choice.sub_model,
        environment=options.environment,
        environment_kwargs=dict(options.environment_options),
        setup_code=options.setup_code,
        strategy=options.strategy,
        preview_chars=options.preview_chars,
        limits=options.limits(),
        prices=dict.fromkeys(choice.names, options.price) if options.price else None,
        recorders=recorders,
        journal=made_of.journal,
        variables=made_of.settings.variables,
        client_options=_client_options(infos),
    )
    if not options.quiet:
        _tell_what_is_unknown(engine, choice)
    return engine


def _check_can_type(engine: RLM, model: str) -> None:
    """Refuse a typed answer of a search, which could only find passages."""
    if not engine.runner.resources.info(model).is_language_model:
        raise click.ClickException(
            f"--schema needs a language model, but {model} only finds passages, which can't be "
            "given as JSON of that schema: run `rlm setup`, set a key such as OPENAI_API_KEY, "
            "choose a model with -m, or leave out --schema"
        )


def _notices(choice: Choice, settings: dotenv.Settings, problem: str) -> Iterator[str]:
    yield from settings.notices()
    yield from settings.defaults.notices()
    if settings.notice:
        yield settings.notice
    if choice.notice and not choice.fallback:  # The search's results say what they are.
        yield choice.notice
    if problem:
        yield f"This run is not journaled, so it can't be resumed: {problem}."


def _infos(choice: Choice, windows: dict[str, int]) -> dict[str, ModelInfo]:
    """Return what is known about models of local servers, with the windows the servers report."""
    found = {}
    for name in choice.names:
        try:
            provider, wire_name = split_model(name)
        except ConfigError:
            continue  # `RLM` reports it
        if provider in PROVIDERS:
            info = models.about(provider, wire_name)
            window = windows.get(name, info.window_tokens)
            found[name] = replace(info, window_tokens=window)
    return found


def _client_options(infos: dict[str, ModelInfo]) -> dict[str, dict[str, Any]]:
    return {name: {"infos": {split_model(name)[1]: info}} for name, info in infos.items()}


def _tell_what_is_unknown(engine: RLM, choice: Choice) -> None:
    """Print one line per model about which something is assumed."""
    for name in choice.names:
        info = engine.runner.resources.info(name)
        if notice := models.notice(name, info, prompts.UNKNOWN_WINDOW_TOKENS):
            say(notice)


def _schema(path: Path) -> Any:
    """Read a JSON schema from a file, and check it before anything is sent."""
    try:
        schema = json.loads(path.read_text("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise _misused(f"{path} is not a text in UTF-8, so it is not JSON") from error
    except (ValueError, RecursionError) as error:
        raise _misused(f"{path} is not JSON: {error}") from error
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error
    if not isinstance(schema, dict):
        raise _misused(f"{path} is not a JSON schema: a schema is an object such as {{'type': …}}")
    try:
        answer_type(schema)
    except LibraryMissing:  # The schema is right; the installation lacks something.
        raise
    except ConfigError as error:
        raise _misused(f"{path}: {error}") from error
    return schema


def _misused(text: str) -> click.UsageError:
    return click.BadParameter(text, click.get_current_context(), param_hint="'--schema'")
