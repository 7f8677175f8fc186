"""What `rlm resume` does, and `rlm fork` after it: make the `RLM` of a record again, and ask it."""

import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rlm.api import RLM
from rlm.cli import dotenv
from rlm.cli._asking import unknown_price
from rlm.cli._border import say
from rlm.cli._context import context_of
from rlm.cli._rebuilding import Recipe, keywords_of, recipe_of
from rlm.cli._records import facts_of
from rlm.cli._stage import Manner, Stage
from rlm.context import StoredContext, store_context
from rlm.errors import ConfigError, UnknownPriceError
from rlm.records.journal import Archive, RunFacts, RunFile
from rlm.results import RunResult

__all__ = ["GoOn", "context_for", "go_on"]


class GoOn(Struct, frozen=True, kw_only=True):
    """What was said on the command line of a run that goes on."""

    files: tuple[str, ...]
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

    @property
    def manner(self) -> Manner:
        return Manner(
            as_json=self.as_json, log_dir=self.log_dir, quiet=self.quiet, verbose=self.verbose
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


def go_on(kept: Archive, run: RunFile, options: GoOn) -> int:
    """Answer, show it, and return the exit code."""
    facts = facts_of(kept, run)
    recipe = recipe_of(facts)
    stage = Stage(options.manner, journaled=True)
    result = kept.answered(run)  # From the record alone: no key and no context is needed.
    if result is not None:
        if not options.quiet:
            say(f"Run {facts.run_id} has answered before; this is its answer.")
        if recipe.answer_schema is not None and result.answer_json is not None:
            result = replace(result, answer=_value(result.answer_json))
    else:
        recipe.check(facts)
        result = _run(kept, facts, recipe, options, stage)
    return stage.show(result, recipe.config.model, typed=recipe.answer_schema is not None)


def _run(kept: Archive, facts: RunFacts, recipe: Recipe, options: GoOn, stage: Stage) -> RunResult:
    variables = dotenv.settings(os.environ, Path.cwd()).variables
    engine = RLM(
        **keywords_of(recipe, options.limits(), options.price),
        variables=variables,
        recorders=stage.recorders,
        journal=kept.places.root,
    )
    with engine:
        context: Any = context_for(kept, facts, options.files)
        schema, run_id = recipe.answer_schema, facts.run_id
        try:
            return stage.run(
                engine,
                lambda: engine.ask(facts.query, context, response_model=schema, run_id=run_id),
            )
        except UnknownPriceError as error:
            raise unknown_price(recipe.models) from error


def context_for(kept: Archive, facts: RunFacts, files: tuple[str, ...]) -> StoredContext:
    """The context of a run: as it was kept, or as it is given once more."""
    if not files:
        try:
            return kept.context_of(facts)
        except ConfigError as error:
            raise ConfigError(f"{error} with -f FILE") from error
    found = store_context(context_of(files))
    wanted = facts.context
    given = replace(wanted, kind=found.kind, sha256=found.sha256, size_bytes=found.size_bytes)
    if not wanted.is_same(given):
        raise ConfigError(
            f"{', '.join(files)} is not the context of run {facts.run_id}: that was {wanted.kind} "
            f"of {wanted.size_bytes:,} bytes with SHA-256 {wanted.sha256[:12]}…, this is "
            f"{found.kind} of {found.size_bytes:,} bytes with {found.sha256[:12]}…"
        )
    # The model was told of it in these words, whatever the files are called now.
    found.description, found.documents = wanted.description, wanted.documents
    return found


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"the answer in the journal can't be read: {error}") from error
