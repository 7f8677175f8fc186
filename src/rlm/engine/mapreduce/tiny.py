"""What a tiny model is asked: small pieces, only the telling ones, and a line to copy of each.

What it makes up is recognised, as it is in no piece.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence

from rlm import prompts
from rlm.engine.mapreduce.asking import Asker, whole_query
from rlm.engine.mapreduce.notes import groups_of, notes_of
from rlm.engine.mapreduce.splitting import split

__all__ = ["grounded", "read_by_tiny", "telling", "telling_numbers", "whole_line"]

SMALLEST_PIECE_CHARS = 1_000
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


async def read_by_tiny(asker: Asker) -> str | None:
    """The answer, or None if no piece had one."""
    task, text = asker.task, asker.task.context.text()
    room_chars = prompts.call_chars(asker.info) - len(task.query)
    size = max(min(TINY_PIECE_CHARS, room_chars), SMALLEST_PIECE_CHARS)
    all_pieces = [text[start:end] for start, end in split(text, size)]
    pieces = telling(task.query, all_pieces)
    asker.tell_plan("find", len(all_pieces), size, unread=len(all_pieces) - len(pieces))
    asker.check_room(len(pieces))
    questions = [prompts.tiny_map_prompt(task.query, piece) for piece in pieces]
    replies = await asker.replies(questions, TINY_OUTPUT_TOKENS, TINY_AT_ONCE)
    pairs = zip(replies, pieces, strict=True)
    lines = [(whole_line(note, piece, task.query), piece) for note, piece in pairs]
    taken = [note for note, piece in lines if grounded(note, piece, task.query)]
    notes = list(dict.fromkeys(notes_of(taken)))  # pieces overlap, and so do their notes
    while len(notes) > 1 or (notes and task.prologue):
        groups = groups_of(notes, size)
        questions = [prompts.tiny_reduce_prompt(whole_query(task), group) for group in groups]
        cap = TINY_OUTPUT_TOKENS if not task.prologue else None
        merged = await asker.replies(questions, cap, TINY_AT_ONCE)
        if len(groups) == 1:
            kept = task.prologue or grounded(merged[0], groups[0], task.query)
            return (merged[0] if kept else "") or notes[0]
        notes = notes_of(merged) or notes[:1]
    return notes[0] if notes else None


def telling(query: str, pieces: Sequence[str]) -> list[str]:
    """The pieces that hold the query's rarest words and pairs of words, the best ones first.

    All of them if the words tell nothing, because every piece has them, or none.
    """
    return [pieces[number] for number in telling_numbers(query, pieces)]


def telling_numbers(query: str, pieces: Sequence[str]) -> list[int]:
    """Which ones they are."""
    wanted = _terms(query)
    held = [wanted & _terms(piece) for piece in pieces]
    pieces_with = Counter(term for terms in held for term in terms)
    scores = [
        math.fsum(math.log(len(pieces) / pieces_with[term]) for term in terms) for terms in held
    ]
    best = max(scores, default=0.0)
    order = sorted(range(len(pieces)), key=lambda number: -scores[number])
    return [number for number in order if scores[number] >= best * TELLING]


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
