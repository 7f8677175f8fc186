"""The models that the operator offers: one `RLM` each, all with the same environments."""

from collections.abc import Callable, Mapping, Sequence

from rlm.api import RLM
from rlm.errors import ConfigError
from rlm.protocols import Environment
from rlm.server.errors import ApiError, bad_request

__all__ = ["PREFIX", "Engines", "unknown_model"]

PREFIX = "rlm/"
"""`rlm/<model>` is a model with a REPL; `<model>` alone is asked directly."""

Maker = Callable[[str, Environment], RLM]


class Engines:
    """The engines, created when first needed. The first environment is the default."""

    def __init__(
        self, models: Sequence[str], environments: Mapping[str, Environment], make: Maker
    ) -> None:
        if not models or not environments:
            raise ConfigError("a server needs a model and an environment")
        self.models = tuple(dict.fromkeys(models))
        self.environments = tuple(environments)
        self._environments = dict(environments)
        self._make = make
        self._made: dict[tuple[str, str], RLM] = {}
        for model in self.models:
            self.get(model, None)  # Report mistakes when the server starts.

    @property
    def offered(self) -> tuple[str, ...]:
        """All model ids that clients may use."""
        return (*(PREFIX + model for model in self.models), *self.models)

    def resolve(self, model_id: str) -> tuple[str, bool]:
        """Return the model of an id, and whether it comes with a REPL."""
        if model_id.startswith(PREFIX) and model_id.removeprefix(PREFIX) in self.models:
            return model_id.removeprefix(PREFIX), True
        if model_id in self.models:
            return model_id, False
        raise unknown_model(model_id)

    def get(self, model: str, environment: str | None) -> RLM:
        name = environment or self.environments[0]
        if name not in self._environments:
            offered = ", ".join(self.environments)
            raise bad_request(
                f"this server does not offer the environment {name!r}; it offers: {offered}",
                "rlm.environment",
                "environment_not_offered",
            )
        key = model, name
        if key not in self._made:
            self._made[key] = self._make(model, self._environments[name])
        return self._made[key]

    async def close(self) -> None:
        for engine in self._made.values():
            await engine.aclose()


def unknown_model(model_id: str) -> ApiError:
    """Return one error for an unknown model and for one that a token may not use."""
    return ApiError(
        404,
        f"the model {model_id!r} does not exist here, or you may not use it; GET /v1/models lists "
        "those that you may use",
        param="model",
        code="model_not_found",
    )
