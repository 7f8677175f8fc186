"""The report as Markdown. Strangers' text stands in fences that are longer than any it holds."""

import html
import re
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

__all__ = ["fenced", "inline", "markdown"]

_TICKS = re.compile(r"`+")
_MEANING = re.compile(r"([\\`*_\[\]#!|~<>&$@]|:(?=//)|(?<=www)\.|^[-+=]|(?<=\d)[.)](?=\s))")


def markdown(trajectory: Trajectory, runs: list[RunOutline]) -> Iterator[str]:
    """One piece a block."""
    for block in blocks(trajectory, runs):
        yield _written(block)


def _written(block: Block) -> str:
    if isinstance(block, Heading):
        anchor = f'<a id="{block.anchor}"></a>\n\n' if block.anchor else ""
        return f"{anchor}{'#' * block.level} {inline(block.text)}\n\n"
    if isinstance(block, Passage):
        return f"**{inline(block.label)}**\n\n{fenced(block.text, block.language)}\n"
    if isinstance(block, Note):
        text = f"[{inline(block.text)}](#{block.target})" if block.target else inline(block.text)
        return f"{'⚠ ' if block.is_trouble else ''}{text}\n\n"
    if isinstance(block, FoldStart):
        mark = "⚠ " if block.is_trouble else ""
        return f"<details>\n<summary>{mark}{html.escape(block.summary)}</summary>\n\n"
    if isinstance(block, FoldEnd):
        return "</details>\n\n"
    return _row(block) if isinstance(block, Row) else "\n"


def _row(row: Row) -> str:
    cells = [inline(cell) for cell in row.cells]
    if row.target:
        cells[0] = f"[{cells[0]}](#{row.target})"
    line = f"| {' | '.join(cells)} |\n"
    return line + "|---" * len(cells) + "|\n" if row.is_head else line


def inline(text: str) -> str:
    """Text within a line, with everything that means something to Markdown taken literally."""
    return _MEANING.sub(r"\\\1", text)


def fenced(text: str, language: str = "text") -> str:
    """Text in a fence that it can't close."""
    text = harmless(text)
    longest = max((len(ticks) for ticks in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}\n"
