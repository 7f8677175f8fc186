"""Map/reduce from the question to the answer.

It finds the kind of answer and the size of the pieces; each kind has a function of its own.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence

from rlm import prompts
from rlm.calls.calls import Calls
from rlm.calls.scope import Scope
from rlm.config import RunConfig
from rlm.engine.kinds import by_words, kind_in
from rlm.engine.mapreduce import merging
from rlm.engine.mapreduce.asking import Asker, whole_query
from rlm.engine.mapreduce.pieces import groups_of, notes_of, split, split_lines
from rlm.engine.mapreduce.tiny import read_by_tiny, relevant_numbers
from rlm.engine.task import Task

__all__ = ["kind_of", "largest_piece", "map_reduce", "piece_chars"]

MAX_LINE_CHARS = 2_000
MAX_SHOWN_ITEMS = 300
"""A longer list is not formatted by a model, which would lose some of it."""


async def map_reduce(calls: Calls, task: Task, scope: Scope, config: RunConfig) -> str | None:
    """Return the answer, or None if no part of the context contains one."""
    asker = Asker(calls, task, scope, config)
    if asker.profile == "tiny":
        return await read_by_tiny(asker)
    text = task.context.text()
    asker.check_room(len(split(text, largest_piece(asker))))
    kind = await kind_of(asker)
    return await METHODS[kind](asker, text, kind)


# -- facts and summaries: notes about pieces, merged by the model ---------------------------------


async def _find(asker: Asker, text: str, kind: str) -> str | None:
    """Read the relevant pieces first, and the others only if those have no answer.

    Then merge all notes, because one fact may lead to another elsewhere.
    """
    pieces, size = _pieces(asker, text, kind)
    first = _first_to_read(asker.task.query, pieces)
    asker.report_plan(kind, len(pieces), size, unread=len(pieces) - len(first))
    replies = await _read(asker, pieces, first)
    if len(first) < len(pieces):
        found = await _merged(asker, _in_order(replies), size, "some")
        if found is not None:
            return found
        asker.report_plan(kind, len(pieces), size)
        rest = [number for number in range(len(pieces)) if number not in replies]
        replies |= await _read(asker, pieces, rest)
    return await _merged(asker, _in_order(replies), size)


def _first_to_read(query: str, pieces: Sequence[str]) -> list[int]:
    """Return the numbers of the relevant pieces, or of all pieces if most are relevant."""
    first = sorted(relevant_numbers(query, pieces))
    if 2 * len(first) > len(pieces) or query == prompts.FIXED_QUERY:
        return list(range(len(pieces)))
    return first


async def _summary(asker: Asker, text: str, kind: str) -> str | None:
    pieces, size = _pieces(asker, text, kind)
    asker.report_plan(kind, len(pieces), size)
    replies = await _read(asker, pieces, range(len(pieces)), kind)
    return await _merged(asker, _in_order(replies), size)


async def _read(
    asker: Asker, pieces: Sequence[str], numbers: Sequence[int], kind: str = ""
) -> dict[int, str]:
    """Return the reply about each of these pieces."""
    query, count = asker.task.query, len(pieces)
    asker.check_room(len(numbers))
    replies = await asker.replies(
        [prompts.map_prompt(query, pieces[n], n + 1, count, kind) for n in numbers]
    )
    return dict(zip(numbers, replies, strict=True))


def _in_order(replies: Mapping[int, str]) -> list[str]:
    return notes_of([replies[number] for number in sorted(replies)])


async def _merged(asker: Asker, notes: list[str], size: int, kind: str = "") -> str | None:
    """Shorten notes in rounds until one prompt holds them all, then return the answer."""
    while notes:
        groups = groups_of(notes, size)
        if len(groups) == 1:
            prompt = prompts.reduce_prompt(whole_query(asker.task), groups[0], kind)
            merged = notes_of([await asker.ask(prompt)])
            return merged[0] if merged else None
        query = asker.task.query
        shorter = [prompts.reduce_prompt(query, each, "notes") for each in groups]
        notes = notes_of(await asker.replies(shorter))
    return None


# -- numbers and lists: merged by code ------------------------------------------------------------


async def _count(asker: Asker, text: str, kind: str) -> str | None:
    """Add up the counts of pieces that do not overlap; ask again where a number is missing."""
    pieces, size = _pieces(asker, text, kind, overlap=0)
    asker.report_plan(kind, len(pieces), size)
    asker.check_room(len(pieces))
    query, count = asker.task.query, len(pieces)
    questions = [prompts.map_prompt(query, p, n, count, kind) for n, p in enumerate(pieces, 1)]
    replies = await asker.replies(questions)
    numbers = [merging.number_in(reply) for reply in replies]
    missing = [index for index, number in enumerate(numbers) if number is None]
    if missing:
        again = await asker.replies([questions[index] for index in missing])
        for index, reply in zip(missing, again, strict=True):
            numbers[index] = merging.number_in(reply)
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers):
        return await _merged(asker, notes_of(replies), size)
    total = str(sum(known))
    note = f"Total counted over all {count} parts: {total}"
    return await _merged(asker, [note], size) if asker.task.prologue else total


async def _list(asker: Asker, text: str, kind: str) -> str | None:
    """List every item found once, in the form asked for if that loses nothing."""
    pieces, size = _pieces(asker, text, kind)
    asker.report_plan(kind, len(pieces), size)
    notes = _in_order(await _read(asker, pieces, range(len(pieces)), kind))
    items = merging.union(merging.items_in(note) for note in notes)
    plain = "\n".join(items)
    if not items or (len(items) > MAX_SHOWN_ITEMS and not asker.task.prologue):
        return plain or None
    if len(plain) > size:
        return plain
    formed = await asker.ask(prompts.reduce_prompt(whole_query(asker.task), plain, "list"))
    lost = [item for item in items if item.casefold() not in formed.casefold()]
    return plain if lost and not asker.task.prologue else formed or plain


# -- labels: one per line, counted by code --------------------------------------------------------


async def _label(asker: Asker, text: str, kind: str) -> str | None:
    table, _ = await _labelled(asker, text, kind)
    if table is None:
        return await _find(asker, text, "find")
    return await asker.ask(prompts.reduce_prompt(whole_query(asker.task), table, "table"))


async def _pairs(asker: Asker, text: str, kind: str) -> str | None:
    """Let the model name two groups and make the pairs in code: there may be thousands."""
    table, size = await _labelled(asker, text, kind)
    if table is None:
        return await _find(asker, text, "find")
    reply = await asker.ask(prompts.reduce_prompt(asker.task.query, table, "pairs"))
    groups = merging.groups_in(reply)
    if groups is None:
        return await asker.ask(prompts.reduce_prompt(whole_query(asker.task), table, "table"))
    pairs = [f"({one}, {other})" for one, other in merging.pairs_of(*groups)]
    plain = "\n".join(pairs)
    return await _merged(asker, [plain], size) if asker.task.prologue and pairs else plain or None


async def _labelled(asker: Asker, text: str, kind: str) -> tuple[str | None, int]:
    """Return a table of exact counts; None if the text has no lines to label."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    size = piece_chars(asker, kind, len(text))
    if not lines or max(map(len, lines)) > MAX_LINE_CHARS:
        return None, size
    numbered = [f"{number}| {line}" for number, line in enumerate(lines)]
    pieces = split_lines(numbered, size)
    asker.report_plan(kind, len(pieces), size)
    asker.check_room(len(pieces))
    labels = await _labels(asker, numbered, pieces)
    missing = [[n for n in piece if n not in labels] for piece in pieces]
    left = [numbers for numbers in missing if numbers]
    if left and len(left) < asker.scope.budget.room().calls:
        labels |= await _labels(asker, numbered, left)
    return merging.table_of(asker.task.query, lines, labels, largest_piece(asker)), size


async def _labels(
    asker: Asker, numbered: list[str], pieces: Sequence[Sequence[int]]
) -> dict[int, str]:
    query = asker.task.query
    shown = ["\n".join(numbered[number] for number in piece) for piece in pieces]
    replies = await asker.replies(
        [prompts.map_prompt(query, each, 0, 0, "label") for each in shown]
    )
    found: dict[int, str] = {}
    for piece, reply in zip(pieces, replies, strict=True):
        found |= merging.labels_in(reply, frozenset(piece))
    return found


# -- shared ---------------------------------------------------------------------------------------


def _pieces(
    asker: Asker, text: str, kind: str, overlap: int | None = None
) -> tuple[list[str], int]:
    size = piece_chars(asker, kind, len(text))
    spans = split(text, size) if overlap is None else split(text, size, overlap)
    return [text[start:end] for start, end in spans], size


Method = Callable[[Asker, str, str], Awaitable[str | None]]
METHODS: dict[str, Method] = {
    "find": _find,
    "count": _count,
    "list": _list,
    "label": _label,
    "pairs": _pairs,
    "summary": _summary,
}


PREVIEW_CHARS = 800
KIND_OUTPUT_TOKENS = 512


async def kind_of(asker: Asker) -> str:
    """Return the kind that the model names, else the one that the query suggests."""
    query = asker.task.query
    if query == prompts.FIXED_QUERY:  # the question itself is somewhere in the text
        return "find"
    preview = asker.task.context.text()[:PREVIEW_CHARS]
    reply = await asker.ask(prompts.kind_prompt(query, preview), KIND_OUTPUT_TOKENS)
    return kind_in(reply) or by_words(query)


SMALLEST_PIECE_CHARS = 1_000
IDEAL_CHARS = {"frontier": 200_000, "standard": 60_000, "small": 16_000}
"""Models miss details long before their window is full, weak ones sooner."""

LINE_BY_LINE = ("count", "label", "pairs")
LESS = 4
"""Pieces are this many times smaller if every line has to be read."""

KEPT_CALLS = 4
"""Calls kept back for asking about the kind and for merging."""


def largest_piece(asker: Asker) -> int:
    """Return how many characters of text one prompt may hold."""
    room = prompts.call_chars(asker.info) - len(asker.task.query)
    return max(room, SMALLEST_PIECE_CHARS)


def piece_chars(asker: Asker, kind: str, text_chars: int) -> int:
    """Return the size that suits the kind; larger if there are not enough calls for it."""
    largest = largest_piece(asker)
    ideal = IDEAL_CHARS.get(asker.profile, IDEAL_CHARS["standard"])
    if kind in LINE_BY_LINE:
        ideal //= LESS
    calls = max(1, asker.scope.budget.room().calls - KEPT_CALLS)
    size = max(ideal, math.ceil(text_chars / calls * 1.1))
    return max(SMALLEST_PIECE_CHARS, min(largest, size))
