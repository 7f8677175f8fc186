"""Split → map → filter → merge, owned by the engine: no model-written code at all.

For models that can't write code, and for runs that are stuck. Every call goes through calls.py,
so the budget holds here as everywhere.
"""

import asyncio
from collections.abc import Sequence

from rlm import prompts
from rlm.calls import Calls
from rlm.config import RunConfig
from rlm.errors import CallRefused, RLMError
from rlm.messages import Message, Request
from rlm.run import Task
from rlm.scope import Scope

__all__ = ["map_reduce", "split"]

NOT_FOUND = "NOT FOUND"
OVERLAP_CHARS = 200
SMALLEST_PIECE_CHARS = 1_000
NUMBERING_CHARS = 16
SEPARATORS = ("\n\n", "\n", ". ", " ")


def split(text: str, size: int) -> list[tuple[int, int]]:
    """Spans of at most `size` characters that end at a paragraph, line, sentence or word.

    Neighbours overlap a little, so that a fact on a border is whole in one of them.
    """
    spans: list[tuple[int, int]] = []
    start = 0
    while start < len(text):
        end = _good_end(text, start, start + size)
        spans.append((start, end))
        if end >= len(text):
            break
        start = max(end - min(OVERLAP_CHARS, size // 4), start + 1)
    return spans


def _good_end(text: str, start: int, end: int) -> int:
    if end >= len(text):
        return len(text)
    for separator in SEPARATORS:
        found = text.rfind(separator, start + (end - start) // 2, end)
        if found != -1:
            return found + len(separator)
    return end


async def map_reduce(calls: Calls, task: Task, scope: Scope, config: RunConfig) -> str | None:
    """The answer, or None if no part of the context had anything to say."""
    size = prompts.call_chars(calls.info(config.sub_model)) - len(task.query)
    size = max(size, SMALLEST_PIECE_CHARS)
    text = task.context.text()
    pieces = [text[start:end] for start, end in split(text, size)]
    room = scope.budget.room().calls
    if len(pieces) >= room:
        raise CallRefused(
            f"map/reduce needs {len(pieces):,} calls and one more, {room:,} are left (max_calls)",
            limit="calls",
        )
    questions = [
        prompts.map_prompt(task.query, piece, number, len(pieces))
        for number, piece in enumerate(pieces, 1)
    ]
    notes = await _notes(calls, scope, config, questions)
    while notes:
        groups = _groups(notes, size)
        query = "\n\n".join(filter(None, [task.query, task.prologue]))
        questions = [prompts.reduce_prompt(query, group) for group in groups]
        merged = await _notes(calls, scope, config, questions)
        if len(groups) == 1:
            return merged[0] if merged else None
        notes = merged
    return None


async def _notes(
    calls: Calls, scope: Scope, config: RunConfig, questions: Sequence[str]
) -> list[str]:
    """Replies that had something to say, in order. Fails only if every call failed."""
    requests = [
        Request(
            model=config.sub_model,
            messages=(Message("user", question),),
            max_output_tokens=config.limits.call_output_tokens,
            sampling=config.sub_sampling,
        )
        for question in questions
    ]
    replies = await asyncio.gather(
        *(calls.call(scope, request) for request in requests), return_exceptions=True
    )
    failed = [reply for reply in replies if isinstance(reply, BaseException)]
    for error in failed:
        if not isinstance(error, RLMError) or len(failed) == len(replies):
            raise error
    texts = [reply.text.strip() for reply in replies if not isinstance(reply, BaseException)]
    return [text for text in texts if text and not text.upper().startswith(NOT_FOUND)]


def _groups(notes: Sequence[str], size: int) -> list[str]:
    """Notes joined into prompts that fit. Two always share one, so that merging ends."""
    most = size // 2 - NUMBERING_CHARS
    groups: list[str] = []
    for number, note in enumerate(notes, 1):
        entry = f"[{number}] {note[:most]}"
        if groups and len(groups[-1]) + len(entry) + 2 <= size:
            groups[-1] += f"\n\n{entry}"
        else:
            groups.append(entry)
    return groups
