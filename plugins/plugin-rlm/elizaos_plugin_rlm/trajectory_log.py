"""Log trajectories to elizaOS's own trajectory service, if the runtime has one.

elizaOS logs the outer call. This adds every reply of a model below it, as calls of the same
trajectory step, and one line of sums.
"""

import logging
from collections.abc import Mapping
from typing import Any

from elizaos.trajectory_context import CURRENT_TRAJECTORY_STEP_ID

from elizaos_plugin_rlm.results import RLMTrajectory
from elizaos_plugin_rlm.settings import Runtime

__all__ = ["log_trajectory"]

SERVICE = "trajectory_logger"
PROVIDER = "rlm"
_log = logging.getLogger("elizaos_plugin_rlm")


def log_trajectory(
    runtime: Runtime, trajectory: RLMTrajectory, sampling: Mapping[str, Any], *, with_calls: bool
) -> None:
    """Log to the service; do nothing without a service or outside a trajectory step.

    `with_calls=False` leaves out single replies, for backends whose replies elizaOS already logs.
    """
    step_id = CURRENT_TRAJECTORY_STEP_ID.get()
    service = runtime.get_service(SERVICE) if step_id else None
    if service is None or step_id is None:
        return
    try:
        if with_calls:
            _log_calls(service, step_id, trajectory, sampling)
        service.log_provider_access(
            step_id=step_id,
            provider_name=PROVIDER,
            data=_sums(trajectory),
            purpose="rlm_run",
            query={"run_id": trajectory.trajectory_id},
        )
    except Exception as error:  # noqa: BLE001 - boundary to a service: a log must not cost an answer
        _log.warning("the trajectory service failed: %s", error)


def _log_calls(
    service: Any, step_id: str, trajectory: RLMTrajectory, sampling: Mapping[str, Any]
) -> None:
    for step in trajectory.steps:
        service.log_llm_call(
            step_id=step_id,
            model=step.model,
            system_prompt="",
            user_prompt=step.prompt,
            response=step.response,
            purpose="reasoning",
            action_type="rlm.call" if step.is_subcall else "rlm.step",
            temperature=float(sampling.get("temperature", 0.0)),
            max_tokens=int(sampling.get("max_tokens", 0)),
            prompt_tokens=step.input_tokens,
            completion_tokens=step.output_tokens,
            latency_ms=step.duration_ms,
            reasoning=step.code_executed or None,
        )


def _sums(trajectory: RLMTrajectory) -> dict[str, str | int | float | bool | None]:
    return {
        "iterations": trajectory.total_iterations,
        "subcalls": trajectory.subcall_count,
        "max_depth": trajectory.max_depth_reached,
        "stop_reason": trajectory.stop_reason,
        "duration_ms": trajectory.duration_ms,
        "total_tokens": trajectory.cost.total_tokens,
        "total_cost_usd": trajectory.cost.total_cost_usd,
    }
