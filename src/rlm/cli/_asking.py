"""What `rlm ask` does with its options: settings, models, context, progress, and the run."""

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import click
from msgspec import Struct
from msgspec.structs import replace

from rlm import knowledge, prompts
from rlm.api import RLM
from rlm.cli import dotenv
from rlm.cli._border import say
from rlm.cli._context import context_of
from rlm.cli._interrupts import Watch, first_interrupt_stops
from rlm.cli._models import Choice, choose, windows_of
from rlm.cli._output import show
from rlm.cli._servers import find_servers
from rlm.errors import ConfigError, UnknownPriceError
from rlm.limits import Limits
from rlm.logger import RLMLogger
from rlm.messages import ModelInfo, Price
from rlm.recorders.console import ConsoleRecorder
from rlm.registry import PROVIDERS, split_model
from rlm.results import RunResult
from rlm.typed import answer_type


class Options(Struct, frozen=True, kw_only=True):
    """Everything that was said on the command line, besides the question."""

    files: tuple[str, ...]
    model: str | None
    sub_model: str | None
    environment: str
    strategy: Literal["rlm", "direct", "mapreduce", "auto"]
    max_steps: int | None
    max_depth: int | None
    budget_usd: float | None
    price: tuple[float, float] | None
    max_tokens: int | None
    timeout: float | None
    as_json: bool
    schema: Path | None
    log_dir: Path | None
    quiet: bool
    verbose: bool

    def limits(self) -> Limits:
        given: dict[str, Any] = {
            "max_steps": self.max_steps,
            "max_depth": self.max_depth,
            "max_cost_usd": self.budget_usd,
            "max_tokens": self.max_tokens,
            "max_seconds": self.timeout,
        }
        return Limits(**{name: value for name, value in given.items() if value is not None})


def answer(query: str, options: Options) -> int:
    """Answer, show it, and return the exit code."""
    settings = dotenv.settings(os.environ, Path.cwd())
    variables, doubtful = settings.variables, settings.taken
    choice = choose(
        options.model,
        options.sub_model,
        variables,
        lambda: find_servers(variables, doubtful),
    )
    infos = _infos(choice, windows_of(choice, variables, doubtful))
    schema = None if options.schema is None else _schema(options.schema)
    log = None if options.log_dir is None else RLMLogger(log_dir=options.log_dir)
    if not options.quiet:
        for notice in _notices(choice, settings):
            say(notice)
    result = _run(query, options, settings, choice, infos, schema, log)
    if log is not None and log.log_file_path and not options.quiet:
        say(f"Log: {log.log_file_path}")
    typed = schema is not None
    model = choice.model
    return show(result, model, as_json=options.as_json, typed=typed, quiet=options.quiet)


def _run(
    query: str,
    options: Options,
    settings: dotenv.Settings,
    choice: Choice,
    infos: dict[str, ModelInfo],
    schema: Any,
    log: RLMLogger | None,
) -> RunResult:
    """One run, with its progress and Ctrl-C looked after. Mistakes show before stdin is read."""
    watch, progress = Watch(), _progress(options)
    logging.getLogger("rlm").addHandler(logging.NullHandler())  # What it would log is told here.
    engine = RLM(
        choice.model,
        sub_model=choice.sub_model,
        environment=options.environment,
        strategy=options.strategy,
        limits=options.limits(),
        prices=dict.fromkeys(choice.names, options.price) if options.price else None,
        recorders=[each for each in (watch, log, progress) if each is not None],
        variables=settings.variables,
        client_options=_client_options(infos),
    )
    if not options.quiet:
        _tell_what_is_unknown(infos, options)
    with ExitStack() as stack:
        stack.enter_context(engine)
        context = context_of(options.files)
        if progress is not None:
            stack.enter_context(progress)
        note = None if progress is None else progress.note
        stack.enter_context(first_interrupt_stops(engine, watch, note))
        try:
            return engine.ask(query, context, response_model=schema)
        except UnknownPriceError as error:
            raise click.ClickException(
                f"--budget-usd is set, but the price of {' or '.join(choice.names)} is unknown: "
                "pass --price IN,OUT (US dollars per million tokens) or use --max-tokens"
            ) from error


def _progress(options: Options) -> Any:
    """A live tree in a terminal, plain lines elsewhere, nothing if nobody wants to know."""
    if options.quiet or sys.stderr is None:
        return None
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from rlm.recorders.live import LiveRecorder

        return LiveRecorder(sys.stderr, verbose=options.verbose)
    return ConsoleRecorder(sys.stderr, verbose=options.verbose)


def _notices(choice: Choice, settings: dotenv.Settings) -> Iterator[str]:
    for name, reason in settings.ignored.items():
        yield f"{name} of {settings.path} is ignored: {reason}."
    if choice.notice:
        yield choice.notice


def _infos(choice: Choice, windows: dict[str, int]) -> dict[str, ModelInfo]:
    """What is known of those models that are a server's, with the windows that servers told."""
    found = {}
    for name in choice.names:
        try:
            provider, wire_name = split_model(name)
        except ConfigError:
            continue  # `RLM` complains about it
        if provider in PROVIDERS:
            info = knowledge.about(provider, wire_name)
            window = windows.get(name, info.window_tokens)
            found[name] = replace(info, window_tokens=window)
    return found


def _client_options(infos: dict[str, ModelInfo]) -> dict[str, dict[str, Any]]:
    return {name: {"infos": {split_model(name)[1]: info}} for name, info in infos.items()}


def _tell_what_is_unknown(infos: dict[str, ModelInfo], options: Options) -> None:
    """In a line each."""
    for name, info in infos.items():
        known = info if options.price is None else replace(info, price=Price(*options.price))
        if notice := knowledge.notice(name, known, prompts.UNKNOWN_WINDOW_TOKENS):
            say(notice)


def _schema(path: Path) -> Any:
    """The JSON schema in a file, tried out before anything is sent."""
    try:
        schema = json.loads(path.read_text("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise _misused(f"{path} is not JSON: {error}") from error
    except OSError as error:
        raise _misused(f"{path}: {error.strerror}") from error
    if not isinstance(schema, dict):
        raise _misused(f"{path} holds no JSON schema: that is an object, such as {{'type': …}}")
    try:
        answer_type(schema)
    except ConfigError as error:
        raise _misused(f"{path}: {error}") from error
    return schema


def _misused(text: str) -> click.UsageError:
    return click.BadParameter(text, click.get_current_context(), param_hint="'--schema'")
