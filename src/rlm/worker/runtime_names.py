"""The functions of rlm-runtime's cells, as code that a session runs before its first cell.

The worker does not import this: `rlm_runtime` passes it to the engine as `setup_code`, so that the
names exist in every environment, but only in its runs.
"""

from __future__ import annotations

__all__ = ["CELL_NAMES"]

CELL_NAMES = r'''
if isinstance(context, (list, tuple)):
    ctx._cached_text = P = "\n\n---\n\n".join(map(str, context))


class MaxSubcallsExceeded(CallFailed):
    """No sub-call is left."""


class MaxTokensExceeded(CallFailed):
    """Too few tokens are left for a sub-call."""


CallFailed.by_limit = {"calls": MaxSubcallsExceeded, "tokens": MaxTokensExceeded}


def _snippets(chunks, chunk_size=None, overlap=0):
    if isinstance(chunks, type(ctx)):
        chunks = chunks.chunk(chunk_size or 2000, overlap)
    elif isinstance(chunks, str):
        chunks = type(ctx)(chunks).chunk(chunk_size, overlap) if chunk_size else [chunks]
    return [str(each[2] if isinstance(each, tuple) else each) for each in chunks]


def _asked(question, text):
    return f"{text}\n\n---\nUse only the text above. {question}"


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
        asked = [_asked(question, each) for each in asked]
    once = list(dict.fromkeys(asked))
    replies = llm_query_batched(once, model=model, max_tokens=max_tokens) if once else []
    replies = dict(zip(once, replies))
    return [replies[each] for each in asked]


def ask(question, text, *, model=None, max_tokens=None):
    """The reply to a question about one text."""
    return llm_query(_asked(question, text), model=model, max_tokens=max_tokens)


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
