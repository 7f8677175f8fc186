"""The result of a request: its text, its cost and its trajectory."""

import math
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "ERROR_PREFIX",
    "STUB_TEXT",
    "RLMCost",
    "RLMResult",
    "RLMTrajectory",
    "RLMTrajectoryStep",
]

STUB_TEXT = "[RLM STUB] RLM backend not available"
ERROR_PREFIX = "[RLM ERROR]"
MAX_TEXT_CHARS = 2_000
"""The most of each text in `to_dict()`, so that a long trajectory does not fill megabytes."""


@dataclass(frozen=True, kw_only=True)
class RLMCost:
    """Tokens and money of the root's own requests and of all calls below it.

    An unknown cost is None, never 0.
    """

    root_input_tokens: int = 0
    root_output_tokens: int = 0
    subcall_input_tokens: int = 0
    subcall_output_tokens: int = 0
    total_cost_usd: float | None = None
    requests: int = 0

    @property
    def total_input_tokens(self) -> int:
        return self.root_input_tokens + self.subcall_input_tokens

    @property
    def total_output_tokens(self) -> int:
        return self.root_output_tokens + self.subcall_output_tokens

    @property
    def total_tokens(self) -> int:
        return self.total_input_tokens + self.total_output_tokens

    def __add__(self, other: "RLMCost") -> "RLMCost":
        """Add tokens and costs; the cost is unknown if that of any part with requests is."""
        parts = [each for each in (self, other) if each.requests or each.total_cost_usd is not None]
        known = [each.total_cost_usd for each in parts if each.total_cost_usd is not None]
        return RLMCost(
            root_input_tokens=self.root_input_tokens + other.root_input_tokens,
            root_output_tokens=self.root_output_tokens + other.root_output_tokens,
            subcall_input_tokens=self.subcall_input_tokens + other.subcall_input_tokens,
            subcall_output_tokens=self.subcall_output_tokens + other.subcall_output_tokens,
            total_cost_usd=math.fsum(known) if parts and len(known) == len(parts) else None,
            requests=self.requests + other.requests,
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "root_input_tokens": self.root_input_tokens,
            "root_output_tokens": self.root_output_tokens,
            "subcall_input_tokens": self.subcall_input_tokens,
            "subcall_output_tokens": self.subcall_output_tokens,
            "total_tokens": self.total_tokens,
            "total_cost_usd": self.total_cost_usd,
            "requests": self.requests,
        }


@dataclass(kw_only=True)
class RLMTrajectoryStep:
    """One reply of a model: to a step, with the code it led to, or to a call from a cell."""

    step_number: int
    timestamp_ms: int
    run_id: str
    depth: int
    model: str
    prompt: str = ""
    response: str = ""
    code_executed: str = ""
    repl_output: str = ""
    is_subcall: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    duration_ms: int = 0
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, with long texts cut."""
        return {name: _cut(value) for name, value in vars(self).items()}


@dataclass(kw_only=True)
class RLMTrajectory:
    """How an answer was found; `events` are the events of the engine."""

    trajectory_id: str
    start_time_ms: int
    end_time_ms: int = 0
    steps: list[RLMTrajectoryStep] = field(default_factory=list)
    final_response: str = ""
    stop_reason: str = ""
    total_iterations: int = 0
    max_depth_reached: int = 0
    subcall_count: int = 0
    cost: RLMCost = field(default_factory=RLMCost)
    events: tuple[Any, ...] = ()

    @property
    def duration_ms(self) -> int:
        return max(0, self.end_time_ms - self.start_time_ms)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, without the events."""
        plain = {n: _cut(value) for n, value in vars(self).items() if n not in _NOT_PLAIN}
        steps = [step.to_dict() for step in self.steps]
        return {
            **plain,
            "steps": steps,
            "cost": self.cost.to_dict(),
            "duration_ms": self.duration_ms,
        }


_NOT_PLAIN = frozenset({"cost", "events", "steps"})


@dataclass(frozen=True, kw_only=True)
class RLMResult:
    """The result of a request. `text` is what elizaOS gets in any case.

    If it is the stub's text or begins with `[RLM ERROR]`, `error` says why; otherwise it is None.
    """

    text: str
    stub: bool = False
    error: str | None = None
    iterations: int | None = None
    depth: int | None = None
    stop_reason: str | None = None
    cost: RLMCost | None = None
    trajectory: RLMTrajectory | None = None

    @classmethod
    def of_stub(cls, reason: str) -> "RLMResult":
        return cls(text=STUB_TEXT, stub=True, error=reason)

    @classmethod
    def of_error(cls, reason: str, trajectory: RLMTrajectory | None = None) -> "RLMResult":
        cost = trajectory.cost if trajectory else None
        return cls(text=f"{ERROR_PREFIX} {reason}", error=reason, cost=cost, trajectory=trajectory)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        names = ("stub", "iterations", "depth", "error", "stop_reason")
        return {
            "text": self.text,
            "metadata": {name: getattr(self, name) for name in names},
            "cost": self.cost.to_dict() if self.cost else None,
            "trajectory": self.trajectory.to_dict() if self.trajectory else None,
        }


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_TEXT_CHARS:
        return f"{value[:MAX_TEXT_CHARS]}… ({len(value):,} characters)"
    return value
