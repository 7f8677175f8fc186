"""Which models a command uses, and why: options, then variables, then what needs no key."""

from collections.abc import Mapping
from typing import NamedTuple

from rlm.errors import ConfigError
from rlm.registry import OFFLINE_MODEL, PROVIDERS, default_model, split_model

OFFLINE_NOTICE = (
    f"No model is configured (set a key such as OPENAI_API_KEY, set RLM_MODEL, or pass -m): "
    f"{OFFLINE_MODEL} answers. It finds passages; it is not a language model."
)


class Choice(NamedTuple):
    """The models of a run. `why` is for people; `fallback` means that nobody chose."""

    model: str
    sub_model: str | None
    why: str
    fallback: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return (self.model,) if self.sub_model is None else (self.model, self.sub_model)


def choose(model: str | None, sub_model: str | None, variables: Mapping[str, str]) -> Choice:
    """The models that were asked for, or the ones that the variables lead to."""
    sub_model = sub_model or variables.get("RLM_SUB_MODEL") or None
    if model:
        return Choice(model, sub_model, "it was asked for")
    found = default_model(variables)
    if found is None:
        return Choice(OFFLINE_MODEL, sub_model, "no model is configured", fallback=True)
    return Choice(found, sub_model, _reason(found, variables))


def _reason(model: str, variables: Mapping[str, str]) -> str:
    if variables.get("RLM_MODEL") == model:
        return "RLM_MODEL names it"
    try:
        provider = PROVIDERS[split_model(model)[0]]
    except (ConfigError, KeyError):
        return "it is the default"
    key = next(name for name in provider.key_variables if variables.get(name))
    return f"{key} is set"
