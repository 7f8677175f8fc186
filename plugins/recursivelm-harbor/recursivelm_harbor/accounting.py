"""What a run has used, in the fields of Harbor, kept up to date while it runs."""

from harbor.models.agent.context import AgentContext, ModelUsage

from rlm import RunResult
from rlm.events import CallEnded, Event, ModelReplied
from rlm.messages import Usage

__all__ = ["ContextRecorder", "clean", "used_by"]


def used_by(event: Event) -> Usage | None:
    """Return what an event tells to be used in addition; None if it tells nothing."""
    if isinstance(event, CallEnded) and event.kind == "rlm":
        return None  # The usage of a child run is that of its own replies.
    return event.usage if isinstance(event, ModelReplied | CallEnded) else None


def clean(text: str) -> str:
    """Return a text that JSON in UTF-8 can hold: without lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8")


class ContextRecorder:
    """A recorder that fills in the context after each reply, so that a timeout loses nothing."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._by_model: dict[str, Usage] = {}

    def record(self, event: Event) -> None:
        if isinstance(event, ModelReplied | CallEnded) and (used := used_by(event)) is not None:
            known = self._by_model.get(event.model, Usage())
            self._by_model[event.model] = known + used
            self._fill(self._by_model)

    def finish(self, result: RunResult, commands: int) -> None:
        """Fill in the final figures, and what else is known about the run."""
        self._fill(dict(result.usage.by_model))
        self._context.metadata = {
            **(self._context.metadata or {}),
            "run_id": result.run_id,
            "stop_reason": result.stop_reason,
            "limit": result.limit,
            "steps": result.steps,
            "requests": result.usage.total.requests,
            "commands": commands,
            "answer": None if result.answer is None else clean(str(result.answer))[:10_000],
        }

    def _fill(self, by_model: dict[str, Usage]) -> None:
        total = sum(by_model.values(), Usage())
        self._context.n_input_tokens = total.input_tokens
        self._context.n_cache_tokens = total.cached_tokens
        self._context.n_output_tokens = total.output_tokens
        self._context.cost_usd = total.cost_usd
        self._context.model_usage = {
            model: ModelUsage(
                n_input_tokens=used.input_tokens,
                n_cache_tokens=used.cached_tokens,
                n_output_tokens=used.output_tokens,
                cost_usd=used.cost_usd,
            )
            for model, used in by_model.items()
        }
