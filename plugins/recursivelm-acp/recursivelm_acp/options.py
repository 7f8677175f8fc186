"""What `rlm acp` was started with."""

from typing import Any

from msgspec import Struct

from rlm import RLM, Limits

__all__ = ["AgentOptions"]


class AgentOptions(Struct, frozen=True, kw_only=True):
    """The options of the command; those that limit hold for each session or each prompt.

    `models` are what a client may choose from, the first by default; without any, the user's own
    model answers. `budget_usd` and `max_tokens` are for all prompts of a session together.
    """

    models: tuple[str, ...] = ()
    sub_model: str | None = None
    environment: str = "auto"
    max_steps: int | None = None
    max_depth: int | None = None
    budget_usd: float | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    price: tuple[float, float] | None = None
    save: bool = True

    def limits(self) -> Limits:
        """Return the limits of one prompt."""
        given: dict[str, Any] = {
            "max_steps": self.max_steps,
            "max_depth": self.max_depth,
            "max_seconds": self.timeout,
        }
        return Limits(**{name: value for name, value in given.items() if value is not None})

    def engine(self, model: str | None, tools: Any = None) -> RLM:
        """Build the engine of a session. It may read files and import plugins."""
        model = model or (self.models[0] if self.models else None)
        names = [name for name in (model, self.sub_model) if name is not None]
        return RLM(
            model,
            sub_model=self.sub_model,
            environment=self.environment,
            limits=self.limits(),
            prices=dict.fromkeys(names, self.price) if self.price else None,
            tools=tools or None,
        )
