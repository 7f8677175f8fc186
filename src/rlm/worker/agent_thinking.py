"""Functions for agents that ask models to analyse a text, compare options, or decide.

Each is a dialogue like those in `calls`, in as few rounds as possible: prompts that do not depend
on a reply go out in one batch.
"""

from __future__ import annotations

import json

from . import calls, loose_json
from .arguments import several
from .replies import FailedReply

__all__ = [
    "PIECE_CHARS",
    "analyze_text",
    "as_text",
    "evaluate_options",
    "extract_entities",
    "make_decision",
    "reason_step_by_step",
    "summary_of",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .calls import Dialogue

PIECE_CHARS = 40_000
"""How much text goes into one prompt; it fits even small windows."""

_ASPECTS = ("summary", "main points", "tone", "open questions")
_KINDS = ("people", "organizations", "places", "dates")
_MAX_ATTEMPTS = 16
_MAX_ROUNDS = 5  # A model that does not shorten its input would be asked forever.
_WORST, _BEST = 0.0, 10.0


def summary_of(text: str, focus: str | None) -> Dialogue:
    """Summarize a text; if it is long, summarize the summaries of its parts."""
    task = "Summarize this text in a few sentences."
    if focus is not None:
        task = f"Summarize what this text says about: {focus}"
    notes = yield from _about_each(task, _pieces(text))
    merge = "These summarize consecutive parts of one text. Make one summary of them."
    for _ in range(_MAX_ROUNDS):
        if len(notes) == 1:
            break
        notes = yield from _about_each(merge, _pieces("\n\n".join(notes)))
    return "\n\n".join(notes)


def analyze_text(text: str, aspects: Iterable[str] | None = None) -> Dialogue:
    """Describe each aspect of a text, with concurrent calls."""
    wanted = _listed(aspects, _ASPECTS)
    pieces = _pieces(as_text(text))
    prompts = [
        f"Describe this of the text below, in a few sentences: {aspect}\n\n---\n{piece}"
        for aspect in wanted
        for piece in pieces
    ]
    replies = yield from _all_replies(prompts)
    parts = [replies[i : i + len(pieces)] for i in range(0, len(replies), len(pieces))]
    return {aspect: "\n".join(said) for aspect, said in zip(wanted, parts)}  # noqa: B905 (3.9)


def extract_entities(text: str, kinds: Iterable[str] | None = None) -> Dialogue:
    """Return the names of each kind in a text, in order of appearance, each once."""
    wanted = _listed(kinds, _KINDS)
    task = (
        "List what the text below names, as one JSON object whose keys are exactly "
        f"{json.dumps(wanted, ensure_ascii=False)} and whose values are lists of strings, spelled "
        "as in the text. Reply with the JSON only."
    )
    replies = yield from _about_each(task, _pieces(as_text(text)))
    found: dict[str, dict[str, None]] = {kind: {} for kind in wanted}
    for reply in replies:
        listed = _json_dict(reply)
        for kind in wanted:
            names = listed.get(kind)
            if isinstance(names, list):
                found[kind].update((str(name), None) for name in names)
    return {kind: list(names) for kind, names in found.items()}


def reason_step_by_step(problem: str, attempts: int = 3) -> Dialogue:
    """Ask for several independent solutions, then for a conclusion from all of them."""
    count = max(1, min(int(attempts), _MAX_ATTEMPTS))
    task = "Solve this step by step. Number the steps; the last line begins with `Conclusion:`."
    tries = yield from _all_replies([f"{task}\n\n{problem}"] * count)
    if count == 1:
        return tries[0]
    shown = "\n\n".join(f"Solution {n}:\n{each}" for n, each in enumerate(tries, 1))
    task = (
        "Here are independent solutions of one problem. Compare their steps, say where they "
        "differ and which is right, and give one solution. The last line begins with `Conclusion:`."
    )
    return (yield from calls.llm_query(f"{task}\n\nProblem: {problem}\n\n{shown}"))


def evaluate_options(options: Iterable[Any], criteria: Any = None) -> Dialogue:
    """Judge each option separately, all at once; return the best first."""
    choices = [as_text(option) for option in several(options)]
    if not choices:
        raise ValueError("no options to judge")
    by = f" by these criteria: {_criteria(criteria)}" if criteria else ""
    others = json.dumps(choices, ensure_ascii=False)[:PIECE_CHARS]
    prompts = [
        f"Judge one option{by}. All options, for comparison: {others}\n\nThe option: {choice}\n\n"
        'Reply with JSON only: {"score": 0 to 10, "reason": "one sentence"}'
        for choice in choices
    ]
    replies = yield from _all_replies(prompts)
    judged = [_judged(c, r) for c, r in zip(choices, replies)]  # noqa: B905 (Python 3.9)
    return sorted(judged, key=lambda each: -each["score"])


def make_decision(
    question: str, options: Iterable[Any] | None = None, criteria: Any = None
) -> Dialogue:
    """Judge the options of a question; if none are given, ask for some first."""
    if options is None:
        task = "List the sensible options in this matter as a JSON list of short strings."
        reply = yield from calls.llm_query_json(f"{task} Reply with the JSON only.\n\n{question}")
        options = reply if isinstance(reply, list) and reply else [reply]
    about = f"{question} ({_criteria(criteria)})" if criteria else str(question)
    evaluations = yield from evaluate_options(options, f"how well it answers: {about}")
    best = evaluations[0]
    return {"decision": best["option"], "reason": best["reason"], "evaluations": evaluations}


def _about_each(task: str, pieces: list[str]) -> Dialogue:
    return (yield from _all_replies([f"{task}\n\n---\n{piece}" for piece in pieces]))


def _all_replies(prompts: list[str]) -> Dialogue:
    """Send a batch in which no call may fail: half a summary would look like a whole one."""
    replies = yield from calls.llm_query_batched(prompts)
    for reply in replies:
        if isinstance(reply, FailedReply):
            raise reply.as_error()
    return replies


def _pieces(text: str) -> list[str]:
    """Split the text into parts that fit a prompt, at line ends if possible."""
    pieces = []
    while len(text) > PIECE_CHARS:
        cut = text.rfind("\n", PIECE_CHARS // 2, PIECE_CHARS) + 1 or PIECE_CHARS
        pieces.append(text[:cut])
        text = text[cut:]
    return [*pieces, text]


def as_text(value: Any) -> str:
    """Return a value as text, for models and searches."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, indent=0, default=str)


def _listed(given: Iterable[str] | str | None, usual: tuple[str, ...]) -> list[str]:
    if given is None:
        return list(usual)
    return [given] if isinstance(given, str) else [str(each) for each in given]


def _criteria(given: Any) -> str:
    return given if isinstance(given, str) else as_text(given)


def _json_dict(reply: str) -> dict[str, Any]:
    try:
        value = loose_json.parse(reply)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _judged(option: str, reply: str) -> dict[str, Any]:
    told = _json_dict(reply)
    score = told.get("score")
    is_number = isinstance(score, (int, float)) and score == score  # NaN is not in range.
    held = min(max(float(score or 0), _WORST), _BEST) if is_number else _WORST
    return {"option": option, "score": held, "reason": str(told.get("reason", reply))}
