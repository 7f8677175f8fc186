"""The attributes of the reference's `RLM`, for programs that read them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from rlm.compat import late
from rlm.compat.backends import without_keys
from rlm.compat.spelling import NO_LIMIT, Spelling
from rlm.config import RunConfig

if TYPE_CHECKING:  # Imported where they are used, because most programs never use them.
    from rlm.wiring.resources import Resources

__all__ = ["ReferenceAttributes"]

Callback = Callable[..., Any]
T = TypeVar("T")


class ReferenceAttributes:
    """What the reference's `RLM` offers besides its methods: the options it was created with.

    They are read-only: an object keeps the options it was created with. In our own spelling they
    are taken from the configuration.
    """

    spelling: Spelling
    config: RunConfig
    runner: "late.Runner"
    logger: Any
    cell_values: "late.CellValues | None" = None

    def _given(self, name: str, otherwise: T) -> T:
        value = self.spelling.given.get(name)
        return otherwise if value is None else value

    @property
    def _resources(self) -> "Resources":
        return self.runner.resources

    @property
    def backend(self) -> str:
        return self._given("backend", self.config.model.partition("/")[0])

    @property
    def backend_kwargs(self) -> dict[str, Any]:
        named = self.config.model.partition("/")[2] or self.config.model
        return self._given("backend_kwargs", {"model_name": named})

    @property
    def environment_type(self) -> str:
        return self._resources.environment.name

    @property
    def environment_kwargs(self) -> dict[str, Any]:
        return dict(self._given("environment_kwargs", {}))

    @property
    def other_backends(self) -> list[str] | None:
        return self._given("other_backends", None)

    @property
    def other_backend_kwargs(self) -> list[dict[str, Any]] | None:
        return self._given("other_backend_kwargs", None)

    @property
    def custom_tools(self) -> Any:
        return self._given("custom_tools", None)

    @property
    def custom_sub_tools(self) -> Any:
        return self._given("custom_sub_tools", self.custom_tools)

    @property
    def compaction(self) -> bool:
        return self.config.compaction

    @property
    def compaction_threshold_pct(self) -> float:
        return self._given("compaction_threshold_pct", self.config.compaction_fraction)

    @property
    def max_concurrent_subcalls(self) -> int:
        return self.config.limits.max_concurrent_calls

    @property
    def depth(self) -> int:
        return self._given("depth", 0)

    @property
    def max_depth(self) -> int:
        return self._given("max_depth", self.config.limits.max_depth)

    @property
    def max_iterations(self) -> int:
        return self.config.limits.max_steps

    @property
    def max_budget(self) -> float | None:
        return self.config.limits.max_cost_usd

    @property
    def max_timeout(self) -> float | None:
        return self.config.limits.max_seconds

    @property
    def max_tokens(self) -> int | None:
        return self.config.limits.max_tokens

    @property
    def max_errors(self) -> int | None:
        errors = self.config.limits.max_errors
        return None if errors == NO_LIMIT else errors

    @property
    def system_prompt(self) -> str:
        given = self._given("custom_system_prompt", self.config.system_prompt)
        from rlm.compat.prompts import RLM_SYSTEM_PROMPT

        return given or RLM_SYSTEM_PROMPT

    @property
    def orchestrator(self) -> bool:
        return self.config.orchestrator

    @property
    def user_prologue(self) -> str | None:
        return self._given("user_prologue", self.config.prologue or None)

    @property
    def persistent(self) -> bool:
        return self._given("persistent", False)

    @property
    def verbose(self) -> "late.VerbosePrinter":
        from rlm.compat.verbose import VerbosePrinter

        return VerbosePrinter(enabled=self._given("verbose", False))

    @property
    def on_subcall_start(self) -> Callback | None:
        return self._given("on_subcall_start", None)

    @property
    def on_subcall_complete(self) -> Callback | None:
        return self._given("on_subcall_complete", None)

    @property
    def on_iteration_start(self) -> Callback | None:
        return self._given("on_iteration_start", None)

    @property
    def on_iteration_complete(self) -> Callback | None:
        return self._given("on_iteration_complete", None)

    @property
    def reference_metadata(self) -> "late.RLMMetadata":
        """How this object is configured, as the reference's logs describe it."""
        from rlm.compat.types import RLMMetadata

        return RLMMetadata(
            root_model=self.config.model.partition("/")[2] or self.config.model,
            max_depth=self.max_depth,
            max_iterations=self.max_iterations,
            backend=self.backend,
            backend_kwargs=without_keys(self.backend_kwargs),
            environment_type=self.environment_type,
            environment_kwargs=without_keys(self.environment_kwargs),
            other_backends=self.other_backends,
        )
