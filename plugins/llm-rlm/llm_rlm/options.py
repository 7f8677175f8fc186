"""Options of a wrapped model (`-o`): those of the run, and those of the model inside."""

from collections.abc import Mapping
from typing import Any

import llm
from pydantic import Field, field_validator

__all__ = ["RunOptions", "combined_options", "model_options"]


class RunOptions(llm.Options):
    """Options of a run; None means the engine's default."""

    sub_model: str | None = Field(
        default=None,
        description="The model for llm_query and llm_batch, by id or alias (default: the same "
        "model).",
    )
    max_steps: int | None = Field(
        default=None, ge=1, le=1_000, description="Maximum number of steps (default 30)."
    )
    max_depth: int | None = Field(
        default=None,
        ge=1,
        le=16,
        description="How deep child runs may nest (default 1: rlm_query is a plain model call).",
    )
    budget: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Maximum US dollars for the whole run, including sub-calls. If the model's "
        "price is unknown, set price too.",
    )
    price: str | None = Field(
        default=None,
        description="IN,OUT: US dollars per million tokens, such as 0.25,2, for the model and "
        "sub_model.",
    )
    timeout: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Maximum seconds for the whole run."
    )
    environment: str | None = Field(
        default=None, description="Where code runs: auto (default), local, wasm, docker and others."
    )

    @field_validator("environment")
    @classmethod
    def _known_environment(cls, name: str | None) -> str | None:
        try:
            from rlm.wiring.registry import environments
        except ImportError:
            return name  # The run itself reports that the engine is missing.
        if name is not None and name not in environments():
            raise ValueError(
                f"unknown environment {name!r}; environments: {', '.join(environments())}"
            )
        return name

    @field_validator("sub_model")
    @classmethod
    def _known_model(cls, name: str | None) -> str | None:
        if name is not None and name not in llm.get_model_aliases():
            raise ValueError(f"llm has no model {name!r}; `llm models` lists them")
        return None if name is None else name.removeprefix("rlm/")

    @field_validator("price")
    @classmethod
    def _two_prices(cls, text: str | None) -> str | None:
        if text is not None:
            parts = text.split(",")
            if len(parts) != 2 or not all(_is_price(part) for part in parts):
                raise ValueError(f"{text!r} must be two prices such as 0.25,2")
        return text

    @property
    def prices(self) -> tuple[float, float] | None:
        """US dollars per million tokens of input and of output."""
        if self.price is None:
            return None
        first, second = self.price.split(",")
        return float(first), float(second)


def combined_options(inner: type[llm.Options]) -> type[RunOptions]:
    """Return a class with the options of both; on a conflict, the run's option wins."""
    made: type[RunOptions] = type("Options", (RunOptions, inner), {"__doc__": RunOptions.__doc__})
    return made


def model_options(given: Any, inner: type[llm.Options]) -> Mapping[str, Any]:
    """Return the options that are meant for the model inside."""
    names = [name for name in inner.model_fields if name not in RunOptions.model_fields]
    values = {name: getattr(given, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _is_price(text: str) -> bool:
    try:
        return 0 <= float(text) < float("inf")
    except ValueError:
        return False
