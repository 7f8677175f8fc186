"""Export a run as a report in Markdown or HTML."""

import base64
import hashlib
import html as html_module
import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from rlm._util.text import counted, dollars
from rlm.events import (
    CallEnded,
    CallRetried,
    CallStarted,
    CellEnded,
    CellOutput,
    CellStarted,
    Compacted,
    DataRead,
    Diverged,
    Event,
    ModelAsked,
    ModelReplied,
    Noted,
    OutputStreamed,
    Planned,
    RunEnded,
    RunStarted,
    SessionLost,
    StepStarted,
    ToolCalled,
)
from rlm.messages import Usage
from rlm.records.judging.judgments import Judgment
from rlm.records.recorders.console import data_read, harmless, one_line, plan
from rlm.records.trajectories.exports._texts import clock_time, json_of, text_of
from rlm.records.trajectories.index import RunOutline, StepUsage
from rlm.records.trajectories.read import Trajectory

__all__ = [
    "Block",
    "FoldEnd",
    "FoldStart",
    "Heading",
    "Note",
    "Passage",
    "Row",
    "TableEnd",
    "blocks",
    "fenced",
    "html",
    "inline",
    "markdown",
]

SHOWN_ROWS = 1_000
TITLE_CHARS = 100


class Heading(Struct, frozen=True):
    """A heading; other blocks can link to its `anchor`."""

    level: int
    text: str
    anchor: str = ""


class Passage(Struct, frozen=True):
    """Untrusted text, shown verbatim."""

    label: str
    text: str
    language: str = "text"


class Note(Struct, frozen=True):
    """One line of ours; `target` is the anchor it links to."""

    text: str
    is_trouble: bool = False
    target: str = ""


class FoldStart(Struct, frozen=True):
    """The beginning of a section that is initially closed."""

    summary: str
    is_trouble: bool = False


class FoldEnd(Struct, frozen=True):
    pass


class Row(Struct, frozen=True):
    """A row of a table; the first is its head."""

    cells: tuple[str, ...]
    is_head: bool = False
    target: str = ""


class TableEnd(Struct, frozen=True):
    pass


Block = Heading | Passage | Note | FoldStart | FoldEnd | Row | TableEnd


def blocks(trajectory: Trajectory, runs: list[RunOutline]) -> Iterator[Block]:
    """Yield what was asked and answered, what it cost, and then every run step by step."""
    anchors = {run.run_id: f"run-{number}" for number, run in enumerate(runs, 1)}
    roots = [run for run in runs if run.parent_id not in anchors]
    title = roots[0].query or f"run {roots[0].run_id}" if len(roots) == 1 else f"{len(roots)} runs"
    yield Heading(1, one_line(title, TITLE_CHARS))
    for root in roots[:SHOWN_ROWS] if len(roots) == 1 else ():
        yield from _outcome(trajectory, root)
    yield from _table(runs, anchors)
    for run in runs:
        yield from _run(trajectory, run, anchors)


def _outcome(trajectory: Trajectory, root: RunOutline) -> Iterator[Block]:
    """Yield the whole query and answer; an outline has only their beginnings."""
    for event in trajectory.step_events(root.run_id, 0):
        if isinstance(event, RunStarted) and event.query:
            yield Passage("Query", event.query)
    ended = False
    for event in trajectory.step_events(root.run_id, (trajectory.steps(root.run_id) or [0])[-1]):
        if isinstance(event, RunEnded):
            ended = True
            if event.answer is None:
                yield Note(f"No answer: {event.detail or event.error or event.stop_reason}", True)
            else:
                yield Passage(_title(event), event.answer)
    if not ended:
        yield Note(f"No answer: this run is {root.status}", is_trouble=True)
    yield from _judgment(trajectory.judgments.get(root.run_id, Judgment()))


def _judgment(judgment: Judgment) -> Iterator[Block]:
    """Yield what people said about the run."""
    if judgment.score is not None:
        yield Note(f"Score: {judgment.score:g}")
    if judgment.tags:
        yield Note(f"Tags: {', '.join(judgment.tags)}")
    for comment in judgment.comments:
        yield Passage(f"Comment, {clock_time(comment.at)}", comment.text)


def _table(runs: list[RunOutline], anchors: dict[str, str]) -> Iterator[Block]:
    yield Heading(2, "Runs")
    names = ("run", "ended by", "steps", "calls", "tokens", "cost", "seconds", "model")
    yield Row(names, is_head=True)
    for number, run in enumerate(runs[:SHOWN_ROWS], 1):
        cells = (
            "· " * min(run.depth, 20) + str(number),
            _ending(run),
            f"{run.steps:,}",
            f"{run.calls:,}",
            f"{run.tokens:,}",
            dollars(run.cost_usd),
            f"{run.seconds:,.1f}",
            run.model,
        )
        yield Row(tuple(one_line(cell, TITLE_CHARS) for cell in cells), target=anchors[run.run_id])
    yield TableEnd()
    if len(runs) > SHOWN_ROWS:
        yield Note(f"and {counted(len(runs) - SHOWN_ROWS, 'more run')}")
    yield Note("Tokens and cost include child runs; steps and calls do not.")


def _ending(run: RunOutline) -> str:
    return run.stop_reason + (f" ({run.limit})" if run.limit else "") or run.status


def _run(trajectory: Trajectory, run: RunOutline, anchors: dict[str, str]) -> Iterator[Block]:
    number = anchors[run.run_id].removeprefix("run-")
    yield Heading(2, one_line(f"Run {number}: {run.run_id}", TITLE_CHARS), anchors[run.run_id])
    facts = [run.model, f"depth {run.depth}", clock_time(run.started), _ending(run)]
    yield Note(one_line(", ".join(fact for fact in facts if fact)))
    if (above := anchors.get(run.parent_id or "")) is not None:
        yield Note(one_line(f"started by run {run.parent_id}"), target=above)
    telling = _Telling(trajectory, run.run_id, anchors)
    for event in trajectory.run_events(run.run_id):
        yield from telling.blocks(event)


class _Telling:
    """One run's events as blocks. Only the prompts of open calls are kept in memory."""

    def __init__(self, trajectory: Trajectory, run_id: str, anchors: dict[str, str]) -> None:
        self._trajectory = trajectory
        self._used = trajectory.step_usages(run_id)
        self._anchors = anchors
        self._prompts: dict[str, str] = {}

    def blocks(self, event: Event) -> Iterator[Block]:
        if isinstance(event, StepStarted):
            yield Heading(3, f"Step {event.step}")
            if (used := _step_usage(self._used.get(event.step))) is not None:
                yield Note(used)
        elif isinstance(event, ModelAsked):
            yield from _request_blocks(event)
        elif isinstance(event, ModelReplied):
            yield from _reply_blocks(event)
        elif isinstance(event, CellStarted | CellOutput | CellEnded):
            yield from _cell(event)
        elif isinstance(event, CallStarted):
            self._prompts[event.call_id] = event.prompt
        elif isinstance(event, CallEnded):
            yield from self._call(event)
        elif isinstance(event, ToolCalled):
            yield from _tool(event)
        else:
            yield from _other(event)

    def _call(self, event: CallEnded) -> Iterator[Block]:
        what = "child run" if event.kind == "rlm" else "call"
        used = _usage(event.usage or self._child_usage(event))
        parts = [what, event.model, f"{event.seconds:.2f} s", used, event.error]
        summary = one_line(", ".join(part for part in parts if part))
        yield FoldStart(summary, is_trouble=event.error is not None)
        yield Passage("Prompt", self._prompts.pop(event.call_id, ""))
        if event.error is not None:
            yield Passage("Error", event.error)
        else:
            yield Passage("Reply", event.reply)
        if (child := self._anchors.get(event.child_run_id or "")) is not None:
            yield Note(one_line(f"what run {event.child_run_id} did"), target=child)
        yield FoldEnd()

    def _child_usage(self, event: CallEnded) -> Usage | None:
        child = event.child_run_id
        return self._trajectory.usage_of(child) if child in self._anchors and child else None


def _step_usage(used: StepUsage | None) -> str | None:
    """Return what a step used with its child runs and, if it has any, without them."""
    if used is None or not used.whole.total_tokens:
        return None
    own = f"; without child runs {_usage(used.own) or '0 tokens'}"
    return f"used {_usage(used.whole)}{'' if used.own == used.whole else own}"


def _title(event: RunEnded) -> str:
    return "Passages, not an answer" if event.stop_reason == "passages" else "Answer"


def _usage(usage: Usage | None) -> str:
    if usage is None or not usage.total_tokens:
        return ""
    cost = "" if usage.cost_usd is None else f", {dollars(usage.cost_usd)}"
    return f"{counted(usage.total_tokens, 'token')}{cost}"


def _request_blocks(event: ModelAsked) -> Iterator[Block]:
    sent = [message for message in event.new_messages if message.role != "assistant"]
    if sent:
        count = counted(len(sent), "message")
        yield FoldStart(one_line(f"{count} sent to the model ({event.purpose})"))
        for message in sent:
            yield Passage(message.role, text_of(message.content))
        yield FoldEnd()


def _reply_blocks(event: ModelReplied) -> Iterator[Block]:
    if event.error is not None:
        yield Passage("No reply", event.error)
        return
    if event.reasoning:
        yield FoldStart("reasoning")
        yield Passage("Reasoning", event.reasoning)
        yield FoldEnd()
    purpose = "" if event.purpose == "step" else f" ({event.purpose})"
    yield Passage(one_line(f"Reply{purpose}", TITLE_CHARS), event.text)
    for call in event.tool_calls:
        yield Passage(one_line(f"Native call of {call.name}", TITLE_CHARS), json_of(call.arguments))
    facts = [f"{event.seconds:.2f} s", _usage(event.usage), "stored" if event.stored else ""]
    yield Note(one_line(", ".join(fact for fact in facts if fact)))


def _cell(event: CellStarted | CellOutput | CellEnded) -> Iterator[Block]:
    if isinstance(event, CellStarted):
        yield Passage(f"Cell {event.cell}", event.code, "python")
    elif isinstance(event, CellOutput):
        cut = event.written_chars - len(event.text)
        more = f", {counted(cut, 'more character')} written" if cut > 0 else ""
        yield Passage(f"{event.stream} of cell {event.cell}{more}", event.text)
    else:
        if event.traceback or event.error_message:
            yield Passage("Error", event.traceback or event.error_message or "")
        error = f", {event.error_type}" if event.error_type else ""
        calls = counted(event.calls, "call")
        text = f"cell {event.cell}: {event.seconds:.2f} s, {calls}{error}"
        yield Note(one_line(text), is_trouble=event.error_type is not None)


def _tool(event: ToolCalled) -> Iterator[Block]:
    yield FoldStart(one_line(f"tool {event.name}, {event.seconds:.2f} s"), event.error is not None)
    yield Passage("Arguments", json_of(event.arguments), "json")
    yield Passage("Result" if event.error is None else "Error", event.error or event.result)
    yield FoldEnd()


def _other(event: Any) -> Iterator[Block]:
    if isinstance(event, RunEnded):
        yield Heading(3, "End")
        has_answer = event.answer is not None
        yield Passage(_title(event), event.answer or "") if has_answer else Note("no answer")
        why = event.detail or event.error or event.limit or ""
        parts = (event.stop_reason, _usage(event.usage), f"{event.seconds:.2f} s")
        line = ", ".join(part for part in parts if part)
        yield Note(one_line(f"{line}: {why}" if why else line))
    elif isinstance(event, OutputStreamed):
        yield Passage("Shown to the user", event.text)
    elif isinstance(event, Planned):
        yield Note(one_line(plan(event)))
    elif isinstance(event, DataRead):
        yield Note(data_read(event), is_trouble=event.error is not None)
    elif isinstance(event, Noted):
        yield Note(one_line(f"noted {event.key!r}: {event.value}"))
    elif isinstance(event, SessionLost):
        yield Note(one_line(f"the session was lost: {event.reason}"), is_trouble=True)
    elif isinstance(event, CallRetried):
        yield Note(one_line(f"try {event.attempt} failed: {event.error}"), is_trouble=True)
    elif isinstance(event, Compacted):
        before, after = event.messages_before, event.messages_after
        yield Note(f"the history was shortened from {counted(before, 'message')} to {after:,}")
    elif isinstance(event, Diverged):
        yield FoldStart("on resuming, cells printed something different", is_trouble=True)
        yield Passage("Recorded", event.recorded)
        yield Passage("Now", event.now)
        yield FoldEnd()


_TICKS = re.compile(r"`+")
_MEANING = re.compile(r"([\\`*_\[\]#!|~<>&$@]|:(?=//)|(?<=www)\.|^[-+=]|(?<=\d)[.)](?=\s))")


def markdown(trajectory: Trajectory, runs: list[RunOutline]) -> Iterator[str]:
    """Yield one piece per block."""
    for block in blocks(trajectory, runs):
        yield _in_markdown(block)


def _in_markdown(block: Block) -> str:
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
        return f"<details>\n<summary>{mark}{html_module.escape(block.summary)}</summary>\n\n"
    if isinstance(block, FoldEnd):
        return "</details>\n\n"
    return _markdown_row(block) if isinstance(block, Row) else "\n"


def _markdown_row(row: Row) -> str:
    cells = [inline(cell) for cell in row.cells]
    if row.target:
        cells[0] = f"[{cells[0]}](#{row.target})"
    line = f"| {' | '.join(cells)} |\n"
    return line + "|---" * len(cells) + "|\n" if row.is_head else line


def inline(text: str) -> str:
    """Return text for a line, escaping everything that Markdown would interpret."""
    return _MEANING.sub(r"\\\1", text)


def fenced(text: str, language: str = "text") -> str:
    """Return text in a fence that it cannot close."""
    text = harmless(text)
    longest = max((len(ticks) for ticks in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}\n"


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
"""Nothing may be loaded or run; the only style is ours, identified by its hash."""


def html(trajectory: Trajectory, runs: list[RunOutline]) -> Iterator[str]:
    """Yield one piece per block; a browser shows the beginning while the rest is written."""
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
    yield _in_html(first)
    for block in rest:
        yield _in_html(block)
    yield "</body>\n</html>\n"


def _safe(text: str) -> str:
    """Return escaped text, with control characters made visible."""
    return html_module.escape(harmless(text))


def _in_html(block: Block) -> str:
    if isinstance(block, Heading):
        anchor = f' id="{block.anchor}"' if block.anchor else ""
        return f"<h{block.level}{anchor}>{_safe(block.text)}</h{block.level}>\n"
    if isinstance(block, Passage):
        # Browsers drop a line end right after <pre>: ours protects one at the start of the text.
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
    return _html_row(block) if isinstance(block, Row) else "</table></div>\n"


def _html_row(row: Row) -> str:
    tag = "th" if row.is_head else "td"
    cells = [_linked(row.cells[0], row.target), *(_safe(cell) for cell in row.cells[1:])]
    line = "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>\n"
    return f'<div class="wide"><table>\n{line}' if row.is_head else line


def _linked(text: str, target: str) -> str:
    return f'<a href="#{target}">{_safe(text)}</a>' if target else _safe(text)
