"""The values of the reference engine: what `completion()` returns, and what its logs are made of.

They are plain dataclasses with `to_dict`, and `from_dict` where the reference has it.
"""

import json
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal, cast

from rlm.messages import Usage
from rlm.results import RunResult

__all__ = [
    "ClientBackend",
    "CodeBlock",
    "Completion",
    "EnvironmentType",
    "ModelUsage",
    "QueryMetadata",
    "REPLResult",
    "RLMIteration",
    "RLMMetadata",
    "UsageTotals",
    "plain",
]

ClientBackend = Literal[
    "openai", "portkey", "openrouter", "vercel", "vllm", "anthropic", "azure_openai", "gemini"
]
EnvironmentType = Literal["local", "ipython", "docker", "modal", "prime", "daytona", "e2b"]

MAX_PLAIN_DEPTH = 50
"""Values nested deeper are written as their type."""


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value in JSON's types; what JSON can't hold becomes a text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if depth >= MAX_PLAIN_DEPTH:
        return f"<{type(value).__name__}>"
    if isinstance(value, ModuleType):
        return f"<module '{value.__name__}'>"
    if isinstance(value, list | tuple):
        return [plain(each, depth + 1) for each in value]
    if isinstance(value, Mapping):
        return {str(name): plain(each, depth + 1) for name, each in value.items()}
    if callable(value):
        return f"<{type(value).__name__} '{getattr(value, '__name__', type(value).__name__)}'>"
    return repr(value)


def _without_none(fields: dict[str, Any], *optional: str) -> dict[str, Any]:
    return {n: each for n, each in fields.items() if each is not None or n not in optional}


@dataclass
class ModelUsage:
    """The usage of one model in a completion."""

    total_calls: int
    total_input_tokens: int
    total_output_tokens: int
    total_cost: float | None = None

    @classmethod
    def of(cls, usage: Usage) -> "ModelUsage":
        return cls(usage.requests, usage.input_tokens, usage.output_tokens, usage.cost_usd)

    def to_dict(self) -> dict[str, Any]:
        return _without_none(dict(vars(self)), "total_cost")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ModelUsage":
        return cls(
            data.get("total_calls", 0),
            data.get("total_input_tokens", 0),
            data.get("total_output_tokens", 0),
            data.get("total_cost"),
        )


@dataclass
class UsageTotals:
    """Usage by model, with the sums that the reference offers."""

    model_usage_summaries: dict[str, ModelUsage]

    @property
    def total_cost(self) -> float | None:
        costs = [each.total_cost for each in self.model_usage_summaries.values()]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if known else None

    @property
    def total_input_tokens(self) -> int:
        return sum(each.total_input_tokens for each in self.model_usage_summaries.values())

    @property
    def total_output_tokens(self) -> int:
        return sum(each.total_output_tokens for each in self.model_usage_summaries.values())

    def to_dict(self) -> dict[str, Any]:
        models = {name: each.to_dict() for name, each in self.model_usage_summaries.items()}
        fields = {"model_usage_summaries": models, "total_cost": self.total_cost}
        return _without_none(fields, "total_cost")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "UsageTotals":
        models = data.get("model_usage_summaries") or {}
        return cls({name: ModelUsage.from_dict(each) for name, each in models.items()})


@dataclass(repr=False)
class Completion:
    """What `completion()` returns: the fields of the reference, and our own result as `result`.

    If it does not come from `completion()`, such as a call in `metadata`, it has no `result`.
    """

    root_model: str
    prompt: Any
    response: str
    usage_summary: UsageTotals
    execution_time: float
    metadata: dict[str, Any] | None = None
    error: str | None = None
    result: RunResult = field(default=cast("RunResult", None), compare=False)

    def __repr__(self) -> str:
        """Return one line: prompt and metadata may hold a whole context."""
        shown = reprlib.Repr()
        shown.maxstring = 120
        return (
            f"{type(self).__name__}(root_model={self.root_model!r}, "
            f"response={shown.repr(self.response)}, execution_time={self.execution_time:.3f})"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Show the card of the run in a notebook."""
        return {} if self.result is None else self.result._repr_mimebundle_()

    def to_dict(self) -> dict[str, Any]:
        """Return everything but `result`; `metadata` and `error` only if there are any."""
        fields: dict[str, Any] = {
            "root_model": self.root_model,
            "prompt": self.prompt,
            "response": self.response,
            "usage_summary": self.usage_summary.to_dict(),
            "execution_time": self.execution_time,
            "metadata": self.metadata,
            "error": self.error,
        }
        return _without_none(fields, "metadata", "error")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Completion":
        """Return the completion that `to_dict` wrote."""
        return cls(
            root_model=data.get("root_model", ""),
            prompt=data.get("prompt"),
            response=data.get("response", ""),
            usage_summary=UsageTotals.from_dict(data.get("usage_summary") or {}),
            execution_time=data.get("execution_time", 0.0),
            metadata=data.get("metadata"),
            error=data.get("error"),
        )


@dataclass
class REPLResult:
    """What one block of code did."""

    stdout: str
    stderr: str
    locals: dict[str, Any]
    execution_time: float | None = None
    rlm_calls: list[Completion] = field(default_factory=list)
    final_answer: str | None = None

    def __post_init__(self) -> None:
        self.rlm_calls = self.rlm_calls or []  # None is accepted

    def __str__(self) -> str:
        return (
            f"REPLResult(stdout={self.stdout}, stderr={self.stderr}, locals={self.locals}, "
            f"execution_time={self.execution_time}, rlm_calls={len(self.rlm_calls)})"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "stdout": self.stdout,
            "stderr": self.stderr,
            "locals": {name: plain(value) for name, value in self.locals.items()},
            "execution_time": self.execution_time,
            "rlm_calls": [call.to_dict() for call in self.rlm_calls],
            "final_answer": self.final_answer,
        }


@dataclass
class CodeBlock:
    """A block of code and its result."""

    code: str
    result: REPLResult

    def to_dict(self) -> dict[str, Any]:
        return {"code": self.code, "result": self.result.to_dict()}


@dataclass
class RLMIteration:
    """One step: what was sent, what came back, and what its code did."""

    prompt: Any
    response: str
    code_blocks: list[CodeBlock]
    final_answer: str | None = None
    iteration_time: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "prompt": self.prompt,
            "response": self.response,
            "code_blocks": [block.to_dict() for block in self.code_blocks],
            "final_answer": self.final_answer,
            "iteration_time": self.iteration_time,
        }


@dataclass
class RLMMetadata:
    """How an `RLM` is configured, without secrets."""

    root_model: str
    max_depth: int
    max_iterations: int
    backend: str
    backend_kwargs: dict[str, Any]
    environment_type: str
    environment_kwargs: dict[str, Any]
    other_backends: list[str] | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            **vars(self),
            "backend_kwargs": plain(self.backend_kwargs),
            "environment_kwargs": plain(self.environment_kwargs),
        }


@dataclass(init=False)
class QueryMetadata:
    """The lengths of a prompt and of its parts."""

    context_lengths: list[int]
    context_total_length: int
    context_type: str

    def __init__(self, prompt: str | list[Any] | dict[Any, Any]) -> None:
        if isinstance(prompt, str):
            kind, lengths = "str", [len(prompt)]
        elif isinstance(prompt, dict):
            kind, lengths = "dict", [_length(each) for each in prompt.values()]
        elif isinstance(prompt, list):
            kind, lengths = "list", [_length(_said(each)) for each in prompt] or [0]
        else:
            raise ValueError(
                f"a prompt must be a str, a list or a dict, not {type(prompt).__name__}"
            )
        self.context_type, self.context_lengths = kind, lengths
        self.context_total_length = sum(lengths)


def _said(item: Any) -> Any:
    """Return the content of a message; return anything else unchanged."""
    return str(item.get("content", "")) if isinstance(item, dict) and "content" in item else item


def _length(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    return len(json.dumps(value, default=str))
