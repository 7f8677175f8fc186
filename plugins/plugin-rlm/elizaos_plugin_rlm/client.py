"""The client: requests in elizaOS's terms on one side, an engine for each of them on the other."""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Any

from elizaos_plugin_rlm.config import BACKEND_OF_RUNTIME, RLMConfig
from elizaos_plugin_rlm.engines import (
    Answer,
    Engine,
    Wanted,
    find_engine,
    known_secrets,
    make_engine,
    told,
)
from elizaos_plugin_rlm.generation import Generation, ParamsProblem, as_params
from elizaos_plugin_rlm.results import RLMCost, RLMResult, RLMTrajectory
from elizaos_plugin_rlm.retrying import may_succeed_later, pause_seconds, refused_options
from elizaos_plugin_rlm.settings import Runtime, Settings, config_of
from elizaos_plugin_rlm.trajectory_log import log_trajectory

__all__ = ["RLMClient"]

KEPT_TRAJECTORIES = 20
MOST_REMEMBERED_MODELS = 64
_log = logging.getLogger("elizaos_plugin_rlm")


class RLMClient:
    """Answers requests: as `config` says, or else as a runtime and the environment are set.

    It raises nothing but cancellation. Without an engine it answers with the stub's text, and a
    failure is a text that begins with `[RLM ERROR]`. Requests share nothing but the sums.
    """

    def __init__(self, config: RLMConfig | None = None, *, runtime: Runtime | None = None) -> None:
        self._config = config
        self._runtime = runtime
        self._at_work: set[Engine] = set()
        self._warned: set[str] = set()
        self._unwanted: dict[tuple[str, str], set[str]] = {}
        self._spent = RLMCost(total_cost_usd=0.0)
        self._answers = 0
        self.trajectories: deque[RLMTrajectory] = deque(maxlen=KEPT_TRAJECTORIES)

    # -- asking ------------------------------------------------------------------------------

    async def infer(self, messages: object, opts: Mapping[str, Any] | None = None) -> RLMResult:
        """Answer a prompt, or a list of messages. `opts` are controls and overrides."""
        name = "prompt" if isinstance(messages, str) else "messages"
        return await self.generate({**(opts or {}), name: messages})

    async def generate(self, params: object, **more: Any) -> RLMResult:
        """Answer a request as elizaOS makes one: prompt or messages, controls, overrides."""
        try:
            wanted, generation, engine = await self._ready(as_params(params, more))
        except ParamsProblem as error:
            return RLMResult.of_error(told(error))
        except Exception as error:  # noqa: BLE001 - the border: engine, settings, configuration
            return self._stub(told(error, known_secrets()))
        return await self._answered(wanted, generation, engine)

    async def unavailable_reason(self) -> str | None:
        """Why requests would be answered by the stub; None if there is an engine to answer them."""
        try:
            await make_engine(self._wanted(config_of({}, self._runtime, self._config), {}))
        except Exception as error:  # noqa: BLE001 - the border: whatever it is, it is the reason
            return told(error, known_secrets())
        return None

    @property
    def is_available(self) -> bool:
        """Whether there is an engine to import; `unavailable_reason` tries more than that.

        The first time it imports it, which may take a while.
        """
        return find_engine() is not None

    @property
    def config(self) -> RLMConfig:
        """What holds for a request that overrides nothing."""
        return config_of({}, self._runtime, self._config)

    # -- looking back ------------------------------------------------------------------------

    def get_cost_summary(self) -> dict[str, Any]:
        """What all requests of this client used; the money is None if some of it is unknown."""
        return {"answers": self._answers, **self._spent.to_dict()}

    def export_trajectories(self) -> list[dict[str, Any]]:
        """The last trajectories as plain data, oldest first."""
        return [trajectory.to_dict() for trajectory in self.trajectories]

    def clear_trajectories(self) -> None:
        self.trajectories.clear()

    # -- ending ------------------------------------------------------------------------------

    async def close(self) -> None:
        """Ask whatever is at work to end with the best answer it has."""
        for engine in tuple(self._at_work):
            engine.stop()

    async def __aenter__(self) -> "RLMClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- one request -------------------------------------------------------------------------

    async def _ready(self, params: dict[str, Any]) -> tuple[Wanted, Generation, Engine]:
        """Everything one request needs. That there is no engine counts before all else."""
        config = config_of(params, self._runtime, self._config)
        generation, problem = Generation("", ""), None
        try:
            generation = Generation.of(params)
        except ParamsProblem as error:
            problem = error
        wanted = self._wanted(config, generation.sampling)
        wanted = wanted.without(self._unwanted.get(wanted.root_model, ()))
        engine = await make_engine(wanted)
        if problem is not None:
            raise problem
        return wanted, generation, engine

    async def _answered(self, wanted: Wanted, generation: Generation, engine: Engine) -> RLMResult:
        """The answer, after as many new beginnings as are allowed."""
        left = wanted.config.max_retries
        while True:
            try:
                answer = await self._asked(wanted, generation, engine)
                return _result(answer, generation, engine.trajectory())
            except Exception as error:  # noqa: BLE001 - the border: no failure spreads into elizaOS
                refused, later = refused_options(error, wanted.sampling), may_succeed_later(error)
                if not refused and (left == 0 or not later):
                    return RLMResult.of_error(told(error, wanted.secrets), engine.trajectory())
                _log.debug("a request is begun anew", exc_info=error)
            if refused:
                wanted = self._refused(wanted, refused)
            else:
                await asyncio.sleep(pause_seconds(wanted.config, left))
                left -= 1
            try:
                engine = await make_engine(wanted)
            except Exception as error:  # noqa: BLE001 - the border: as above
                return self._stub(told(error, wanted.secrets))

    def _refused(self, wanted: Wanted, refused: tuple[str, ...]) -> Wanted:
        """Ask without what a model does not take; the next request knows."""
        if len(self._unwanted) == MOST_REMEMBERED_MODELS:
            self._unwanted.clear()
        self._unwanted.setdefault(wanted.root_model, set()).update(refused)
        _log.info("%s does not take %s", "/".join(wanted.root_model), ", ".join(refused))
        return wanted.without(refused)

    async def _asked(self, wanted: Wanted, generation: Generation, engine: Engine) -> Answer:
        """One attempt; whatever becomes of it, what was heard of it is kept and logged."""
        self._at_work.add(engine)
        answer: Answer | None = None
        try:
            answer = await engine.answer(generation)
            return answer
        finally:
            self._at_work.discard(engine)
            self._note(wanted, engine.trajectory(), answer)

    def _note(
        self, wanted: Wanted, trajectory: RLMTrajectory | None, answer: Answer | None
    ) -> None:
        cost = trajectory.cost if trajectory else (answer.cost if answer else None)
        self._answers += answer is not None
        self._spent += cost or RLMCost()
        if trajectory is None:
            return
        self.trajectories.append(trajectory)
        if self._runtime is not None:
            by_core = wanted.config.backend == BACKEND_OF_RUNTIME
            log_trajectory(self._runtime, trajectory, wanted.sampling, with_calls=not by_core)

    def _wanted(self, config: RLMConfig, sampling: Mapping[str, Any]) -> Wanted:
        variables = Settings(self._runtime)
        return Wanted(
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
