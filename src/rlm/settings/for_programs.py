"""What `RLM(…)` takes from the user's settings: the default model, aliases and stored keys.

Limits, environments and other settings are for commands only: a program sets these itself. A
program that passes its own `variables` gets nothing from here.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlm.errors import ConfigError
from rlm.settings.configuration import Defaults
from rlm.settings.keys import stored_keys
from rlm.wiring.registry import split_model

__all__ = ["named_models", "with_stored_keys"]

NO_MODEL = (
    "no model: run `rlm setup` once, pass RLM('provider/model'), set RLM_MODEL=provider/model, or "
    "set the key of a provider, such as OPENAI_API_KEY or ANTHROPIC_API_KEY; to try it without a "
    "model, pass RLM('offline/extractive')"
)

_log = logging.getLogger("rlm")


def with_stored_keys(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment, with stored keys for variables that are not set."""
    stored, notice = stored_keys(environ)
    if notice:
        _log.warning("%s", notice)
    return {**stored, **{name: value for name, value in environ.items() if value or not stored}}


def named_models(given: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """Return `model`, `sub_model` and `models` of a call, with aliases and defaults resolved."""
    model, sub_model, others = given["model"], given["sub_model"], given["models"]
    clients = given["clients"] or {}
    named = [each for each in (model, sub_model, *_texts(others)) if isinstance(each, str)]
    is_own = given["variables"] is not None
    if model is not None and (is_own or not any(_may_be_alias(each, clients) for each in named)):
        return {}
    defaults = Defaults() if is_own else _defaults()
    if model is None:
        chosen = defaults.choose(variables, None, sub_model if isinstance(sub_model, str) else None)
        if chosen is None:
            raise ConfigError(NO_MODEL)
        if chosen.by_project:
            _log.warning("Using %s, because %s.", chosen.model, chosen.why)
        model = chosen.model
        sub_model = chosen.sub_model if sub_model is None else sub_model
    return {
        "model": _resolved(model, defaults, clients),
        "sub_model": _resolved(sub_model, defaults, clients),
        "models": tuple(_resolved(each, defaults, clients) for each in others),
    }


def _defaults() -> Defaults:
    try:
        folder: Path | None = Path.cwd()
    except OSError:  # it was removed
        folder = None
    defaults = Defaults.read(os.environ, folder)
    for notice in defaults.notices():
        _log.warning("%s", notice)
    return defaults


def _texts(models: Sequence[Any]) -> list[str]:
    return [each for each in models if isinstance(each, str)]


def _resolved(model: Any, defaults: Defaults, clients: Mapping[str, Any]) -> Any:
    return defaults.resolve(model) if _may_be_alias(model, clients) else model


def _may_be_alias(model: Any, clients: Mapping[str, Any]) -> bool:
    """Return whether a name has no other meaning, so that the user's settings must be read."""
    if not isinstance(model, str) or model.partition("/")[0] in clients:
        return False
    try:
        split_model(model)
    except ConfigError:
        return "/" not in model
    return False
