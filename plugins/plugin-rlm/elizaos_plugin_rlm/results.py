"""What comes of a request: its text, what it cost, and how it was found."""

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
MOST_TOLD_CHARS = 2_000
"""Of each text in `to_dict()`: a trajectory of a long run must not fill a line with megabytes."""


@dataclass(frozen=True, kw_only=True)
class RLMCost:
    """Tokens and money: of the root's own requests, and of all the calls below it.

    Money that nobody can name is None, never 0.
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
        """Sums; the money is unknown as soon as one part that asked a model does not know it."""
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
    """One reply of a model: with the code it led to, or to a call that such code made."""

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
        """As JSON can hold it, long texts cut to their beginnings."""
        return {name: _told(value) for name, value in vars(self).items()}


@dataclass(kw_only=True)
class RLMTrajectory:
    """How an answer was found, told by the engine while it was. `events` are its own words."""

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
        """As JSON can hold it, without the events."""
        told = {name: value for name, value in vars(self).items() if name not in _NOT_PLAIN}
        told = {name: _told(value) for name, value in told.items()}
        steps = [step.to_dict() for step in self.steps]
        return {
            **told,
            "steps": steps,
            "cost": self.cost.to_dict(),
            "duration_ms": self.duration_ms,
        }


_NOT_PLAIN = frozenset({"cost", "events", "steps"})


@dataclass(frozen=True, kw_only=True)
class RLMResult:
    """The end of a request. `text` is what elizaOS gets, whatever happened.

    `error` says why it is the stub's text or begins with `[RLM ERROR]`; it is None for an answer.
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
        """As JSON can hold it."""
        names = ("stub", "iterations", "depth", "error", "stop_reason")
        return {
            "text": self.text,
            "metadata": {name: getattr(self, name) for name in names},
            "cost": self.cost.to_dict() if self.cost else None,
            "trajectory": self.trajectory.to_dict() if self.trajectory else None,
        }


def _told(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MOST_TOLD_CHARS:
        return f"{value[:MOST_TOLD_CHARS]}… ({len(value):,} characters)"
    return value
