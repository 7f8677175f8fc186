"""recursivelm as the engine: asked on the runtime's own event loop, heard at every event."""

from rlm import RLM, ConfigError, Limits
from rlm.events import Event
from rlm.protocols import Client

from elizaos_plugin_rlm.config import BACKEND_OF_RUNTIME
from elizaos_plugin_rlm.engines import Answer, EngineUnavailable, Wanted
from elizaos_plugin_rlm.generation import Generation
from elizaos_plugin_rlm.results import RLMTrajectory
from elizaos_plugin_rlm.runtime_models import RuntimeModels
from elizaos_plugin_rlm.trajectories import trajectory_of

__all__ = ["make"]


class _Heard:
    """A recorder that keeps what it hears: of runs that fail there is no result to ask."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def record(self, event: Event) -> None:
        self.events.append(event)


class OwnEngine:
    """One `RLM` for one request; what it costs to make is a fraction of what a sandbox does."""

    def __init__(self, rlm: RLM) -> None:
        self._rlm = rlm
        self._heard = _Heard()

    async def answer(self, generation: Generation) -> Answer:
        """The answer, or the best one at a limit."""
        try:
            result = await self._rlm.aask(
                generation.query, generation.context, recorders=(self._heard,)
            )
        finally:
            await self._rlm.aclose()
        trajectory = self.trajectory()
        return Answer(
            text=None if result.answer is None else str(result.answer),
            detail=result.detail,
            iterations=result.steps,
            depth=trajectory.max_depth_reached if trajectory else None,
            stop_reason=result.stop_reason,
            cost=trajectory.cost if trajectory else None,
        )

    def trajectory(self) -> RLMTrajectory | None:
        return trajectory_of(self._heard.events) if self._heard.events else None

    def stop(self) -> None:
        self._rlm.stop()


def make(wanted: Wanted) -> OwnEngine:
    """An engine for one request, or the reason why there can be none."""
    config = wanted.config
    root, sub = "/".join(wanted.root_model), "/".join(wanted.subcall_model)
    clients = _clients(wanted)
    if root == sub == f"{BACKEND_OF_RUNTIME}/TEXT_LARGE" and not config.subcall_model:
        sub = f"{BACKEND_OF_RUNTIME}/{clients[BACKEND_OF_RUNTIME].smaller()}"
    options = {root: config.backend_kwargs}
    if wanted.subcall_model[0] == config.backend:
        options[sub] = config.backend_kwargs
    try:
        rlm = RLM(
            root,
            sub_model=sub,
            clients=dict[str, Client](clients),
            client_options=options,
            environment=config.environment,
            environment_kwargs=config.environment_kwargs,
            limits=Limits(
                max_steps=config.max_iterations,
                max_depth=config.max_depth,
                max_cost_usd=config.max_cost_usd,
                max_seconds=config.max_seconds,
            ),
            strategy=config.strategy,
            sampling=dict(wanted.sampling),
            sub_sampling=dict(wanted.sampling),
            verbose=config.verbose,
            variables=wanted.variables,
        )
    except ConfigError as error:
        raise EngineUnavailable(str(error)) from error
    return OwnEngine(rlm)


def _clients(wanted: Wanted) -> dict[str, RuntimeModels]:
    """The runtime's other models, where they are asked for."""
    asked = [
        model
        for backend, model in (wanted.root_model, wanted.subcall_model)
        if backend == BACKEND_OF_RUNTIME
    ]
    if not asked:
        return {}
    if wanted.runtime is None:
        raise EngineUnavailable(f"the backend {BACKEND_OF_RUNTIME!r} needs a runtime to ask")
    models = RuntimeModels(wanted.runtime, wanted.config.provider)
    for model in asked:
        models.check(model)
    return {BACKEND_OF_RUNTIME: models}
