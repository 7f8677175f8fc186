"""Answers in Markdown, rendered for a terminal. Their text is made harmless before it is parsed.

HTML is shown as text, pictures are not shown, and links are written out, because a terminal would
hide where they lead.
"""

import io
import re
from typing import Any, ClassVar, cast

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.theme import Theme

from rlm._util.safe_markdown import MAX_CHARS, is_slow, parsed
from rlm.records.recorders.console import harmless

__all__ = ["rendered"]

PLAIN_BLOCKS = frozenset({"paragraph_open", "paragraph_close", "inline"})
PLAIN_WORDS = frozenset({"text", "softbreak", "hardbreak"})
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
STYLES = {
    "markdown.code": "bold cyan",
    "markdown.code_block": "cyan",
    "markdown.h1": "bold underline",
}


class _Heading(Heading):
    """A heading at the left, where the text begins."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Page(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
    }


def rendered(text: str, columns: int) -> str | None:
    """Return a harmless text rendered as Markdown; None if it is best printed unchanged.

    That is text without any markup, and text that is too long or too intricate.
    """
    if len(text) > MAX_CHARS or is_slow(text):
        return None
    tokens = parsed(text)
    if not any(_is_markup(token) for token in tokens):
        return None
    for token in tokens:
        _make_harmless(token)
    return _painted(tokens, columns)


def _is_markup(token: Any) -> bool:
    return token.type not in PLAIN_BLOCKS or any(
        child.type not in PLAIN_WORDS for child in token.children or ()
    )


def _make_harmless(token: Any) -> None:
    """Escape the characters that entities such as `&#8238;` stand for: they control terminals."""
    token.content = harmless(token.content)
    for name, value in token.attrs.items():
        token.attrs[name] = harmless(value) if isinstance(value, str) else value
    for child in token.children or ():
        _make_harmless(child)


def _painted(tokens: list[Any], columns: int) -> str:
    for token in tokens:
        for child in token.children or ():
            if child.type == "softbreak":  # Models end lines where they mean to.
                child.type = "hardbreak"
    page = _Page("", code_theme="ansi_dark", hyperlinks=False)
    page.parsed = tokens
    system = Console().color_system
    console = Console(
        file=io.StringIO(),
        force_terminal=system is not None,
        color_system=cast("Any", system),
        width=max(20, columns),
        theme=Theme(STYLES),
        markup=False,
        emoji=False,
        highlight=False,
    )
    with console.capture() as captured:
        console.print(page)
    lines = [line.rstrip() for line in captured.get().split("\n")]
    shown = ["" if not _COLOURS.sub("", line).strip() else line for line in lines]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(shown)).strip("\n")
