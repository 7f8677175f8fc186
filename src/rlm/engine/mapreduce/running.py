"""One map/reduce, from the question to the answer: a function for each kind of answer."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from rlm import prompts
from rlm.calls.calls import Calls
from rlm.calls.scope import Scope
from rlm.config import RunConfig
from rlm.engine.mapreduce import merging
from rlm.engine.mapreduce.asking import Asker, whole_query
from rlm.engine.mapreduce.kinds import kind_of
from rlm.engine.mapreduce.notes import groups_of, notes_of
from rlm.engine.mapreduce.planning import largest_piece, piece_chars
from rlm.engine.mapreduce.splitting import split, split_lines
from rlm.engine.mapreduce.tiny import read_by_tiny, telling_numbers
from rlm.engine.run import Task

__all__ = ["map_reduce"]

MOST_LINE_CHARS = 2_000
MOST_SHOWN_ITEMS = 300
"""A longer list is not sent through a model once more to be given a form: it would lose some."""


async def map_reduce(calls: Calls, task: Task, scope: Scope, config: RunConfig) -> str | None:
    """The answer, or None if no part of the context had anything to say."""
    asker = Asker(calls, task, scope, config)
    if asker.profile == "tiny":
        return await read_by_tiny(asker)
    text = task.context.text()
    asker.check_room(len(split(text, largest_piece(asker))))
    kind = await kind_of(asker)
    return await MANNERS[kind](asker, text, kind)


# -- facts and summaries: notes of the pieces, merged by the model --------------------------------


async def _find(asker: Asker, text: str, kind: str) -> str | None:
    """The pieces with the question's telling words first, the others only if those leave it open.

    Then all that was noted is put together: one fact may lead to another one elsewhere.
    """
    pieces, size = _pieces(asker, text, kind)
    first = _first_to_read(asker.task.query, pieces)
    asker.tell_plan(kind, len(pieces), size, unread=len(pieces) - len(first))
    replies = await _read(asker, pieces, first)
    if len(first) < len(pieces):
        found = await _merged(asker, _in_order(replies), size, "some")
        if found is not None:
            return found
        asker.tell_plan(kind, len(pieces), size)
        rest = [number for number in range(len(pieces)) if number not in replies]
        replies |= await _read(asker, pieces, rest)
    return await _merged(asker, _in_order(replies), size)


def _first_to_read(query: str, pieces: Sequence[str]) -> list[int]:
    """All of them, if the words of the question tell nothing."""
    first = sorted(telling_numbers(query, pieces))
    if 2 * len(first) > len(pieces) or query == prompts.FIXED_QUERY:
        return list(range(len(pieces)))
    return first


async def _summary(asker: Asker, text: str, kind: str) -> str | None:
    pieces, size = _pieces(asker, text, kind)
    asker.tell_plan(kind, len(pieces), size)
    replies = await _read(asker, pieces, range(len(pieces)), kind)
    return await _merged(asker, _in_order(replies), size)


async def _read(
    asker: Asker, pieces: Sequence[str], numbers: Sequence[int], kind: str = ""
) -> dict[int, str]:
    """What was said of each of these pieces."""
    query, count = asker.task.query, len(pieces)
    asker.check_room(len(numbers))
    replies = await asker.replies(
        [prompts.map_prompt(query, pieces[n], n + 1, count, kind) for n in numbers]
    )
    return dict(zip(numbers, replies, strict=True))


def _in_order(replies: Mapping[int, str]) -> list[str]:
    return notes_of([replies[number] for number in sorted(replies)])


async def _merged(asker: Asker, notes: list[str], size: int, kind: str = "") -> str | None:
    """The answer, once one prompt holds all notes; until then they are made shorter, in rounds."""
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
    """The sum over pieces that do not overlap; a piece without a number is asked about again."""
    pieces, size = _pieces(asker, text, kind, overlap=0)
    asker.tell_plan(kind, len(pieces), size)
    asker.check_room(len(pieces))
    query, count = asker.task.query, len(pieces)
    questions = [prompts.map_prompt(query, p, n, count, kind) for n, p in enumerate(pieces, 1)]
    replies = await asker.replies(questions)
    numbers = [merging.number_in(reply) for reply in replies]
    missing = [place for place, number in enumerate(numbers) if number is None]
    if missing:
        again = await asker.replies([questions[place] for place in missing])
        for place, reply in zip(missing, again, strict=True):
            numbers[place] = merging.number_in(reply)
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers):
        return await _merged(asker, notes_of(replies), size)
    total = str(sum(known))
    note = f"Counted in all {count} parts and added up: {total}"
    return await _merged(asker, [note], size) if asker.task.prologue else total


async def _list(asker: Asker, text: str, kind: str) -> str | None:
    """Everything that was found, once; in the form that is wanted, if that loses nothing."""
    pieces, size = _pieces(asker, text, kind)
    asker.tell_plan(kind, len(pieces), size)
    notes = _in_order(await _read(asker, pieces, range(len(pieces)), kind))
    items = merging.union(merging.items_in(note) for note in notes)
    plain = "\n".join(items)
    if not items or (len(items) > MOST_SHOWN_ITEMS and not asker.task.prologue):
        return plain or None
    if len(plain) > size:
        return plain
    formed = await asker.ask(prompts.reduce_prompt(whole_query(asker.task), plain, "list"))
    lost = [item for item in items if item.casefold() not in formed.casefold()]
    return plain if lost and not asker.task.prologue else formed or plain


# -- labels: every line gets one, code counts -----------------------------------------------------


async def _label(asker: Asker, text: str, kind: str) -> str | None:
    table, _ = await _labelled(asker, text, kind)
    if table is None:
        return await _find(asker, text, "find")
    return await asker.ask(prompts.reduce_prompt(whole_query(asker.task), table, "table"))


async def _pairs(asker: Asker, text: str, kind: str) -> str | None:
    """The model names two groups, code makes the pairs: there may be thousands."""
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
    """A table of exact counts; None if the text has no lines that could be labelled."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    size = piece_chars(asker, kind, len(text))
    if not lines or max(map(len, lines)) > MOST_LINE_CHARS:
        return None, size
    numbered = [f"{number}| {line}" for number, line in enumerate(lines)]
    pieces = split_lines(numbered, size)
    asker.tell_plan(kind, len(pieces), size)
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


Manner = Callable[[Asker, str, str], Awaitable[str | None]]
MANNERS: dict[str, Manner] = {
    "find": _find,
    "count": _count,
    "list": _list,
    "label": _label,
    "pairs": _pairs,
    "summary": _summary,
}
