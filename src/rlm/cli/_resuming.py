"""Continue recorded runs: `rlm resume` and `rlm fork` build the `RLM` of a record and ask it."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from rlm._util.slow_numbers import decode
from rlm.api import RLM
from rlm.citations import CITE_LINE
from rlm.cli import dotenv
from rlm.cli._context import context_of, data_of, shown_source
from rlm.cli._errors import ANSWERED, say, unknown_price
from rlm.cli._operator_results import with_results
from rlm.cli._output import check_stdout
from rlm.cli._progress import Manner, RunDisplay
from rlm.cli._records import archive, facts_of, find_run
from rlm.config import RunConfig
from rlm.context import StoredContext, store_context
from rlm.errors import ConfigError, UnknownPriceError
from rlm.messages import ModelInfo, Price
from rlm.portal import portal
from rlm.protocols import Recorder
from rlm.records.journal import Archive, RunFacts, RunFile, fork
from rlm.results import RunResult
from rlm.wiring.registry import PROVIDERS, split_model

__all__ = [
    "Recipe",
    "ResumeOptions",
    "fork_run",
    "keywords_of",
    "recipe_of",
    "reply_in",
    "resume_run",
]


class _Named(Struct, frozen=True):
    name: str


class Recipe(Struct, frozen=True, kw_only=True):
    """The recorded settings of a run that are needed to build its `RLM` again."""

    config: RunConfig
    environment: str = "local"
    environment_kwargs: dict[str, Any] = field(default_factory=dict)
    infos: dict[str, ModelInfo] = field(default_factory=dict)
    tools: tuple[_Named, ...] = ()
    values: tuple[str, ...] = ()
    answer_schema: dict[str, Any] | None = None
    own: tuple[str, ...] = ()
    operator: dict[str, Any] | None = None
    samples: int = 1

    @property
    def models(self) -> tuple[str, ...]:
        config = self.config
        return tuple(dict.fromkeys((config.model, config.sub_model, *config.models)))

    def check(self, facts: RunFacts) -> None:
        """Refuse runs that only the program that made them can continue."""
        if facts.in_chat:
            raise ConfigError(
                f"run {facts.run_id} was a turn of a chat: the variables of earlier turns "
                "are gone with that chat, so it can't continue; ask again in a new one"
            )
        names = [*(tool.name for tool in self.tools), *self.values, *self.own]
        if names:
            raise ConfigError(
                f"run {facts.run_id} was started by a program, with objects that only it has "
                f"({', '.join(dict.fromkeys(names))}); continue it there, with the same RLM(…, "
                f'journal=True).ask(query, context, run_id="{facts.run_id}")'
            )


def recipe_of(facts: RunFacts) -> Recipe:
    """Return the recorded settings of a run; ConfigError if they are not enough to continue."""
    try:
        return msgspec.convert(facts.settings, Recipe)
    except (msgspec.ValidationError, ConfigError, RecursionError) as error:
        raise ConfigError(
            f"the journal of run {facts.run_id} does not record how it was run: {error}"
        ) from error


def keywords_of(
    recipe: Recipe, limits: dict[str, Any], price: tuple[float, float] | None
) -> dict[str, Any]:
    """Return the keywords for `RLM`. New limits and prices replace recorded ones."""
    config = replace(recipe.config, limits=replace(recipe.config.limits, **limits))
    keywords = {name: getattr(config, name) for name in RunConfig.__struct_fields__}
    keywords["sub_model"] = None if config.sub_model == config.model else config.sub_model
    infos = {name: recipe.infos[name] for name in recipe.models if name in recipe.infos}
    if price is not None:
        infos = {name: replace(info, price=Price(*price)) for name, info in infos.items()}
    return {
        **keywords,
        "environment": recipe.environment,
        "environment_kwargs": recipe.environment_kwargs or None,
        "prices": {name: info.price for name, info in infos.items() if info.price},
        "windows": {name: info.window_tokens for name, info in infos.items() if info.window_tokens},
        "client_options": _client_options(infos),
    }


def _client_options(infos: dict[str, ModelInfo]) -> dict[str, dict[str, Any]]:
    """Return what was known about models of servers, including what no keyword can say."""
    parts = {name: split_model(name) for name in infos}
    return {
        name: {"infos": {wire_name: infos[name]}}
        for name, (provider, wire_name) in parts.items()
        if provider in PROVIDERS
    }


class ResumeOptions(Struct, frozen=True, kw_only=True):
    """The options of a command that continues a run."""

    files: tuple[str, ...]
    db: str | None
    db_schemas: tuple[str, ...]
    max_steps: int | None
    max_depth: int | None
    budget_usd: float | None
    price: tuple[float, float] | None
    max_tokens: int | None
    timeout: float | None
    as_json: bool
    log_dir: Path | None
    quiet: bool
    verbose: bool
    raw: bool = False

    @property
    def manner(self) -> Manner:
        return Manner(
            as_json=self.as_json,
            log_dir=self.log_dir,
            quiet=self.quiet,
            verbose=self.verbose,
            raw=self.raw,
        )

    def limits(self) -> dict[str, Any]:
        given = {
            "max_steps": self.max_steps,
            "max_depth": self.max_depth,
            "max_cost_usd": self.budget_usd,
            "max_tokens": self.max_tokens,
            "max_seconds": self.timeout,
        }
        return {name: value for name, value in given.items() if value is not None}


def resume_run(kept: Archive, run: RunFile, options: ResumeOptions) -> int:
    """Continue a run, show the answer, and return the exit code."""
    check_stdout()
    run.check_writer()
    facts = facts_of(kept, run)
    recipe = recipe_of(facts)
    manner = replace(options.manner, cite=CITE_LINE in recipe.config.prologue)
    display = RunDisplay(manner, journaled=True)
    result = kept.answered(run)  # From the record alone, without a key or the context.
    if result is not None:
        if not options.quiet:
            what = "an answer" if result.stop_reason == "answer" else "its passages"
            say(f"Run {facts.run_id} already has {what}:")
        if recipe.answer_schema is not None and result.answer_json is not None:
            result = replace(result, answer=_value(result.answer_json))
    else:
        recipe.check(facts)
        result = _run(kept, facts, recipe, options, display)
    is_typed = recipe.answer_schema is not None
    if recipe.operator is not None:
        items = _items_of(kept, facts, options)
        result = with_results(result, recipe.operator, items, quiet=options.quiet)
        is_typed = not isinstance(result.answer, str)  # One merged text is printed unchanged.
    return display.show(result, recipe.config.model, typed=is_typed)


def _items_of(kept: Archive, facts: RunFacts, options: ResumeOptions) -> bytes | None:
    """Return the recorded items of an operator, if they are still stored."""
    try:
        return _context_for(kept, facts, options).data
    except ConfigError:
        return None


def _run(
    kept: Archive, facts: RunFacts, recipe: Recipe, options: ResumeOptions, display: RunDisplay
) -> RunResult:
    with _engine(kept, recipe, options, display.recorders) as engine:
        context: Any = _context_for(kept, facts, options)
        try:
            return display.run(engine, lambda: _answer(engine, facts, recipe, context))
        except UnknownPriceError as error:
            raise unknown_price(recipe.models) from error


def _engine(
    kept: Archive, recipe: Recipe, options: ResumeOptions, recorders: list[Recorder]
) -> RLM:
    return RLM(
        **keywords_of(recipe, options.limits(), options.price),
        variables=dotenv.settings(os.environ, Path.cwd()).variables,
        recorders=recorders,
        journal=kept.places.root,
    )


def _answer(engine: RLM, facts: RunFacts, recipe: Recipe, context: Any) -> RunResult:
    query, run_id, operator = facts.query, facts.run_id, recipe.operator
    if operator is None:
        return engine.ask(
            query,
            context,
            response_model=recipe.answer_schema,
            run_id=run_id,
            samples=recipe.samples,
        )
    return portal().call(lambda: engine.runner.resume_operator(query, context, operator, run_id))


def _context_for(kept: Archive, facts: RunFacts, options: ResumeOptions) -> StoredContext:
    """Return the context of a run: as stored, or as given again."""
    files, wanted = options.files, facts.context
    if options.db is None and not files:
        try:
            return kept.context_of(facts)
        except ConfigError as error:
            raise ConfigError(f"{error}{_option_for(facts)}") from error
    data = data_of((), options.db, options.db_schemas)
    given = data or context_of(files, timeout=options.timeout)
    found = store_context(given)
    if not wanted.is_same(
        replace(wanted, kind=found.kind, sha256=found.sha256, size_bytes=found.size_bytes)
    ):
        name = ", ".join(map(shown_source, files)) or "the database of --db"
        raise ConfigError(
            f"{name} is not the context of run {facts.run_id}: that was {wanted.kind} "
            f"of {wanted.size_bytes:,} bytes with SHA-256 {wanted.sha256[:12]}…, this is "
            f"{found.kind} of {found.size_bytes:,} bytes with {found.sha256[:12]}…"
        )
    # The model saw this description, whatever the files are called now.
    found.description, found.documents = wanted.description, wanted.documents
    found.name = wanted.name
    return found


def _option_for(facts: RunFacts) -> str:
    """Return the option that gives the context again; tables and corpora have to stay in place."""
    if facts.context.kind != "source":
        return " with -f FILE"
    source = facts.context.source
    is_database = source is None or source["source"] == "database"
    return " with --db URL" if is_database else ""


def _value(text: str) -> Any:
    try:
        return decode(text, object)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the answer in the journal can't be read: {error}") from error


MAX_BYTES = 10 << 20
STDIN = "-"


def fork_run(
    name: str, step: int, edit: str | None, options: ResumeOptions, *, only_make: bool
) -> int:
    """Fork a run and continue; return the exit code."""
    check_stdout()
    kept = archive()
    run = find_run(kept, name)
    run.check_writer()
    facts = facts_of(kept, run)
    if not only_make:
        recipe = recipe_of(facts)
        recipe.check(facts)
        _engine(kept, recipe, options, []).close()  # A missing key leaves no run behind.
    reply = None if edit is None else reply_in(edit)
    run_id = fork(kept, run, step, reply)
    if only_make:
        click.echo(run_id)
        return ANSWERED
    if not options.quiet:
        say(f"Run {run_id} forks from {run.run_id} at step {step}.")
    return resume_run(kept, kept.places.find(run_id), options)


def reply_in(source: str) -> str:
    """Read a reply from a file; the text of a .py file is put into a code block."""
    data = _bytes_in(source)
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{source} has more than {MAX_BYTES:,} bytes; no reply is that long")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source} is not UTF-8: {error.reason} at byte {error.start}") from error
    if not text.strip():
        raise ConfigError(f"{source} is empty; leave out --edit to ask the model again")
    return as_block(text) if source.endswith(".py") else text


def as_block(code: str) -> str:
    """Return code in a fence that the code does not contain."""
    longest = max((len(each) for each in re.findall(r"`{3,}", code)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}repl\n{code.rstrip()}\n{fence}"


def _bytes_in(source: str) -> bytes:
    if source == STDIN:
        if sys.stdin is None:
            raise ConfigError("--edit - reads standard input, but it is closed")
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    with Path(source).open("rb") as file:
        return file.read(MAX_BYTES + 1)
