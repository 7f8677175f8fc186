"""What kind of answer a question wants: that decides how the text is cut and put together again."""

import re

from rlm import prompts
from rlm.engine.mapreduce.asking import Asker

__all__ = ["KINDS", "by_words", "kind_in", "kind_of"]

KINDS = ("find", "count", "list", "label", "pairs", "summary")
PREVIEW_CHARS = 800
KIND_OUTPUT_TOKENS = 512

_SIGNS = (
    ("pairs", r"\bpairs?\b"),
    ("label", r"\b(labels?|labell?ed|classif\w+|categor\w+)\b"),
    ("count", r"\b(how (many|often)|count|number of)\b"),
    ("summary", r"\b(summar\w+|overview|main (points|ideas)|gist)\b"),
    ("list", r"\b(list|enumerate|(name|find|give|which|what) (me )?(all|every|each))\b"),
)
_WORD = re.compile(rf"\b({'|'.join(KINDS)})\b", re.IGNORECASE)


async def kind_of(asker: Asker) -> str:
    """As the model says; where it says nothing of use, as the words of the question suggest."""
    query = asker.task.query
    if query == prompts.FIXED_QUERY:  # the question itself is somewhere in the text
        return "find"
    preview = asker.task.context.text()[:PREVIEW_CHARS]
    reply = await asker.ask(prompts.kind_prompt(query, preview), KIND_OUTPUT_TOKENS)
    return kind_in(reply) or by_words(query)


def kind_in(reply: str) -> str | None:
    """The one kind that a reply names; None if it names none, or several."""
    named = {found.lower() for found in _WORD.findall(reply)}
    return named.pop() if len(named) == 1 else None


def by_words(query: str) -> str:
    for kind, pattern in _SIGNS:
        if re.search(pattern, query, re.IGNORECASE):
            return kind
    return "find"
