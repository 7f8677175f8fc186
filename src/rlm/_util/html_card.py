"""A run as an HTML card for notebooks: self-contained, without scripts or network requests.

Everything shown comes from models and files, so all of it is escaped, cut, and kept inside the
card. Colours are mixed from the text colour of the page, so the card suits light and dark themes,
and a program that removes the style still shows every word.
"""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from rlm._util.safe_markdown import html_of
from rlm._util.text import counted

__all__ = ["MAX_ROWS", "Bar", "Card", "CellNote", "StepNote", "card_html"]

MAX_QUOTE_CHARS = 300
MAX_QUOTES = 20
MAX_ROWS = 20
MAX_QUERY_CHARS = 400
MAX_LABEL_CHARS = 200
MAX_PROBLEM_CHARS = 2_000
MAX_COMMAND_CHARS = 5_000
"""A command may contain a long path, and would be useless if cut."""
MAX_STREAMED_CHARS = 4_000
LATEST_STEPS = 5
"""How many steps the card of a running run shows; the finished card shows all that are kept."""
WIDTH = 600
"""The timeline is drawn in this many columns, whatever the number of bars."""

_STYLE = """
.rlm-card{color:var(--jp-content-font-color1,var(--vscode-foreground,inherit));
border:1px solid color-mix(in srgb,currentColor 18%,transparent);border-radius:10px;
padding:14px 18px 10px;margin:4px 0;max-width:820px;overflow:hidden;
font:14px/1.55 system-ui,-apple-system,"Segoe UI",sans-serif;overflow-wrap:anywhere;text-align:left}
.rlm-card p{margin:.5em 0}
.rlm-card pre,.rlm-card code{font:12.5px/1.5 ui-monospace,Menlo,Consolas,monospace;
background:color-mix(in srgb,currentColor 8%,transparent)!important;border-radius:4px;color:inherit}
.rlm-card code{padding:1px 4px}
.rlm-card :is(code,pre,a,span,em,strong,th,td,li,p){unicode-bidi:isolate}
.rlm-card pre{padding:8px 10px;margin:6px 0;overflow:auto;max-height:22em;white-space:pre-wrap}
.rlm-card pre code{background:none!important;padding:0}
.rlm-card table{border-collapse:collapse;margin:.6em 0;font-size:13px}
.rlm-card th,.rlm-card td{border:1px solid color-mix(in srgb,currentColor 18%,transparent);
padding:3px 10px;text-align:left!important;background:none!important;color:inherit}
.rlm-card :is(h1,h2,h3,h4){font-size:1.1em;margin:.7em 0 .3em;color:inherit}
.rlm-card a{color:color-mix(in srgb,#2f81f7 78%,currentColor)}
.rlm-card summary{cursor:pointer}
.rlm-query,.rlm-facts,.rlm-steps summary,.rlm-steps p,.rlm-lane span{
color:color-mix(in srgb,currentColor 66%,transparent);font-size:12.5px}
.rlm-query{margin-bottom:2px}
.rlm-answer{font-size:15px}
.rlm-card .rlm-problem,.rlm-card .rlm-error{color:color-mix(in srgb,#e5484d 82%,currentColor)}
.rlm-card .rlm-error{font:12.5px/1.5 ui-monospace,Menlo,Consolas,monospace;margin:2px 0}
.rlm-card .rlm-cites{margin:8px 0;padding:0 0 0 30px;list-style:decimal;font-size:13px;
border-left:3px solid color-mix(in srgb,#2f81f7 55%,transparent)}
.rlm-card .rlm-cites li{margin:0;padding:2px 0}
.rlm-time{margin:10px 0 6px}
.rlm-lane{display:flex;align-items:center;gap:8px;height:12px}
.rlm-lane span{width:3.2em;font-size:11px;line-height:12px}
.rlm-lane svg{flex:1;height:7px;border-radius:3px;
background:color-mix(in srgb,currentColor 6%,transparent)}
.rlm-facts{display:flex;flex-wrap:wrap;gap:2px 14px;margin-top:8px;
font-variant-numeric:tabular-nums}
.rlm-facts code{margin-left:auto}
.rlm-steps{margin-top:8px}
.rlm-step{margin:8px 0 0;padding-left:12px;
border-left:2px solid color-mix(in srgb,currentColor 14%,transparent)}
.rlm-step p{margin:2px 0}
.rlm-running::before{content:"";display:inline-block;width:8px;height:8px;border-radius:50%;
background:#2f81f7;margin-right:8px}
""".replace("\n", "")

LANES = (("model", "#2f81f7"), ("calls", "#a371f7"), ("code", "#3fb950"))


class Bar(NamedTuple):
    """Something that took time: `kind` names a lane; times are seconds since the run began."""

    kind: str
    start: float
    end: float


class CellNote(NamedTuple):
    """A cell: its code, what it used, and the last line of its traceback if it failed."""

    code: str
    took: str = ""
    error: str = ""


class StepNote(NamedTuple):
    """A step: the words of the model besides its code, and the cells."""

    number: int
    words: str
    cells: Sequence[CellNote] = ()


class Card(NamedTuple):
    """What a card shows. `quotes` are labels and texts of citations, `command` opens the run.

    `rows` are results of an operator, each with its index. While the run is in progress, `answer`
    is the part that has arrived.
    """

    answer: str | None
    facts: Sequence[str]
    query: str = ""
    problem: str = ""
    quotes: Sequence[tuple[str, str]] = ()
    bars: Sequence[Bar] = ()
    steps: Sequence[StepNote] = ()
    steps_in_all: int = 0
    command: str = ""
    rows: Sequence[tuple[str, str]] = ()
    rows_in_all: int = 0
    is_running: bool = False


def card_html(card: Card) -> str:
    """Return the card as one element."""
    parts = [f"<div class=rlm-query>{escape(_cut(card.query, MAX_QUERY_CHARS))}</div>"]
    if card.is_running:
        parts += [_facts(card, running=True), _latest(card), _streamed(card.answer or "")]
    else:
        parts += [_answer(card), _quotes(card.quotes), _timeline(card.bars)]
        parts += [_steps(card), _facts(card)]
    return f'<div class="rlm-card"><style>{_STYLE}</style>{"".join(parts)}</div>'


def _answer(card: Card) -> str:
    shown = "<p><em>No answer.</em></p>" if card.answer is None else html_of(card.answer)
    said = _cut(card.problem, MAX_PROBLEM_CHARS)
    problem = f"<p class=rlm-problem>{escape(said)}</p>" if said else ""
    return f"<div class=rlm-answer>{shown}</div>{problem}{_rows(card)}"


def _rows(card: Card) -> str:
    shown = "".join(
        f"<tr><th>{_label(place)}</th><td>{escape(_cut(value, MAX_QUOTE_CHARS))}</td></tr>"
        for place, value in card.rows[:MAX_ROWS]
    )
    more = card.rows_in_all - MAX_ROWS
    rest = f"<p>{counted(more, 'more item')}</p>" if more > 0 else ""
    return f"<table>{shown}</table>{rest}" if shown else ""


def _streamed(text: str) -> str:
    """Return the end of an answer that is still being written, without reading it as Markdown."""
    if not text:
        return ""
    cut = "…" if len(text) > MAX_STREAMED_CHARS else ""
    return f"<pre>{cut}{escape(text[-MAX_STREAMED_CHARS:])}</pre>"


def _quotes(quotes: Sequence[tuple[str, str]]) -> str:
    if not quotes:
        return ""
    rows = [
        f"<li><code>{_label(label)}</code> “{escape(_cut(text, MAX_QUOTE_CHARS))}”</li>"
        for label, text in quotes[:MAX_QUOTES]
    ]
    more = len(quotes) - MAX_QUOTES
    rows += [f"<li>{counted(more, 'more citation')}</li>"] if more > 0 else []
    return f"<ol class=rlm-cites>{''.join(rows)}</ol>"


def _facts(card: Card, *, running: bool = False) -> str:
    shown = [f"<span>{_label(fact)}</span>" for fact in card.facts]
    if running:
        shown[0] = f"<span class=rlm-running>{_label(card.facts[0])}</span>"
    if card.command:
        shown.append(f"<code>{escape(_cut(card.command, MAX_COMMAND_CHARS))}</code>")
    return f"<div class=rlm-facts>{''.join(shown)}</div>"


# -- steps ----------------------------------------------------------------------------------------


def _steps(card: Card) -> str:
    if not card.steps:
        return ""
    shown = "".join(map(_step, card.steps))
    return f"<details class=rlm-steps><summary>Steps</summary>{_left_out(card)}{shown}</details>"


def _latest(card: Card) -> str:
    latest = card._replace(steps=card.steps[-LATEST_STEPS:])
    shown = "".join(map(_step, latest.steps))
    return f"<div class=rlm-steps>{_left_out(latest)}{shown}</div>" if shown else ""


def _left_out(card: Card) -> str:
    hidden = card.steps_in_all - len(card.steps)
    return f"<p>{counted(hidden, 'earlier step')} …</p>" if hidden > 0 else ""


def _step(step: StepNote) -> str:
    words = f" {escape(step.words)}" if step.words else ""
    cells = "".join(map(_cell, step.cells))
    return f"<div class=rlm-step><p><strong>Step {step.number}</strong>{words}</p>{cells}</div>"


def _cell(cell: CellNote) -> str:
    took = f"<p>{escape(cell.took)}</p>" if cell.took else ""
    error = f"<p class=rlm-error>{escape(cell.error)}</p>" if cell.error else ""
    return f"<pre>{escape(cell.code)}</pre>{error}{took}"


# -- the timeline ---------------------------------------------------------------------------------


def _timeline(bars: Sequence[Bar]) -> str:
    """Draw when the run asked its model, made calls and ran code, each in its own lane."""
    end = max((bar.end for bar in bars), default=0.0)
    if end <= 0:
        return ""
    lanes = [
        f"<div class=rlm-lane><span>{kind}</span>"
        f'<svg role="img" aria-label="{kind}" viewBox="0 0 {WIDTH} 1" preserveAspectRatio="none">'
        f"{''.join(_shape(first, last, colour) for first, last in found)}</svg></div>"
        for kind, colour in LANES
        if (found := _columns([bar for bar in bars if bar.kind == kind], end))
    ]
    return f"<div class=rlm-time>{''.join(lanes)}</div>"


def _shape(first: int, last: int, colour: str) -> str:
    return f'<rect x="{first}" y="0" width="{last - first}" height="1" fill="{colour}"/>'


def _columns(bars: Sequence[Bar], end: float) -> list[tuple[int, int]]:
    """Return the ranges of columns that bars cover, merged, so there are at most `WIDTH`."""
    spans: list[tuple[int, int]] = []
    for bar in sorted(bars, key=lambda each: each.start):
        first = min(WIDTH - 1, max(0, int(WIDTH * bar.start / end)))
        last = min(WIDTH, max(first + 1, round(WIDTH * bar.end / end)))
        if spans and first <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(last, spans[-1][1])
        else:
            spans.append((first, last))
    return spans


def _label(text: str) -> str:
    return escape(_cut(text, MAX_LABEL_CHARS))


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"
