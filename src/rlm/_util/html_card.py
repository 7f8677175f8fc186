"""A result as HTML for notebooks: self-contained, without scripts or requests to anywhere.

Everything shown comes from models and files, so all of it is escaped. Markdown is rendered with
raw HTML switched off, and without links or images that a page could load.
"""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

__all__ = ["Bar", "card"]

MAX_MARKDOWN_CHARS = 50_000
MAX_QUOTE_CHARS = 300
MAX_QUOTES = 20
MAX_BARS = 400
WIDTH, BAR_HEIGHT = 600, 6
COLOURS = {"step": "#4a7fb5", "call": "#7fa86b", "cell": "#b58a4a"}

_STYLE = (
    "border:1px solid color-mix(in srgb, currentColor 25%, transparent);border-radius:8px;"
    "padding:10px 14px;max-width:760px;font:14px/1.5 system-ui,sans-serif;color:inherit"
)
_FAINT = "opacity:.7;font-size:12px"


class Bar(NamedTuple):
    """Something that took time: `kind` is step, call or cell; times are seconds of the run."""

    kind: str
    start: float
    end: float


def card(
    answer: str | None,
    problem: str,
    facts: Sequence[str],
    quotes: Sequence[tuple[str, str]] = (),
    bars: Sequence[Bar] = (),
) -> str:
    """Return the card of a result. `quotes` are labels and texts of citations."""
    parts = [f'<div class="rlm-result" style="{_STYLE}">']
    parts.append(_markdown(answer) if answer is not None else "<p><em>No answer.</em></p>")
    if problem:
        parts.append(f'<p style="color:#b3261e">{escape(problem)}</p>')
    if quotes:
        parts.append(_quotes(quotes))
    if bars:
        parts.append(_timeline(bars))
    parts.append(f'<p style="{_FAINT}">{" · ".join(map(escape, facts))}</p></div>')
    return "".join(parts)


def _markdown(text: str) -> str:
    if len(text) > MAX_MARKDOWN_CHARS:
        left = f"{len(text) - MAX_MARKDOWN_CHARS:,} more characters"
        return f"<pre>{escape(text[:MAX_MARKDOWN_CHARS])}</pre><p>… {left}</p>"
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        return f"<pre>{escape(text)}</pre>"
    reader = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("table")
    # A picture would be loaded from wherever a model says, and tell that someone looks at it.
    return str(reader.disable(["image", "link", "autolink"]).render(text))


def _quotes(quotes: Sequence[tuple[str, str]]) -> str:
    rows = [
        f"<li><code>{escape(label)}</code> “{escape(text[:MAX_QUOTE_CHARS])}”</li>"
        for label, text in quotes[:MAX_QUOTES]
    ]
    more = len(quotes) - MAX_QUOTES
    rows += [f"<li>{more:,} more</li>"] if more > 0 else []
    return f'<ol style="font-size:13px">{"".join(rows)}</ol>'


def _timeline(bars: Sequence[Bar]) -> str:
    """Draw when the run asked, called and computed; each kind on its own line."""
    end = max(bar.end for bar in bars) or 1.0
    kinds = list(COLOURS)
    shapes = [
        f'<rect x="{WIDTH * bar.start / end:.1f}" y="{kinds.index(bar.kind) * (BAR_HEIGHT + 2)}" '
        f'width="{max(1.0, WIDTH * (bar.end - bar.start) / end):.1f}" height="{BAR_HEIGHT}" '
        f'fill="{COLOURS[bar.kind]}"><title>{bar.kind}, {bar.end - bar.start:.1f} s</title></rect>'
        for bar in bars[:MAX_BARS]
        if bar.kind in COLOURS
    ]
    height = len(kinds) * (BAR_HEIGHT + 2)
    return (
        f'<svg role="img" aria-label="Timeline" viewBox="0 0 {WIDTH} {height}" width="100%" '
        f'height="{height}" preserveAspectRatio="none">{"".join(shapes)}</svg>'
    )
