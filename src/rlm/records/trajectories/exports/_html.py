"""The report as one HTML file: no script, nothing loaded, all text escaped, light or dark."""

import base64
import hashlib
import html as escaping
from collections.abc import Iterator

from rlm.records.recorders.console import harmless
from rlm.records.trajectories.exports._report import (
    Block,
    FoldEnd,
    FoldStart,
    Heading,
    Note,
    Passage,
    Row,
    blocks,
)
from rlm.records.trajectories.index import RunOutline
from rlm.records.trajectories.read import Trajectory

__all__ = ["html"]

STYLE = """
:root { color-scheme: light dark; --text: #1d232b; --dim: #5b6672; --back: #ffffff;
  --box: #f4f6f8; --line: #d9dfe5; --link: #0b5cad; --bad: #b3261e; --code: #eef3fb; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ed; --dim: #98a4b1; --back: #14181d;
  --box: #1d232a; --line: #343d47; --link: #7db7f5; --bad: #ff8f86; --code: #1a2433; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem; background: var(--back);
  color: var(--text); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem; padding-top: .75rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.75rem 0 .25rem; }
a { color: var(--link); }
p { margin: .35rem 0; color: var(--dim); font-size: .875rem; }
.trouble { color: var(--bad); }
.label { margin: .9rem 0 .2rem; font-weight: 600; color: var(--text); }
pre { margin: 0; padding: .6rem .75rem; max-height: 32rem; overflow: auto; background: var(--box);
  border: 1px solid var(--line); border-radius: 6px; white-space: pre-wrap; tab-size: 4;
  font: .8125rem/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre.python { background: var(--code); }
details { margin: .5rem 0; padding: .1rem .75rem; border-left: 3px solid var(--line); }
summary { cursor: pointer; color: var(--dim); font-size: .875rem; padding: .2rem 0; }
details.trouble > summary { color: var(--bad); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; }
th, td { padding: .3rem .7rem .3rem 0; text-align: left; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th { color: var(--dim); font-weight: 600; }
"""
_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'"
"""Nothing may be loaded or run; the only style is ours, known by its hash."""


def html(trajectory: Trajectory, runs: list[RunOutline]) -> Iterator[str]:
    """One piece a block; a browser shows the start of the file while the rest is written."""
    first, rest = None, blocks(trajectory, runs)
    first = next(rest)
    title = first.text if isinstance(first, Heading) else "rlm"
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{_safe(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
    )
    yield _written(first)
    for block in rest:
        yield _written(block)
    yield "</body>\n</html>\n"


def _safe(text: str) -> str:
    """Text that is only text: escaped, with control characters made visible."""
    return escaping.escape(harmless(text))


def _written(block: Block) -> str:
    if isinstance(block, Heading):
        anchor = f' id="{block.anchor}"' if block.anchor else ""
        return f"<h{block.level}{anchor}>{_safe(block.text)}</h{block.level}>\n"
    if isinstance(block, Passage):
        # A line end right behind <pre> is not shown, so that ours keeps one of theirs.
        body = f'<pre class="{block.language}">\n{_safe(block.text)}</pre>\n'
        return f'<p class="label">{_safe(block.label)}</p>\n{body}'
    if isinstance(block, Note):
        kind = ' class="trouble"' if block.is_trouble else ""
        return f"<p{kind}>{_linked(block.text, block.target)}</p>\n"
    if isinstance(block, FoldStart):
        kind = ' class="trouble"' if block.is_trouble else ""
        return f"<details{kind}>\n<summary>{_safe(block.summary)}</summary>\n"
    if isinstance(block, FoldEnd):
        return "</details>\n"
    return _row(block) if isinstance(block, Row) else "</table></div>\n"


def _row(row: Row) -> str:
    tag = "th" if row.is_head else "td"
    cells = [_linked(row.cells[0], row.target), *(_safe(cell) for cell in row.cells[1:])]
    line = "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>\n"
    return f'<div class="wide"><table>\n{line}' if row.is_head else line


def _linked(text: str, target: str) -> str:
    return f'<a href="#{target}">{_safe(text)}</a>' if target else _safe(text)
