"""The engine recursivelm: runs on the runtime's own event loop and records every event."""

from rlm import RLM, ConfigError, Limits
from rlm.environments.auto import meant_by_local
from rlm.events import Event
from rlm.protocols import Client

from elizaos_plugin_rlm.config import BACKEND_OF_RUNTIME
from elizaos_plugin_rlm.engines import Answer, EngineSpec, EngineUnavailable
from elizaos_plugin_rlm.generation import Generation
from elizaos_plugin_rlm.results import RLMTrajectory
from elizaos_plugin_rlm.runtime_models import RuntimeModels
from elizaos_plugin_rlm.trajectories import trajectory_of

__all__ = ["make"]


class _EventList:
    """A recorder that keeps all events, because a failed run has no result with events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def record(self, event: Event) -> None:
        self.events.append(event)


class RecursivelmEngine:
    """One `RLM` for one request; making it costs little compared with a sandbox."""

    def __init__(self, rlm: RLM) -> None:
        self._rlm = rlm
        self._recorder = _EventList()

    async def answer(self, generation: Generation) -> Answer:
        """Return the answer; at a limit, the best one."""
        try:
            result = await self._rlm.aask(
                generation.query, generation.context, recorders=(self._recorder,)
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
        return trajectory_of(self._recorder.events) if self._recorder.events else None

    def stop(self) -> None:
        self._rlm.stop()


def make(spec: EngineSpec) -> RecursivelmEngine:
    """Make an engine for one request; raise EngineUnavailable with the reason if it fails."""
    config = spec.config
    root, sub = "/".join(spec.root_model), "/".join(spec.subcall_model)
    clients = _clients(spec)
    if root == sub == f"{BACKEND_OF_RUNTIME}/TEXT_LARGE" and not config.subcall_model:
        sub = f"{BACKEND_OF_RUNTIME}/{clients[BACKEND_OF_RUNTIME].smaller()}"
    options = {root: config.backend_kwargs}
    if spec.subcall_model[0] == config.backend:
        options[sub] = config.backend_kwargs
    try:
        rlm = RLM(
            root,
            sub_model=sub,
            clients=dict[str, Client](clients),
            client_options=options,
            environment=_environment(config.environment),
            environment_kwargs=config.environment_kwargs,
            limits=Limits(
                max_steps=config.max_iterations,
                max_depth=config.max_depth,
                max_cost_usd=config.max_cost_usd,
                max_seconds=config.max_seconds,
            ),
            strategy=config.strategy,
            preview_chars=0,  # The context is not sent, not even its beginning.
            sampling=dict(spec.sampling),
            sub_sampling=dict(spec.sampling),
            verbose=config.verbose,
            variables=spec.variables,
        )
    except ConfigError as error:
        raise EngineUnavailable(str(error)) from error
    return RecursivelmEngine(rlm)


def _environment(named: str) -> str:
    """Return where code runs; off Linux, where there is no `local`, that means `auto`."""
    return meant_by_local() if named == "local" else named


def _clients(spec: EngineSpec) -> dict[str, RuntimeModels]:
    """Return a client for the runtime's other models, if they are used."""
    asked = [
        model
        for backend, model in (spec.root_model, spec.subcall_model)
        if backend == BACKEND_OF_RUNTIME
    ]
    if not asked:
        return {}
    if spec.runtime is None:
        raise EngineUnavailable(f"the backend {BACKEND_OF_RUNTIME!r} needs a runtime")
    models = RuntimeModels(spec.runtime, spec.config.provider)
    for model in asked:
        models.check(model)
    return {BACKEND_OF_RUNTIME: models}
