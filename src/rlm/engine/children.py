"""The task of a child run, and the answer that comes back.

The answer is stored, so a child that has ended does not run again when its parent is resumed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from rlm._util.off_loop import LONG_CHARS, off_loop
from rlm.calls.billing import checked_usage
from rlm.calls.scope import Scope, error_of, failed
from rlm.context import StoredContext, store_context
from rlm.errors import CallRefused
from rlm.images import Picture
from rlm.limits import Amount, Limits
from rlm.messages import Reply, ReplyKey, Usage
from rlm.results import RunResult

__all__ = [
    "ChildAnswer",
    "ChildTask",
    "Spent",
    "StartChild",
    "answered",
    "charge",
    "context_of",
    "digest_of",
    "recalled",
    "spent_by",
]


class ChildTask(Struct, frozen=True):
    """What `rlm_query` asks for. Without a context, the prompt is the context.

    `pictures` are those of its parent, which the child may name. `tools` names the tools it gets;
    None stands for all that children may have.
    """

    prompt: str
    context: Any
    has_context: bool
    model: str
    call_id: str
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    tools: tuple[str, ...] | None = None

    @property
    def context_value(self) -> Any:
        return self.context if self.has_context else self.prompt

    def distinct(self, query: str) -> str:
        """Return the query and what else distinguishes this child from one with the same query."""
        return query if self.tools is None else "\0".join((query, "tools", *self.tools))


class ChildAnswer(Struct, frozen=True):
    """The answer of a child run, which is all that comes back.

    `stored`: the child ran in an earlier execution and was not run again.
    """

    text: str
    run_id: str
    stored: bool = False


StartChild = Callable[[ChildTask], Awaitable[ChildAnswer]]


async def context_of(task: ChildTask, parent: Scope, limits: Limits) -> StoredContext:
    """Return the context of a child run, with its hash: the id of the child depends on it.

    What a cell passes may be large, so it is encoded and measured in a thread.
    """
    value = task.context_value
    if isinstance(value, StoredContext) or (isinstance(value, str) and len(value) <= LONG_CHARS):
        context = store_context(value, task.pictures)
    else:
        context = await asyncio.to_thread(_measured, value, task.pictures)
    parent.tree.count_child_context(context.size_bytes, limits)
    await context.hashed()
    return context


def _measured(value: Any, pictures: Mapping[str, Picture]) -> StoredContext:
    """Store a value; its size is known then, and so is its hash unless it is large."""
    context = store_context(value, pictures)
    _ = context.known_sha256
    return context


async def digest_of(context: StoredContext, task: str) -> str:
    """Return what names a child run on every execution; its task may be long."""
    return await off_loop(len(task), lambda: context.digest(task))


async def recalled(child: Scope, step: int) -> ChildAnswer | None:
    """Return the answer of a child that ended in an earlier execution; count what it used."""
    known = await child.recall(_key(child, step))
    if known is None:
        return None
    charge(child, known.opaque)
    if known.finish_reason == "failed":
        raise error_of(known)
    return ChildAnswer(known.text, child.run_id, stored=True)


async def answered(child: Scope, step: int, result: RunResult) -> ChildAnswer:
    """Store how a child ended, then return its answer."""
    spent = spent_by(child)
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


Count = Annotated[int, Meta(ge=0, le=1 << 62)]


class Spent(Struct, frozen=True):
    """What `spent_by` returns: calls, tokens and picodollars, and usage by model and depth."""

    used: tuple[Count, Count, Count]
    usage: tuple[tuple[str, Count, Usage], ...]

    def __post_init__(self) -> None:
        if any(checked_usage(each) is None for *_, each in self.usage):
            raise ValueError("its usage is not possible")


def spent_by(child: Scope) -> dict[str, Any]:
    """Return what a child has used, as it is stored with its answer."""
    used = child.budget.used
    return {
        "used": [used.calls, used.tokens, used.picodollars],
        "usage": [
            [model, depth, msgspec.to_builtins(usage)]
            for (model, depth), usage in child.budget.usage.items()
        ],
    }


def charge(child: Scope, spent: dict[str, Any]) -> None:
    """Count what `spent_by` stored in an earlier execution."""
    stored = msgspec.convert(spent, Spent)
    usage = {(model, depth): each for model, depth, each in stored.usage}
    child.count_ended(Amount(*stored.used), usage)
