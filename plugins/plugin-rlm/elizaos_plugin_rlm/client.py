"""The client: takes requests in elizaOS's terms and answers each with an engine."""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from elizaos_plugin_rlm.config import BACKEND_OF_RUNTIME, RLMConfig
from elizaos_plugin_rlm.engines import (
    Answer,
    Engine,
    EngineSpec,
    error_line,
    find_engine,
    known_secrets,
    make_engine,
)
from elizaos_plugin_rlm.generation import Generation, ParamsProblem, as_params
from elizaos_plugin_rlm.results import RLMCost, RLMResult, RLMTrajectory
from elizaos_plugin_rlm.settings import Runtime, Settings, config_of
from elizaos_plugin_rlm.trajectory_log import log_trajectory

__all__ = ["RLMClient"]

KEPT_TRAJECTORIES = 20
MAX_REMEMBERED_MODELS = 64
MAX_PAUSE_SECONDS = 30.0
RETRYABLE_STATUSES = frozenset({408, 429, 500, 502, 503, 504, 529})
REFUSING_STATUSES = frozenset({400, 422})
"""The server rejected the request as it is; nothing was done or billed."""

_log = logging.getLogger("elizaos_plugin_rlm")


class RLMClient:
    """Answers requests, with `config` or with the settings of a runtime and the environment.

    It raises only cancellation. Without an engine it answers with the stub's text, and a failure is
    a text that begins with `[RLM ERROR]`. Requests share only the sums of their costs.
    """

    def __init__(self, config: RLMConfig | None = None, *, runtime: Runtime | None = None) -> None:
        self._config = config
        self._runtime = runtime
        self._at_work: set[Engine] = set()
        self._warned: set[str] = set()
        self._refused_by_model: dict[tuple[str, str], set[str]] = {}
        self._spent = RLMCost(total_cost_usd=0.0)
        self._answers = 0
        self.trajectories: deque[RLMTrajectory] = deque(maxlen=KEPT_TRAJECTORIES)

    # -- asking ------------------------------------------------------------------------------

    async def infer(self, messages: object, opts: Mapping[str, Any] | None = None) -> RLMResult:
        """Answer a prompt or a list of messages; `opts` holds controls and overrides."""
        name = "prompt" if isinstance(messages, str) else "messages"
        return await self.generate({**(opts or {}), name: messages})

    async def generate(self, params: object, **more: Any) -> RLMResult:
        """Answer a request in elizaOS's form: prompt or messages, controls, overrides."""
        try:
            spec, generation, engine = await self._ready(as_params(params, more))
        except ParamsProblem as error:
            return RLMResult.of_error(error_line(error))
        except Exception as error:  # noqa: BLE001 - boundary to engine, settings, configuration
            return self._stub(error_line(error, known_secrets()))
        return await self._answered(spec, generation, engine)

    async def unavailable_reason(self) -> str | None:
        """Return why requests would be answered by the stub; None if there is an engine."""
        try:
            await make_engine(self._spec(config_of({}, self._runtime, self._config), {}))
        except Exception as error:  # noqa: BLE001 - boundary: any error is the reason
            return error_line(error, known_secrets())
        return None

    @property
    def is_available(self) -> bool:
        """Whether an engine can be imported; `unavailable_reason` checks more.

        The first use imports it, which may take a while.
        """
        return find_engine() is not None

    @property
    def config(self) -> RLMConfig:
        """The configuration of a request that overrides nothing."""
        return config_of({}, self._runtime, self._config)

    # -- records ----------------------------------------------------------------------------

    def get_cost_summary(self) -> dict[str, Any]:
        """Return what all requests of this client used; the cost is None if any part is unknown."""
        return {"answers": self._answers, **self._spent.to_dict()}

    def export_trajectories(self) -> list[dict[str, Any]]:
        """Return the last trajectories as plain data, oldest first."""
        return [trajectory.to_dict() for trajectory in self.trajectories]

    def clear_trajectories(self) -> None:
        self.trajectories.clear()

    # -- closing -----------------------------------------------------------------------------

    async def close(self) -> None:
        """Ask active requests to end with the best answer they have."""
        for engine in tuple(self._at_work):
            engine.stop()

    async def __aenter__(self) -> "RLMClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- one request -------------------------------------------------------------------------

    async def _ready(self, params: dict[str, Any]) -> tuple[EngineSpec, Generation, Engine]:
        """Return what one request needs; a missing engine is reported before any other problem."""
        config = config_of(params, self._runtime, self._config)
        generation, problem = Generation("", ""), None
        try:
            generation = Generation.of(params)
        except ParamsProblem as error:
            problem = error
        spec = self._spec(config, generation.sampling)
        spec = spec.without(self._refused_by_model.get(spec.root_model, ()))
        engine = await make_engine(spec)
        if problem is not None:
            raise problem
        return spec, generation, engine

    async def _answered(
        self, spec: EngineSpec, generation: Generation, engine: Engine
    ) -> RLMResult:
        """Return the answer, after as many attempts as are allowed."""
        left = spec.config.max_retries
        while True:
            try:
                answer = await self._asked(spec, generation, engine)
                return _result(answer, generation, engine.trajectory())
            except Exception as error:  # noqa: BLE001 - boundary: no failure reaches elizaOS
                refused = _refused_options(error, spec.sampling)
                later = _may_succeed_later(error)
                if not refused and (left == 0 or not later):
                    return RLMResult.of_error(error_line(error, spec.secrets), engine.trajectory())
                _log.debug("retrying a request", exc_info=error)
            if refused:
                spec = self._refused(spec, refused)
            else:
                await asyncio.sleep(_pause_seconds(spec.config, left))
                left -= 1
            try:
                engine = await make_engine(spec)
            except Exception as error:  # noqa: BLE001 - boundary: as above
                return self._stub(error_line(error, spec.secrets))

    def _refused(self, spec: EngineSpec, refused: tuple[str, ...]) -> EngineSpec:
        """Leave out options that a model refuses, in later requests too."""
        if len(self._refused_by_model) == MAX_REMEMBERED_MODELS:
            self._refused_by_model.clear()
        self._refused_by_model.setdefault(spec.root_model, set()).update(refused)
        _log.info("%s does not accept %s", "/".join(spec.root_model), ", ".join(refused))
        return spec.without(refused)

    async def _asked(self, spec: EngineSpec, generation: Generation, engine: Engine) -> Answer:
        """Make one attempt; keep and log its trajectory, whatever the outcome."""
        self._at_work.add(engine)
        answer: Answer | None = None
        try:
            answer = await engine.answer(generation)
            return answer
        finally:
            self._at_work.discard(engine)
            self._note(spec, engine.trajectory(), answer)

    def _note(
        self, spec: EngineSpec, trajectory: RLMTrajectory | None, answer: Answer | None
    ) -> None:
        cost = trajectory.cost if trajectory else (answer.cost if answer else None)
        self._answers += answer is not None
        self._spent += cost or RLMCost()
        if trajectory is None:
            return
        self.trajectories.append(trajectory)
        if self._runtime is not None:
            by_core = spec.config.backend == BACKEND_OF_RUNTIME
            log_trajectory(self._runtime, trajectory, spec.sampling, with_calls=not by_core)

    def _spec(self, config: RLMConfig, sampling: Mapping[str, Any]) -> EngineSpec:
        variables = Settings(self._runtime)
        return EngineSpec(
            config=config,
            sampling=sampling,
            variables=variables,
            runtime=self._runtime,
            secrets=known_secrets(variables.get(f"{config.backend.upper()}_API_KEY", "")),
        )

    def _stub(self, reason: str) -> RLMResult:
        if reason not in self._warned:
            self._warned.add(reason)
            _log.warning("answering with the stub: %s", reason)
        return RLMResult.of_stub(reason)


def _result(answer: Answer, generation: Generation, trajectory: RLMTrajectory | None) -> RLMResult:
    if answer.text is None:
        reason = answer.detail or "the run ended without an answer"
        return RLMResult.of_error(reason, trajectory)
    return RLMResult(
        text=generation.ended(answer.text),
        iterations=answer.iterations,
        depth=answer.depth,
        stop_reason=answer.stop_reason,
        cost=answer.cost,
        trajectory=trajectory,
    )


# -- which failures are worth another attempt ------------------------------------------------------


def _may_succeed_later(error: Exception) -> bool:
    """Return whether the same request may succeed later, by the engine or the error's status."""
    said = getattr(error, "retryable", None)
    if isinstance(said, bool):
        return said
    return isinstance(error, ConnectionError | TimeoutError) or _status(error) in RETRYABLE_STATUSES


def _refused_options(error: Exception, given: Iterable[str]) -> tuple[str, ...]:
    """Return the options that a refusal names.

    elizaOS sets some options for every model, but many models refuse a temperature.
    """
    if _status(error) not in REFUSING_STATUSES and type(error).__name__ != "ConfigError":
        return ()
    text = str(error)
    return tuple(name for name in given if re.search(rf"\b{name}(_sequences)?\b", text))


def _pause_seconds(config: RLMConfig, left: int) -> float:
    """Return how long to wait; the pause doubles with each attempt."""
    return float(min(config.retry_seconds * 2 ** (config.max_retries - left), MAX_PAUSE_SECONDS))


def _status(error: Exception) -> object:
    names = ("status", "status_code", "code")
    return next(
        (value for name in names if (value := getattr(error, name, None)) is not None), None
    )
