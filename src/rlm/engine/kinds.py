"""Which kind of answer a query wants, by its own words or by a one-word reply of a model.

The kind decides how map/reduce reads a text, and which hint the loop gives. Words cost nothing and
give the same kind each time; docs/decisions/0013-hints-by-kind.md has the reasons.
"""

import re

from rlm import prompts
from rlm._util.lazy import pattern

__all__ = ["KINDS", "by_words", "kind_in", "surely"]

KINDS = ("find", "count", "list", "label", "pairs", "summary")
ENDS_CHARS = 2_000
"""How much of each end of a query is examined: what it asks for is usually there."""

FEW_WORDS = 4
"""A shorter query says too little for a model to tell its kind."""

_SIGNS = {
    "pairs": pattern(
        r"\b(all|every|each|which|list|find|how many) (the )?pairs?\b|\bpairs of\b",
        re.IGNORECASE,
    ),
    "label": pattern(
        r"\b(label|labels|labell?ed|classif(y|ied|ying)|categori[sz]\w+|categor(y|ies))\b"
        r"|\b(most|least) (common|frequent|often)\b|\b(distribution|proportion|percentage) of\b",
        re.IGNORECASE,
    ),
    "count": pattern(
        r"\bhow (many|often)\b|\bcount (the|all|how|every|each)\b|\btally\b"
        r"|(?<!phone )(?<!serial )(?<!account )(?<!order )(?<!invoice )\bnumber of\b",
        re.IGNORECASE,
    ),
    "summary": pattern(
        r"\b(summar\w+|overview|gist|tl;?dr|key takeaways)\b"
        r"|\b(main|key|central) (points?|ideas?|themes?|topics?|findings|arguments?)\b",
        re.IGNORECASE,
    ),
    "list": pattern(
        r"\b(list|enumerate)\b|\b(name|find|give|show|which|what are|extract|collect) "
        r"(me )?(all|every|each|the names of)\b|\ball (the )?\w+ (that|which|who|whose)\b",
        re.IGNORECASE,
    ),
    "find": pattern(
        r"(?:^|[.?!:])\s*(who|whose|whom|when|where|why|is|are|was|were|do|does|did|has|have|can)\b"
        r"|\bwhich \w+|\bwhat (is|was|were|are) (the|its|his|her|their|an?)\b"
        r"|\bwhat \w+ (is|was|are|were|did|does|do|has|had|will)\b"
        r"|\bwhat (does|did|do|happened|happens)\b"
        r"|\bhow (old|long|much|far|tall|high|fast|large|big|did|does|do|is|was|can)\b"
        r"|\b(find|look up|quote|return|print) (the|an?|me the)\b",
        re.IGNORECASE,
    ),
}
"""The words that show each kind; the first match counts."""

_WORD = pattern(rf"\b({'|'.join(KINDS)})\b", re.IGNORECASE)


def surely(query: str) -> str | None:
    """Return the kind that the words of a query show; None if they leave it open."""
    if query == prompts.FIXED_QUERY:  # the question itself is somewhere in the text
        return "find"
    text = query if len(query) <= 2 * ENDS_CHARS else f"{query[:ENDS_CHARS]} {query[-ENDS_CHARS:]}"
    for kind, signs in _SIGNS.items():
        if signs.search(text):
            return kind
    return "find" if len(text.split()) < FEW_WORDS else None


def by_words(query: str) -> str:
    """Return the kind that the words show, "find" if they show none."""
    return surely(query) or "find"


def kind_in(reply: str) -> str | None:
    """Return the one kind that a reply names; None if it names none or several."""
    named = {found.lower() for found in _WORD.findall(reply)}
    return named.pop() if len(named) == 1 else None
