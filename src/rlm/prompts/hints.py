"""One line for the first message, by the kind of answer that the query wants.

A hint that helps one kind of task harms another, so there is none where the kind is not known.
"""

__all__ = ["hint"]

HINTS = {
    "count": "if words or structure decide, count in code; if meaning decides, `classify` or "
    "`where` over all items, then count in code.",
    "label": "`classify` all items once, with a guide, then count in code.",
    "list": "`where` or `extract` over all items, then remove duplicates in code.",
    "pairs": "`classify` the items of both sides first, then make the pairs in code.",
    "summary": "`answer_each` over all pieces, then `merge`.",
}


def hint(kind: str | None) -> str:
    """Return the hint for a kind of answer; facts are found without one."""
    text = HINTS.get(kind or "", "")
    return f"Hint: {text}" if text else ""
