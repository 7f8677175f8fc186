"""What programs for rlm-runtime use besides its classes: limit errors, and names in their cells."""

from collections.abc import Mapping
from typing import Any

from rlm.errors import LimitExceededError
from rlm.results import RunResult
from rlm.wiring.registry import setup_code_of

__all__ = [
    "CELL_NAMES",
    "MaxRecursionExceeded",
    "MaxStepsExceeded",
    "MaxSubcallsExceeded",
    "MaxTokensExceeded",
    "PolicyError",
    "error_of",
    "with_cell_names",
]


class PolicyError(LimitExceededError, RuntimeError):
    """A run ended at a limit: `partial_answer` is the best answer available, `trace` its trace."""

    trace: Any = None


class MaxStepsExceeded(PolicyError):
    """`max_steps` is used up."""


class MaxSubcallsExceeded(PolicyError):
    """`max_subcalls` is used up."""


class MaxRecursionExceeded(PolicyError):
    """A child run would be deeper than `max_recursion_depth`."""


class MaxTokensExceeded(PolicyError):
    """The next request could use more than is left of `max_total_tokens`."""


_ERRORS = {
    "steps": MaxStepsExceeded,
    "calls": MaxSubcallsExceeded,
    "depth": MaxRecursionExceeded,
    "tokens": MaxTokensExceeded,
}


def error_of(result: RunResult, trace: Any) -> PolicyError | None:
    """Return the error of a run that ended at a limit of its policy, or without any answer."""
    kind = _ERRORS.get(result.limit or "", PolicyError)
    if kind is PolicyError and result.answer is not None:
        return None
    best = None if result.answer is None else str(result.answer)
    why = result.detail or result.stop_reason
    error = kind(why if best is not None else f"there is no answer: {why}", partial_answer=best)
    error.trace = trace
    return error


def with_cell_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `RLM` with code that defines the names, before any code of theirs."""
    read = setup_code_of(options.get("setup_code"), options.get("environment_kwargs"))
    return {**options, **read, "setup_code": f"{CELL_NAMES}\n{read['setup_code'] or ''}"}


CELL_NAMES = r'''
if isinstance(context, (list, tuple)):
    ctx._cached_text = P = "\n\n---\n\n".join(map(str, context))


def _snippets(chunks, chunk_size=None, overlap=0):
    if isinstance(chunks, type(ctx)):
        chunks = chunks.chunk(chunk_size or 2000, overlap)
    elif isinstance(chunks, str):
        chunks = type(ctx)(chunks).chunk(chunk_size, overlap) if chunk_size else [chunks]
    return [str(each[2] if isinstance(each, tuple) else each) for each in chunks]


def llm_query_batch(
    chunks, *more, model=None, max_tokens=None, chunk_size=None, overlap=0, question=None,
    parallel=None,
):
    """Replies to many texts, or to one question about each; equal texts are sent once."""
    if more and isinstance(chunks, str) and not isinstance(more[0], str):
        chunks, more = more[0], (chunks, *more[1:])
    question = question or next((each for each in more if isinstance(each, str)), None)
    asked = _snippets(chunks, chunk_size, overlap)
    if question:
        asked = [f"Question: {question}\nSnippet:\n{each}" for each in asked]
    once = list(dict.fromkeys(asked))
    replies = dict(zip(once, llm_query_batched(once, model=model))) if once else {}
    return [replies[each] for each in asked]


def ask(question, text, *, model=None, max_tokens=None):
    """The reply to a question about one text."""
    return llm_query(f"Question: {question}\nSnippet:\n{text}", model=model)


def ask_chunks(question, chunks, **options):
    """The replies to a question about each chunk, in order."""
    return llm_query_batch(chunks, question=question, **options)


def pick_first_answer(answers):
    """The first reply that holds a short answer, without its label, or None."""
    for each in answers if isinstance(answers, (list, tuple)) else ():
        text = each.strip() if isinstance(each, str) and not isinstance(each, FailedReply) else ""
        label, colon, rest = text.partition(":")
        if colon and label.lower() in ("answer", "final", "result"):
            text = rest.strip()
        unusable = "\n" in text or "```" in text or "<think>" in text.lower() or len(text) > 80
        if text and text != "NO_ANSWER" and not unusable:
            return text
    return None


def ask_chunks_first(question, chunks, *, chunk_size=None, overlap=0, **options):
    """The first usable reply to a question about the chunks; those after it are not asked."""
    for each in dict.fromkeys(_snippets(chunks, chunk_size, overlap)):
        found = pick_first_answer([ask(question, each, **options)])
        if found is not None:
            return found
    return None


def extract_after(marker, *, max_len=128):
    """The word after a marker in the text, without punctuation, or None."""
    start = ctx._text.find(marker)
    words = ctx._text[start + len(marker) :][:max_len].split() if start >= 0 else []
    return words[0].strip(" \t\r\n.,;:\"'()[]{}") or None if words else None


ask_chunk, ask_chunked = ask, ask_chunks
'''
"""Python code that defines the functions of rlm-runtime's cells, in any session."""
