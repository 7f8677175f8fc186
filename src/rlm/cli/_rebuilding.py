"""From what a journal says of a run to the keywords of an `RLM` that can go on with it."""

import math
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from rlm.config import RunConfig
from rlm.errors import ConfigError
from rlm.messages import ModelInfo, Price
from rlm.records.journal import RunFacts
from rlm.wiring.registry import PROVIDERS, split_model

__all__ = ["Recipe", "keywords_of", "recipe_of"]


class _Named(Struct, frozen=True):
    name: str


class Recipe(Struct, frozen=True, kw_only=True):
    """The settings of a run: what `Resources.settings` wrote, as far as it is needed here."""

    config: RunConfig
    environment: str = "local"
    environment_kwargs: dict[str, Any] = field(default_factory=dict)
    infos: dict[str, ModelInfo] = field(default_factory=dict)
    tools: tuple[_Named, ...] = ()
    values: tuple[str, ...] = ()
    answer_schema: dict[str, Any] | None = None
    own: tuple[str, ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        config = self.config
        return tuple(dict.fromkeys((config.model, config.sub_model, *config.models)))

    def check(self, facts: RunFacts) -> None:
        """A command has what a command line can say, and nothing of the program that asked."""
        if facts.in_chat:
            raise ConfigError(
                f"run {facts.run_id} was a turn of a chat: the variables of the turns before it "
                "are gone with that chat, so it can't go on; ask again in a new one"
            )
        names = [*(tool.name for tool in self.tools), *self.values, *self.own]
        if names:
            raise ConfigError(
                f"run {facts.run_id} was made by a program, with things that only that has "
                f"({', '.join(dict.fromkeys(names))}); go on from there, with the same RLM(…, "
                f'journal=True).ask(query, context, run_id="{facts.run_id}")'
            )


def recipe_of(facts: RunFacts) -> Recipe:
    """What a journal says of its settings; ConfigError if that is not enough to go on."""
    try:
        recipe = msgspec.convert(facts.settings, Recipe)
        for info in recipe.infos.values():
            _check_price(info.price)
        return recipe
    except (msgspec.ValidationError, ConfigError, RecursionError) as error:
        raise ConfigError(
            f"the journal of run {facts.run_id} does not say how it was run: {error}"
        ) from error


def _check_price(price: Price | None) -> None:
    figures = () if price is None else (price.input_per_million, price.output_per_million)
    if not all(0 <= figure < math.inf for figure in figures):
        raise ConfigError(f"{figures} are no prices")


def keywords_of(
    recipe: Recipe, limits: dict[str, Any], price: tuple[float, float] | None
) -> dict[str, Any]:
    """What to give to `RLM`. New limits stand in for the old ones, a new price for all prices."""
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
    """For models of servers, what was known of them then: also what no keyword can say."""
    parts = {name: split_model(name) for name in infos}
    return {
        name: {"infos": {wire_name: infos[name]}}
        for name, (provider, wire_name) in parts.items()
        if provider in PROVIDERS
    }
