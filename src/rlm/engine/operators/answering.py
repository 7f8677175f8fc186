"""Ask the same of every item (`answer_each` in words, `extract` as JSON), and `merge` texts."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from rlm.engine.concurrency import concurrently
from rlm.engine.operators.operation import Operation
from rlm.engine.operators.reading import json_in, lines_in, values_in
from rlm.prompts import operators as words
from rlm.prompts.observation import cut

__all__ = ["NONE", "answer_each", "extract", "merge"]

NONE = "none"
ANSWERS_PER_PROMPT = 0.3
RECORDS_PER_PROMPT = 0.2
"""The share of the items that a prompt for labels may hold: these replies are longer."""

ANSWER_TOKENS = 60
RECORD_TOKENS = 120
CHECKS_AT_ONCE = 4
MAX_PIECES = 200
"""The most pieces of one item that is too long for a prompt."""
NOTE_MARGIN = 100

Check = Callable[[Any], Awaitable[Any]]
"""Returns a value in the wanted shape; ValueError says what is wrong with it."""


async def answer_each(
    operation: Operation, texts: Sequence[str], question: str
) -> dict[int, str | None]:
    """Return the answer that each text gives, None where it gives none.

    A text that is too long for one prompt is read in pieces, whose answers are merged.
    """
    packing = operation.packing(per_item=ANSWERS_PER_PROMPT, line_tokens=ANSWER_TOKENS)
    pieces: list[str] = []
    owners: list[int] = []
    for number, text in enumerate(texts):
        parts = _pieces(text, packing.item_chars)
        operation.figures.shortened += len(parts) > MAX_PIECES
        parts = parts[:MAX_PIECES]
        pieces += parts
        owners += [number] * len(parts)

    def read(reply: str, pack: list[int]) -> dict[int, str]:
        if len(pack) == 1:
            return {0: _alone(reply)} if reply.strip() else {}
        found = dict(reversed(lines_in(reply, len(pack), whole=True)))
        return {number - 1: text for number, text in found.items() if text}

    found = await operation.each(
        range(len(pieces)),
        pieces,
        packing,
        lambda pack, shown: words.answer_prompt(shown, question),
        read,
    )
    by_owner: dict[int, list[str]] = {}
    incomplete = {owners[piece] for piece in range(len(pieces)) if piece not in found}
    for piece, answer in sorted(found.items()):
        by_owner.setdefault(owners[piece], [])
        if not _is_none(answer):
            by_owner[owners[piece]].append(answer)
    answers: dict[int, str | None] = {}
    for number, given in by_owner.items():
        result = given[0] if len(given) == 1 else await _merged(operation, given, question)
        if result is None and (given or number in incomplete):
            continue  # Unread or unmerged, which is not the same as no answer.
        answers[number] = result
    if partly := len(incomplete & answers.keys()):
        operation.figures.notes.append(f"{partly:,} only partly read")
    return answers


async def _merged(operation: Operation, texts: list[str], question: str) -> str | None:
    return (await merge(operation, texts, question))[0] if texts else None


def _pieces(text: str, size: int) -> list[str]:
    """Cut a text at line ends where there are any near the size."""
    pieces: list[str] = []
    start = 0
    while len(text) - start > size:
        end = text.rfind("\n", start + size // 2, start + size) + 1 or start + size
        pieces.append(text[start:end])
        start = end
    return [*pieces, text[start:]]


def _alone(reply: str) -> str:
    """Return the reply about one item, without the number that a model may still add."""
    lines = lines_in(reply, 1, whole=True)
    return lines[0][1] if lines and reply.strip().startswith("1") else reply.strip()


def _is_none(answer: str) -> bool:
    return answer.strip(" `*_.\"'").casefold() in (NONE, "n/a", "")


async def extract(
    operation: Operation, texts: Sequence[str], shape: str, check: Check
) -> dict[int, Any]:
    """Return the checked JSON value of each text."""
    packing = operation.packing(per_item=RECORDS_PER_PROMPT, line_tokens=RECORD_TOKENS)
    operation.figures.shortened = sum(len(text) > packing.item_chars for text in texts)
    found = await operation.each(
        range(len(texts)),
        texts,
        packing,
        lambda pack, shown: words.extract_prompt(shown, shape),
        _records,
    )
    checked, problems = await _checked(found, check)
    if problems and operation.refusal is None:
        order = sorted(problems)
        operation.figures.asked_again += len(order)
        again = await operation.each(
            order,
            texts,
            packing,
            lambda pack, shown: words.extract_prompt(
                shown, f"{shape}\n\nAvoid this mistake: {problems[pack[0]]}"
            ),
            _records,
        )
        repaired, _ = await _checked(again, check)
        checked |= repaired
    return checked


async def _checked(found: dict[int, Any], check: Check) -> tuple[dict[int, Any], dict[int, str]]:
    values: dict[int, Any] = {}
    problems: dict[int, str] = {}
    given = list(found.items())

    async def look(index: int) -> None:
        number, value = given[index]
        try:
            values[number] = await check(value)
        except ValueError as error:
            problems[number] = str(error)

    await concurrently(len(given), look, CHECKS_AT_ONCE)
    return values, problems


def _records(reply: str, pack: list[int]) -> dict[int, Any]:
    """Read a JSON value for each item: on numbered lines, or all in one array."""
    if len(pack) == 1:
        return dict(enumerate(_json_of(reply) or _json_of(_alone(reply)) or ()))
    lines = lines_in(reply, len(pack), whole=True)
    numbered = "\n".join(f"{number}: {' '.join(text.split())}" for number, text in lines)
    found = {n - 1: value for n, (value,) in values_in(numbered, len(pack), _json_of).items()}
    if found:
        return found
    (whole,) = _json_of(reply) or (None,)
    if isinstance(whole, list) and len(whole) == len(pack):
        return dict(enumerate(whole))
    return {}


def _json_of(text: str) -> tuple[Any] | None:
    """Return the JSON value in a text, in a tuple, since it may be null; None if it has none."""
    try:
        return (json_in(text),)
    except ValueError:
        return None


async def merge(
    operation: Operation, texts: Sequence[str], question: str
) -> tuple[str | None, list[int]]:
    """Return one answer from all texts, and the numbers of those that could not be used.

    Texts that do not fit into one prompt become notes, in rounds, until the notes fit. If a limit
    allows no further round, the notes are the answer, because they are paid for.
    """
    size = operation.packing().item_chars
    most = size // 2 - NOTE_MARGIN  # So that a prompt holds two notes, and rounds end.
    parts = [Part((n,), piece) for n, text in enumerate(texts) for piece in _pieces(text, size)]
    lost: set[int] = set()
    notes: list[Part] = []
    while parts:
        groups = _groups(parts, size)
        is_last = len(groups) == 1
        replies = await operation.ask_all(
            [
                words.merge_prompt([part.text for part in group], question, is_last=is_last)
                for group in groups
            ]
        )
        if is_last and replies[0]:
            return replies[0], sorted(lost)
        answered = []
        for group, reply in zip(groups, replies, strict=True):
            numbers = tuple(dict.fromkeys(n for part in group for n in part.numbers))
            if reply:
                operation.figures.shortened += len(reply) > most
                answered.append(Part(numbers, cut(reply, most - NOTE_MARGIN)))
            elif notes:
                answered += group
            elif reply is None:
                lost.update(numbers)
        if notes and len(answered) >= len(parts):
            why = operation.refusal or operation.error
            said = "these are notes, not yet merged into one answer"
            operation.figures.notes.append(said if why is None else f"{said}: {why}")
            return "\n\n".join(part.text for part in answered), sorted(lost)
        parts = notes = answered
    return None, sorted(lost)


class Part(NamedTuple):
    """A piece of a text, or notes about several texts, with their numbers."""

    numbers: tuple[int, ...]
    text: str


def _groups(parts: Sequence[Part], size: int) -> list[list[Part]]:
    groups: list[list[Part]] = []
    used = 0
    for part in parts:
        if not groups or used + len(part.text) > size:
            groups.append([])
            used = 0
        groups[-1].append(part)
        used += len(part.text) + 8
    return groups
