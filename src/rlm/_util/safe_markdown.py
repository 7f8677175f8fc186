"""Markdown from models, rendered safely: none of their HTML, no pictures, few links.

A picture would be loaded from wherever a model says, and reveal that someone is looking at it. A
link is kept only if it is a web address, which nothing opens before it is clicked.
"""

import re
from html import escape
from typing import Any

from rlm._util.lazy import pattern

__all__ = ["MAX_CHARS", "harmless_markdown", "html_of", "is_slow", "parsed", "reader"]

MAX_CHARS = 30_000
"""How much of a text is shown."""

MAX_BRACKETS = 2_000
MAX_CELLS = 5_000
"""How much is parsed as Markdown at once: every `[` may begin a link, and short rows of a table are
padded to the width of its head, so a few lines can make very many cells.
"""

_ACTIVE = pattern(r"<(?=[A-Za-z/!?])|!(?=\[)")
_ADDRESS = re.compile(r"https?://[^\s/]", re.IGNORECASE)


def html_of(text: str) -> str:
    """Return the text rendered as harmless HTML; unrendered if that would take too long."""
    text, left_out = _cut(text)
    rendered = f"<pre>{escape(text)}</pre>" if is_slow(text) else str(reader().render(text))
    return rendered + (f"<p><em>{escape(left_out)}</em></p>" if left_out else "")


def harmless_markdown(text: str) -> str:
    """Return the text as Markdown in which raw HTML and pictures are only words.

    Entities do that, and no backslash before them can undo it. In code, the entities are visible:
    this is for programs that show Markdown but not HTML.
    """
    text, left_out = _cut(text)
    shown = _ACTIVE.sub(lambda found: f"&#{ord(found[0])};", text)
    return f"{shown}\n\n*{left_out}*" if left_out else shown


def is_slow(text: str) -> bool:
    """Return whether parsing a text as Markdown may take seconds."""
    lines = text.splitlines()
    columns = max((line.count("|") for line in lines), default=0)
    return text.count("[") > MAX_BRACKETS or columns * len(lines) > MAX_CELLS


def parsed(text: str) -> list[Any]:
    """Return the tokens of a text, for other renderers."""
    return list(reader().parse(text))


def reader() -> Any:
    """Return a parser that treats HTML as text, and renders only links that are safe to show."""
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": 60})
    # Without "reference", lines such as `[1]: report.txt` stay: unused definitions are not shown.
    made.enable(["table", "strikethrough"]).disable(["image", "reference"])
    made.validateLink = lambda url: _ADDRESS.match(url) is not None  # type: ignore[method-assign]
    made.add_render_rule("link_open", _link)
    return made


def _link(rules: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    address = escape(str(tokens[index].attrGet("href")))
    return (
        f'<a href="{address}" title="{address}" target="_blank" rel="noopener noreferrer nofollow">'
    )


def _cut(text: str) -> tuple[str, str]:
    left = len(text) - MAX_CHARS
    return text[:MAX_CHARS], f"… {left:,} more characters" if left > 0 else ""
