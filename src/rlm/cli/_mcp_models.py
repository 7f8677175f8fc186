"""What runs of a gateway are made of: the operator's model if there is one, else the client's."""

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import structs

from rlm.errors import ConfigError
from rlm.gateway.models import DEFAULT_LIMITS, Models
from rlm.wiring.registry import ENVIRONMENTS, default_model, split_model

__all__ = ["models_of"]


class Said(Protocol):
    """What the command line says about runs."""

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
    """From options, then variables. No `.env` is read: it may be that of a stranger's project."""
    model = said.model or default_model(variables)
    sub_model = said.sub_model or variables.get("RLM_SUB_MODEL") or None
    for name in filter(None, (model, sub_model)):
        split_model(name)  # complains about one that can't be
    if said.environment not in ENVIRONMENTS:
        known = ", ".join(ENVIRONMENTS)
        raise ConfigError(f"there is no environment {said.environment!r}; there are: {known}")
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
