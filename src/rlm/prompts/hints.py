"""One line for the first message, by the kind of answer that the query wants.

A hint that helps one kind of task harms another, so there is none if the kind is unknown.
"""

__all__ = ["hint"]

HINTS = {
    "count": "if words or structure decide, count in code; if meaning decides, `classify` or "
    "`where` over all items, then count in code.",
    "label": "label in code what plain words settle, `classify` only the other items, with a "
    "guide, and count; one block can do all of it.",
    "list": "`where` or `extract` over all items, then remove duplicates in code.",
    "pairs": "`classify` the items of both sides first, then make the pairs in code.",
    "summary": "`answer_each` over all pieces, then `merge`.",
}

HINTS_FOR_WEAK_MODELS = {
    **HINTS,
    "label": "`classify` all items once, with a guide, then count in code.",
}
"""These models read better than they write patterns."""


def hint(kind: str | None, *, weak: bool = False) -> str:
    """Return the hint for a kind of answer; facts are found without one."""
    text = (HINTS_FOR_WEAK_MODELS if weak else HINTS).get(kind or "", "")
    return f"Hint: {text}" if text else ""
