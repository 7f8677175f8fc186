"""A toolset with one tool: ask a question about a context that the agent never sees."""

import datetime
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from pydantic_ai import FunctionToolset, RunContext, Tool, ToolReturn
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.models import Model
from pydantic_ai.usage import RunUsage

from recursivelm_pydantic_ai.client import PydanticAIClient
from rlm import RLM, Limits
from rlm.errors import ConfigError, ModelError, SessionError
from rlm.limits import Budget, limits_of
from rlm.messages import Price

if TYPE_CHECKING:
    from rlm import RunResult

__all__ = ["LIMITS", "AskToolset"]

LIMITS = Limits(max_steps=15, max_calls=200, max_seconds=300.0)
"""What one question may use, unless the toolset is given other limits."""

DESCRIPTION = (
    "Ask one question, in plain words, about {about}. It may be far larger than what you can read: "
    "it stays where it is, and code searches it and asks models about its parts. Name everything "
    "that the answer depends on, because earlier questions are not remembered."
)
MAX_ANSWER_CHARS = 20_000


class AskToolset(FunctionToolset[Any]):
    """Give an agent the tool `ask(question)` about a context.

        agent = Agent("openai:gpt-5-mini", toolsets=[AskToolset(Path("logs/"), about="our logs")])

    `context` is anything that `RLM.ask` takes, or a function of the run's context that returns it.
    The agent's own model answers, unless `model` names another one of Pydantic AI; `sub_model` is
    asked by code. `budget` is shared by all questions; each question has `limits`. All other
    options are those of `RLM`.
    """

    def __init__(
        self,
        context: Any,
        *,
        about: str = "a collection of data",
        model: Model | str | None = None,
        sub_model: Model | str | None = None,
        limits: Limits | Mapping[str, Any] = LIMITS,
        budget: Budget | None = None,
        prices: Mapping[str, tuple[float, float] | Price] | None = None,
        cite: bool = False,
        max_answer_chars: int = MAX_ANSWER_CHARS,
        name: str = "ask",
        id: str | None = None,  # noqa: A002 - Pydantic AI's own name
        **options: Any,
    ) -> None:
        if max_answer_chars < 1:
            raise ConfigError(f"max_answer_chars must be at least 1, not {max_answer_chars}")
        self._context = context
        self._models = model, sub_model
        self._limits = limits_of(limits, LIMITS)
        self._budget = budget
        self._cite = cite
        self._max_chars = max_answer_chars
        self._options: dict[str, Any] = {"prices": prices, **options}
        description = DESCRIPTION.format(about=about)
        # A question that failed would fail again, so the model is told, and not asked to repeat it.
        tool = Tool(self._ask, takes_ctx=True, name=name, description=description, max_retries=1)
        super().__init__([tool], id=id)

    async def _ask(self, ctx: RunContext[Any], question: str) -> ToolReturn[str]:
        model, sub_model = self._models
        root = PydanticAIClient(model if model is not None else _model_of(ctx))
        sub = None if sub_model is None else PydanticAIClient(sub_model)
        async with RLM(root, sub_model=sub, **self._options) as rlm:
            try:
                result = await rlm.aask(
                    question,
                    await self._context_of(ctx),
                    limits=_within(self._limits, ctx),
                    budget=self._budget,
                    cite=self._cite,
                )
            except (ModelError, SessionError) as error:
                raise ToolFailed(f"the question was not answered: {error}") from error
        _count(ctx.usage, result)
        if result.answer is None:
            raise ToolFailed(f"the question was not answered: {result}")
        return ToolReturn(self._shown(str(result.answer)), metadata=_facts(result))

    async def _context_of(self, ctx: RunContext[Any]) -> Any:
        if not inspect.isroutine(self._context):
            return self._context
        found = cast("Callable[[RunContext[Any]], Any]", self._context)(ctx)
        return await found if inspect.isawaitable(found) else found

    def _shown(self, answer: str) -> str:
        if len(answer) <= self._max_chars:
            return answer
        left_out = len(answer) - self._max_chars
        return (
            f"{answer[: self._max_chars]}\n… ({left_out:,} more characters; ask for less at once)"
        )


def _model_of(ctx: RunContext[Any]) -> Model:
    if not isinstance(ctx.model, Model):
        kind = type(ctx.model).__name__
        raise ConfigError(f"the agent's model, {kind}, does not answer plain requests: pass model=")
    return ctx.model


def _within(limits: Limits, ctx: RunContext[Any]) -> dict[str, Any]:
    """Return the limits of a question, within what the agent's own run may still use."""
    found = {name: getattr(limits, name) for name in limits.__struct_fields__}
    allowed = ctx.usage_limits
    if allowed is not None and allowed.total_tokens_limit is not None:
        left = allowed.total_tokens_limit - ctx.usage.total_tokens
        if left < 1:
            raise ToolFailed("the question was not asked: the run's token limit has been reached")
        found["max_tokens"] = min(left, found["max_tokens"] or left)
    if ctx.deadline is not None:
        seconds = (ctx.deadline - datetime.datetime.now(ctx.deadline.tzinfo)).total_seconds()
        if seconds <= 0:
            raise ToolFailed("the question was not asked: the run has no time left")
        found["max_seconds"] = min(seconds, found["max_seconds"] or seconds)
    return found


def _count(usage: RunUsage, result: "RunResult") -> None:
    """Add the tokens of a question to the agent's usage.

    Its requests are left out: the agent's `request_limit`, 50 by default, is for its own loop, and
    a question has `max_steps` and `max_calls`.
    """
    used = result.usage.total
    usage.incr(
        RunUsage(
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cache_read_tokens=used.cached_tokens,
            cache_write_tokens=used.cache_write_tokens,
        )
    )


def _facts(result: "RunResult") -> dict[str, Any]:
    """Return what programs may want to know; the agent's model does not see it."""
    return {
        "run_id": result.run_id,
        "stop_reason": result.stop_reason,
        "steps": result.steps,
        "requests": result.usage.total.requests,
        "cost_usd": result.cost_usd,
        "citations": [each.label for each in result.citations],
    }
