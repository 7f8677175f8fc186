"""Map/reduce for tiny models: they read small, relevant pieces and copy a line from each.

Invented text is recognised because no piece contains it.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence

from rlm import prompts
from rlm.engine.mapreduce.asking import Asker, whole_query
from rlm.engine.mapreduce.pieces import groups_of, notes_of, split

__all__ = ["grounded", "read_by_tiny", "relevant", "relevant_numbers", "whole_line"]

SMALLEST_PIECE_CHARS = 1_000
TINY_PIECE_CHARS = 1_500
TINY_OUTPUT_TOKENS = 160
LINE_CHARS = 400
LITTLE_CHARS = 3
TINY_AT_ONCE = 4
"""Small models are often slow, and a call should not use up its time limit waiting."""

RELEVANT_SHARE = 2 / 3
"""The share of the best score that another piece needs in order to be read."""

LINES = re.compile(r"\n|(?<=[.!?])\s+")
WORDS = re.compile(r"\w+(?:[-.:/@_]\w+)*")


async def read_by_tiny(asker: Asker) -> str | None:
    """Return the answer, or None if no piece has one."""
    task, text = asker.task, asker.task.context.text()
    room_chars = prompts.call_chars(asker.info) - len(task.query)
    size = max(min(TINY_PIECE_CHARS, room_chars), SMALLEST_PIECE_CHARS)
    all_pieces = [text[start:end] for start, end in split(text, size)]
    pieces = relevant(task.query, all_pieces)
    asker.report_plan("find", len(all_pieces), size, unread=len(all_pieces) - len(pieces))
    asker.check_room(len(pieces))
    questions = [prompts.tiny_map_prompt(task.query, piece) for piece in pieces]
    replies = await asker.replies(questions, TINY_OUTPUT_TOKENS, TINY_AT_ONCE)
    pairs = zip(replies, pieces, strict=True)
    lines = [(whole_line(note, piece, task.query), piece) for note, piece in pairs]
    taken = [note for note, piece in lines if grounded(note, piece, task.query)]
    notes = list(dict.fromkeys(notes_of(taken)))  # pieces overlap, so their notes may be equal
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


def relevant(query: str, pieces: Sequence[str]) -> list[str]:
    """Return the pieces with the rarest words and word pairs of the query, the best first.

    If no word distinguishes the pieces, return all of them.
    """
    return [pieces[number] for number in relevant_numbers(query, pieces)]


def relevant_numbers(query: str, pieces: Sequence[str]) -> list[int]:
    """Return the numbers of the relevant pieces, the best first."""
    wanted = _terms(query)
    held = [wanted & _terms(piece) for piece in pieces]
    pieces_with = Counter(term for terms in held for term in terms)
    scores = [
        math.fsum(math.log(len(pieces) / pieces_with[term]) for term in terms) for terms in held
    ]
    best = max(scores, default=0.0)
    order = sorted(range(len(pieces)), key=lambda number: -scores[number])
    return [number for number in order if scores[number] >= best * RELEVANT_SHARE]


def whole_line(note: str, piece: str, query: str) -> str:
    """Return the note, or the best line of the piece if the note only repeats the query."""
    if not note or _added(note, query):
        return note
    lines = relevant(query, [line for line in LINES.split(piece) if line.strip()])
    return lines[0].strip()[:LINE_CHARS] if lines else note


def grounded(note: str, piece: str, query: str) -> bool:
    """Whether a note comes from the piece, which must hold most of what it adds to the query.

    A number that is in neither is invented, whatever else the note says.
    """
    added = _added(note, query)
    foreign = added - set(_words(piece))
    if any(character.isdigit() for word in foreign for character in word):
        return False
    return 2 * len(foreign) <= len(added) and bool(added)


def _added(note: str, query: str) -> set[str]:
    """Return the words that a note adds to the query, without short common ones."""
    new = set(_words(note)) - set(_words(query))
    return {word for word in new if len(word) > LITTLE_CHARS or not word.isalpha()}


def _words(text: str) -> list[str]:
    return [word.casefold() for word in WORDS.findall(text)]


def _terms(text: str) -> set[str]:
    """Return words, parts of compound words, and pairs of neighbours: names are often two words."""
    words = _words(text)
    parts = (part for word in words for part in re.split(r"\W|_", word))
    return {*words, *parts, *(f"{one} {two}" for one, two in itertools.pairwise(words))}
