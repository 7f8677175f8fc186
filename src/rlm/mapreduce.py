"""Split → filter → map → merge, owned by the engine: no model-written code at all.

For models that can't write code, and for runs that are stuck. Every call goes through calls.py,
so the budget holds here as everywhere.

A model of the `tiny` profile is asked less: it reads small pieces, only those that hold the query's
telling words, and copies a line of each; what it makes up is recognised, as it is in no piece.
"""

import asyncio
import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence

from rlm import prompts
from rlm.calls import Calls
from rlm.config import RunConfig
from rlm.errors import CallRefused, RLMError
from rlm.messages import Message, Request
from rlm.run import Task
from rlm.scope import Scope

__all__ = ["grounded", "map_reduce", "split", "telling", "whole_line"]

NOT_FOUND = "NOT FOUND"
OVERLAP_CHARS = 200
SMALLEST_PIECE_CHARS = 1_000
NUMBERING_CHARS = 16
SEPARATORS = ("\n\n", "\n", ". ", " ")
TINY_PIECE_CHARS = 1_500
TINY_OUTPUT_TOKENS = 160
LINE_CHARS = 400
LITTLE_CHARS = 3
TINY_AT_ONCE = 4
"""A small model is often a slow one too: a call's time should pass in being answered."""

TELLING = 2 / 3
"""How much of the best piece's score another one needs to be read as well."""

LINES = re.compile(r"\n|(?<=[.!?])\s+")
WORDS = re.compile(r"\w+(?:[-.:/@_]\w+)*")


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
    info = calls.info(config.sub_model)
    if (config.profile or info.profile) == "tiny":
        return await _read_by_tiny(calls, task, scope, config)
    size = prompts.call_chars(info) - len(task.query)
    size = max(size, SMALLEST_PIECE_CHARS)
    text = task.context.text()
    pieces = [text[start:end] for start, end in split(text, size)]
    _check_room(scope, len(pieces))
    questions = [
        prompts.map_prompt(task.query, piece, number, len(pieces))
        for number, piece in enumerate(pieces, 1)
    ]
    notes = _notes(await _replies(calls, scope, config, questions))
    while notes:
        groups = _groups(notes, size)
        questions = [prompts.reduce_prompt(_whole_query(task), group) for group in groups]
        merged = _notes(await _replies(calls, scope, config, questions))
        if len(groups) == 1:
            return merged[0] if merged else None
        notes = merged
    return None


def _check_room(scope: Scope, pieces: int) -> None:
    room = scope.budget.room().calls
    if pieces >= room:
        raise CallRefused(
            f"map/reduce needs {pieces:,} calls and one more, {room:,} are left (max_calls)",
            limit="calls",
        )


def _whole_query(task: Task) -> str:
    return "\n\n".join(filter(None, [task.query, task.prologue]))


# -- what a tiny model reads ----------------------------------------------------------------------


async def _read_by_tiny(calls: Calls, task: Task, scope: Scope, config: RunConfig) -> str | None:
    text = task.context.text()
    room_chars = prompts.call_chars(calls.info(config.sub_model)) - len(task.query)
    size = max(min(TINY_PIECE_CHARS, room_chars), SMALLEST_PIECE_CHARS)
    pieces = telling(task.query, [text[start:end] for start, end in split(text, size)])
    _check_room(scope, len(pieces))
    questions = [prompts.tiny_map_prompt(task.query, piece) for piece in pieces]
    replies = await _replies(calls, scope, config, questions, TINY_OUTPUT_TOKENS, TINY_AT_ONCE)
    pairs = zip(replies, pieces, strict=True)
    lines = [(whole_line(note, piece, task.query), piece) for note, piece in pairs]
    taken = [note for note, piece in lines if grounded(note, piece, task.query)]
    notes = list(dict.fromkeys(_notes(taken)))  # pieces overlap, and so do their notes
    while len(notes) > 1 or (notes and task.prologue):
        groups = _groups(notes, size)
        questions = [prompts.tiny_reduce_prompt(_whole_query(task), group) for group in groups]
        cap = TINY_OUTPUT_TOKENS if not task.prologue else config.limits.call_output_tokens
        merged = await _replies(calls, scope, config, questions, cap, TINY_AT_ONCE)
        if len(groups) == 1:
            kept = task.prologue or grounded(merged[0], groups[0], task.query)
            return (merged[0] if kept else "") or notes[0]
        notes = _notes(merged) or notes[:1]
    return notes[0] if notes else None


def telling(query: str, pieces: Sequence[str]) -> list[str]:
    """The pieces that hold the query's rarest words and pairs of words, the best ones first.

    All of them if the words tell nothing, because every piece has them, or none.
    """
    wanted = _terms(query)
    held = [wanted & _terms(piece) for piece in pieces]
    pieces_with = Counter(term for terms in held for term in terms)
    scores = [
        math.fsum(math.log(len(pieces) / pieces_with[term]) for term in terms) for terms in held
    ]
    best = max(scores, default=0.0)
    order = sorted(range(len(pieces)), key=lambda number: -scores[number])
    return [pieces[number] for number in order if scores[number] >= best * TELLING]


def whole_line(note: str, piece: str, query: str) -> str:
    """The note; but for one that only repeats the query, the line that it must have meant."""
    if not note or _added(note, query):
        return note
    lines = telling(query, [line for line in LINES.split(piece) if line.strip()])
    return lines[0].strip()[:LINE_CHARS] if lines else note


def grounded(note: str, piece: str, query: str) -> bool:
    """Whether a note was taken from the piece: most of what it adds to the query is in there.

    A number that is in neither is made up, whatever else the note says.
    """
    added = _added(note, query)
    foreign = added - set(_words(piece))
    if any(character.isdigit() for word in foreign for character in word):
        return False
    return 2 * len(foreign) <= len(added) and bool(added)


def _added(note: str, query: str) -> set[str]:
    """The words a note has beyond the query's, without the little ones every sentence has."""
    new = set(_words(note)) - set(_words(query))
    return {word for word in new if len(word) > LITTLE_CHARS or not word.isalpha()}


def _words(text: str) -> list[str]:
    return [word.casefold() for word in WORDS.findall(text)]


def _terms(text: str) -> set[str]:
    """Words, the parts of compound ones, and pairs of neighbours: a name is often two words."""
    words = _words(text)
    parts = (part for word in words for part in re.split(r"\W|_", word))
    return {*words, *parts, *(f"{one} {two}" for one, two in itertools.pairwise(words))}


# -- asking ---------------------------------------------------------------------------------------


async def _replies(
    calls: Calls,
    scope: Scope,
    config: RunConfig,
    questions: Sequence[str],
    output_tokens: int | None = None,
    at_once: int | None = None,
) -> list[str]:
    """A reply to each question, "" for a call that failed. Fails only if every call failed."""
    cap = config.limits.call_output_tokens
    places = asyncio.Semaphore(at_once or max(1, len(questions)))

    async def ask(question: str) -> str:
        request = Request(
            model=config.sub_model,
            messages=(Message("user", question),),
            max_output_tokens=min(cap, output_tokens or cap),
            sampling=config.sub_sampling,
        )
        async with places:
            return (await calls.call(scope, request)).text.strip()

    replies = await asyncio.gather(*map(ask, questions), return_exceptions=True)
    failed = [reply for reply in replies if isinstance(reply, BaseException)]
    for error in failed:
        if not isinstance(error, RLMError) or len(failed) == len(replies):
            raise error
    return [reply if isinstance(reply, str) else "" for reply in replies]


def _notes(replies: Sequence[str]) -> list[str]:
    """Replies that had something to say, in order."""
    return [text for text in replies if text and not text.upper().startswith(NOT_FOUND)]


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
