"""Answers of child runs, remembered: one that has ended is not run again when its parent is."""

from typing import Any

import msgspec

from rlm.calls.failures import error_of, failed
from rlm.calls.scope import Scope
from rlm.engine.bridge import ChildAnswer
from rlm.errors import CallRefused
from rlm.limits import Amount
from rlm.messages import Reply, ReplyKey, Usage
from rlm.results import RunResult

__all__ = ["answered", "recalled"]


async def recalled(child: Scope, step: int) -> ChildAnswer | None:
    """The answer of a child that ended on an earlier execution; what it used is counted."""
    known = await child.recall(_key(child, step))
    if known is None:
        return None
    _charge(child, known.opaque)
    if known.finish_reason == "failed":
        raise error_of(known)
    return ChildAnswer(known.text, child.run_id, stored=True)


async def answered(child: Scope, step: int, result: RunResult) -> ChildAnswer:
    """Commit how a child ended, then hand on its answer."""
    used = child.budget.used
    spent = {
        "used": [used.calls, used.tokens, used.picodollars],
        "usage": [
            [model, depth, msgspec.to_builtins(usage)]
            for (model, depth), usage in child.budget.usage.items()
        ],
    }
    if result.answer is None:
        refusal = CallRefused(
            f"a child run ended without an answer: {result.detail}", limit=result.limit or "child"
        )
        await child.remember(_key(child, step), failed(refusal, spent))
        raise refusal
    await child.remember(_key(child, step), Reply(text=result.answer, opaque=spent))
    return ChildAnswer(result.answer, result.run_id)


def _key(child: Scope, step: int) -> ReplyKey:
    return ReplyKey(child.path, "answer", 0, "child", step)


def _charge(child: Scope, spent: dict[str, Any]) -> None:
    child.budget.charge(Amount(*spent["used"]))
    for model, depth, usage in spent["usage"]:
        child.budget.note_usage(model, depth, msgspec.convert(usage, Usage))
