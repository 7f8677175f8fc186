"""From a prompt to a turn, and from a run's result to what `llm` keeps of it."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import llm
from llm.parts import StreamEvent

from llm_rlm.asked import read_prompt
from llm_rlm.failing import MISSING, as_llm_error
from llm_rlm.runs import Turn, turn_for
from llm_rlm.telling import Telling
from llm_rlm.texts import plain

if TYPE_CHECKING:
    from rlm import RunResult
    from rlm.messages import Usage

__all__ = ["answer_of", "telling_of", "turn_of"]


def turn_of(inner: Any, prompt: Any, conversation: Any, key: str | None) -> Turn:
    """The turn that a prompt asks for; what can't be done is told before anything is sent."""
    try:
        from rlm.errors import RLMError
    except ImportError as error:
        raise llm.ModelError(MISSING) from error
    asked = read_prompt(prompt)
    if asked.is_empty:
        raise llm.ModelError("there is nothing to answer: give a question, or something to read")
    schema = prompt.schema if isinstance(prompt.schema, dict) else None
    try:
        return turn_for(inner, asked, prompt.options, key, schema, conversation)
    except RLMError as error:
        raise as_llm_error(error) from error


def telling_of(prompt: Any) -> Telling:
    """Who retells the run; `-R` wants no reasoning."""
    return Telling(hides_reasoning=bool(prompt.hide_reasoning))


def answer_of(result: "RunResult | None", response: Any, prompt: Any) -> Iterator[StreamEvent]:
    """The answer as text, with usage and facts of the run on the response."""
    assert result is not None, "a run ends with a result or an error"
    response.set_usage(**_usage(result))
    response.response_json = _facts(result)
    if result.answer is None:
        reason = result.detail or f"the run ended ({result.limit or result.stop_reason})"
        raise llm.ModelError(f"there is no answer: {reason}")
    text = _as_text(result, is_typed=bool(prompt.schema))
    yield StreamEvent(type="text", chunk=plain(text))


def _as_text(result: "RunResult", *, is_typed: bool) -> str:
    return json.dumps(result.answer, ensure_ascii=False) if is_typed else str(result.answer)


def _facts(result: "RunResult") -> dict[str, Any]:
    facts = {
        "run_id": result.run_id,
        "stop_reason": result.stop_reason,
        "answer_source": result.answer_source,
        "limit": result.limit,
        "detail": result.detail,
        "steps": result.steps,
        "seconds": round(result.seconds, 3),
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


def _usage(result: "RunResult") -> dict[str, Any]:
    """Tokens of the whole run; in the details what its steps and its sub-calls used of them."""
    from rlm import events
    from rlm.messages import Usage

    total, steps, sub_calls = result.usage.total, Usage(), Usage()
    for event in result.events:
        if isinstance(event, events.ModelReplied) and event.usage and not event.stored:
            if event.depth:
                sub_calls += event.usage
            else:
                steps += event.usage
        elif isinstance(event, events.CallEnded) and event.usage and not event.stored:
            sub_calls += event.usage
    details = {
        "steps": _counts(steps),
        "sub_calls": _counts(sub_calls),
        "models": {name: _counts(each) for name, each in result.usage.by_model.items()},
    }
    if result.cost_usd is not None:
        details["cost_usd"] = round(result.cost_usd, 6)
    return {"input": total.input_tokens, "output": total.output_tokens, "details": details}


def _counts(usage: "Usage") -> Any:
    return {
        "requests": usage.requests,
        "input": usage.input_tokens,
        "output": usage.output_tokens,
    }
