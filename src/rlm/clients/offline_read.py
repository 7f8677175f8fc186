"""How the offline model reads a prompt: which part asks, which part is text, what answers it."""

import re

from rlm.clients.offline_query import only_extracts, plan_for
from rlm.clients.offline_search import search

__all__ = ["NOT_FOUND", "answer_prompt", "extract", "query_of", "question_in"]

NOT_FOUND = "NOT FOUND"
EXTRACT_ONLY = "This offline stand-in can only quote, not count or sum up. The closest passage: "
LONGEST_QUESTION_CHARS = 400

QUERY = re.compile(r"^Query:\s*(.+?)\s*(?=\n\s*Context:|\Z)", re.MULTILINE | re.DOTALL)
QUESTION = re.compile(r"^[ \t]*(?:question|query)[ \t]*:[ \t]*", re.IGNORECASE | re.MULTILINE)
BODY = re.compile(
    r"(?:^|(?<=\s))(?P<kind>passage|text|chunk|context|document|excerpt|content"
    r"|notes|(?:partial )?answers|findings|replies)[ \t]*\d*[ \t]*:\s*",
    re.IGNORECASE | re.MULTILINE,
)
NOTES = ("notes", "answers", "partial answers", "findings", "replies")
MISSING = re.compile(r"\W*(?:\w+ ?\d*[:.)\]] *)?not found\W*", re.IGNORECASE)
NUMBERING = re.compile(r"^\s*(?:[-*•]|\[?\d+[\].):]|(?:answer|part|note) ?\d*:)\s*", re.IGNORECASE)


def query_of(text: str) -> str | None:
    """What follows `Query:` in a run's first message, up to the context's description."""
    found = QUERY.search(text)
    return question_in(found[1]) if found else None


def question_in(text: str) -> str:
    """The part of a text that asks: all of it if short, else its last line with a question mark."""
    if len(text) <= LONGEST_QUESTION_CHARS and "\n\n" not in text:
        return text.strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    asking = [line for line in lines if line.endswith(("?", "？"))]
    return (asking or lines[:1] or [""])[-1]


def answer_prompt(prompt: str) -> str:
    """The answer to any prompt that holds a question and a text: a quotation, or NOT FOUND."""
    question, body, is_notes = _parts(prompt)
    lines = body.splitlines()
    kept = [line for line in lines if not MISSING.fullmatch(line)]
    merging = is_notes or len(kept) < len(lines)
    if merging:
        kept = [NUMBERING.sub("", line).strip() for line in kept if line.strip()]
    answer = extract(question, "\n".join(kept))
    return answer or (kept[0] if merging and kept else NOT_FOUND)


def extract(question: str, text: str) -> str | None:
    """The sentence of a text that answers a question best, if any may be taken for an answer."""
    hits = search(plan_for(question), text)
    if not hits or not hits[0]["sure"]:
        return None
    return (EXTRACT_ONLY if only_extracts(question) else "") + hits[0]["sentence"]


def _parts(prompt: str) -> tuple[str, str, bool]:
    """Question, text, and whether the text is a list of partial answers."""
    asked = QUESTION.search(prompt)
    marked = BODY.search(prompt, asked.end() if asked else 0)
    if asked and marked:
        head = prompt[asked.end() : marked.start()].strip()
        return head.split("\n\n")[0], prompt[marked.end() :], marked["kind"].lower() in NOTES
    if asked:
        before, after = prompt[: asked.start()], prompt[asked.end() :]
        question, _, rest = after.partition("\n")
        return question, f"{before}\n{rest}", False
    if marked and prompt[: marked.start()].strip():
        question = question_in(prompt[: marked.start()] + "\n\n")
        return question, prompt[marked.end() :], marked["kind"].lower() in NOTES
    return _unmarked(prompt)


def _unmarked(prompt: str) -> tuple[str, str, bool]:
    """Without marks, the last line that ends in a question mark asks, else the first line."""
    lines = prompt.strip().splitlines() or [""]
    asking = [number for number, line in enumerate(lines) if line.rstrip().endswith("?")]
    at = asking[-1] if asking else 0
    return lines[at], "\n".join(lines[:at] + lines[at + 1 :]), False
