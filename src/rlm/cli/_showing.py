"""Print a recorded run for `rlm show`, event by event, without holding it in memory."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain

import click
import msgspec

from rlm._util.text import cost_words, counted
from rlm.citations import footnotes, warning_of
from rlm.cli._errors import say
from rlm.cli._listing import summary_of
from rlm.cli._output import as_harmless_json, show_facts, with_places
from rlm.cli._records import Recorded, archive, find_recorded
from rlm.errors import ConfigError
from rlm.events import (
    DATA,
    CallEnded,
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
    OperatorEnded,
    OutputStreamed,
    Planned,
    RunEnded,
    RunStarted,
    SessionLost,
    StepStarted,
    ToolCalled,
)
from rlm.messages import Message, Usage
from rlm.records.recorders.console import data_read, divergence, harmless, loss, one_line, plan
from rlm.records.trajectories import RunOutline, StepUsage, Trajectory, open_trajectory

__all__ = ["InFull", "InShort", "show_recorded"]

CODE_LINES, OUTPUT_LINES = 12, 8
TEXT_CHARS = 4_000
"""Characters of a cell's code or output that are split into lines."""

SHOWN_CALLS = 3
PROMPT_CHARS, REPLY_CHARS = 60, 80
OPEN_CALLS = 1_000
"""The number of open prompts whose beginning is remembered."""


class InShort:
    """Print each step with a few lines of its code, output and calls."""

    def __init__(self, used: Mapping[int, StepUsage]) -> None:
        self._used = used
        self._prompts: dict[str, str] = {}
        self._calls: list[str] = []
        self._unsummed: Counter[str] = Counter()
        """Requests for data that no `DataRead` has summed up: older versions wrote none."""
        self._counts: Counter[str] = Counter()

    def add(self, event: Event) -> None:
        if isinstance(event, StepStarted):
            self.finish()
            click.echo(f"\nstep {event.step}{_step_usage(self._used.get(event.step))}")
        elif isinstance(event, ModelReplied):
            _echo(f"  {_reply_head(event)}")
        elif isinstance(event, CellStarted):
            _echo_text(event.code, "  > ", CODE_LINES)
        elif isinstance(event, CellOutput):
            _echo_text(event.text, "  | ", OUTPUT_LINES, event.written_chars)
        elif isinstance(event, CellEnded):
            self.finish()
            if event.error_type:
                _echo(f"  ! {event.error_type}: {event.error_message}")
        else:
            self._note(event)

    def finish(self) -> None:
        """Print the calls since a cell began, the first few one by one."""
        for name, count in self._unsummed.items():
            _echo(f"  {name}: {counted(count, 'request')}")
        self._unsummed.clear()
        for line in self._calls:
            _echo(line)
        totals = [f"{count:,} {what}" for what, count in self._counts.items()]
        if more := sum(self._counts[each] for each in ("llm", "rlm", "tool")) - len(self._calls):
            _echo(f"  … {counted(more, 'more call')} ({', '.join(totals)} in all)")
        self._prompts.clear()
        self._calls.clear()
        self._counts.clear()

    def _note(self, event: Event) -> None:
        if isinstance(event, CallStarted):
            if len(self._prompts) < OPEN_CALLS:
                self._prompts[event.call_id] = event.prompt[:TEXT_CHARS]
        elif isinstance(event, CallEnded):
            prompt = self._prompts.pop(event.call_id, "")
            self._count(event.kind, event.error)
            if len(self._calls) < SHOWN_CALLS:
                self._calls.append(_call_line(event, prompt))
        elif isinstance(event, ToolCalled):
            self._tool(event)
        elif isinstance(event, DataRead):
            self._unsummed.pop(f"{DATA}{event.method}", None)
            _echo(f"  {data_read(event)}")
        elif (line := _notable(event)) is not None:
            _echo(f"  {line}")

    def _tool(self, event: ToolCalled) -> None:
        if event.name.startswith(DATA):
            self._unsummed[event.name[:PROMPT_CHARS]] += 1
            return
        self._count("tool", event.error)
        if len(self._calls) < SHOWN_CALLS:
            self._calls.append(f"  tool {event.name}: {_outcome(event.result, event.error)}")

    def _count(self, kind: str, error: str | None) -> None:
        self._counts[kind] += 1
        if error is not None:
            self._counts["failed"] += 1


class InFull:
    """Print one step with all of its text, and each call's beginning and end."""

    def __init__(self, used: Mapping[int, StepUsage]) -> None:
        self._used = used

    def add(self, event: Event) -> None:
        if isinstance(event, StepStarted):
            used = _step_usage(self._used.get(event.step))
            _head(f"step {event.step} of run {event.run_id}{used}")
        elif isinstance(event, ModelAsked):
            messages = counted(event.message_count, "message")
            _head(f"asked {event.model} ({event.purpose}), {messages}; new:")
            for message in event.new_messages:
                if message.role != "assistant":  # Those are replies, which were shown already.
                    _whole(_content(message), f"[{message.role}]")
        elif isinstance(event, ModelReplied):
            _head(_reply_head(event))
            _whole(event.reasoning, "thinking:")
            _whole(event.text)
            for call in event.tool_calls:
                _whole(f"{call.name}({call.arguments})")
        elif isinstance(event, CellStarted):
            _head(f"cell {event.cell} runs:")
            _whole(event.code)
        elif isinstance(event, CellOutput):
            kept = "" if event.written_chars <= len(event.text) else ", only the beginning"
            _head(f"cell {event.cell} wrote to {event.stream}{kept}:")
            _whole(event.text)
        elif isinstance(event, CellEnded):
            self._cell_ended(event)
        else:
            self._call(event)

    def _cell_ended(self, event: CellEnded) -> None:
        _head(f"cell {event.cell} ended: {event.seconds:.2f} s, {counted(event.calls, 'call')}")
        for name, description in {**event.new_variables, **event.changed_variables}.items():
            _echo(f"{name}: {description}")
        if event.error_type:
            _whole(event.traceback or f"{event.error_type}: {event.error_message}")

    def _call(self, event: Event) -> None:
        if isinstance(event, CallStarted):
            _head(f"call {_end(event.call_id)} ({event.kind}) asks {event.model}:")
            _whole(event.prompt)
        elif isinstance(event, CallEnded):
            child = f", by run {event.child_run_id}" if event.child_run_id else ""
            _head(f"call {_end(event.call_id)} ended{child}: {_cost(event.usage, event.seconds)}")
            _whole(event.reply if event.error is None else f"failed: {event.error}")
        elif isinstance(event, ToolCalled):
            _head(f"tool {event.name}({event.arguments}): {event.seconds:.2f} s")
            _whole(event.result if event.error is None else f"failed: {event.error}")
        elif isinstance(event, RunEnded):
            _head(f"run {event.run_id} ended: {event.stop_reason}")
            _whole(event.answer or event.detail)
        elif (line := _notable(event)) is not None:
            _head(line)


# -- pieces ---------------------------------------------------------------------------------------


def _notable(event: Event) -> str | None:
    if isinstance(event, SessionLost):
        return loss(event)
    if isinstance(event, Diverged):
        return divergence(event)
    if isinstance(event, Planned):
        return plan(event)
    if isinstance(event, DataRead):
        return data_read(event)
    if isinstance(event, OperatorEnded):
        return event.summary if event.error is None else f"{event.summary}; failed: {event.error}"
    if isinstance(event, Compacted):
        before, after = event.messages_before, event.messages_after
        return f"the history was shortened from {counted(before, 'message')} to {after}"
    if isinstance(event, OutputStreamed):
        return f"shown to the user: {one_line(event.text, REPLY_CHARS)!r}"
    if isinstance(event, Noted):
        return f"noted {one_line(event.key, PROMPT_CHARS)!r}: {one_line(event.value, REPLY_CHARS)}"
    return None


def _reply_head(event: ModelReplied) -> str:
    what = "" if event.purpose == "step" else f" ({event.purpose})"
    if event.error is not None:
        return f"{event.model} failed{what}: {event.error}"
    stored = ", from the journal" if event.stored else ""
    return f"{event.model} replied{what}: {_cost(event.usage, event.seconds)}{stored}"


def _call_line(event: CallEnded, prompt: str) -> str:
    child = f" (run {event.child_run_id})" if event.child_run_id else ""
    asked = one_line(prompt, PROMPT_CHARS)
    return f"  {event.kind} {asked!r}{child}: {_outcome(event.reply, event.error)}"


def _outcome(text: str, error: str | None) -> str:
    return one_line(text, REPLY_CHARS) if error is None else one_line(f"failed: {error}")


def _step_usage(used: StepUsage | None) -> str:
    """Return what a step used with its child runs and, if it has any, without them."""
    if used is None or not used.whole.total_tokens:
        return ""
    own = "" if used.own == used.whole else f"; without child runs {_tokens(used.own)}"
    return f": {_tokens(used.whole)}{own}"


def _tokens(usage: Usage) -> str:
    cost = "" if usage.cost_usd is None else f", ${usage.cost_usd:.4f}"
    return f"{counted(usage.total_tokens, 'token')}{cost}"


def _cost(usage: Usage | None, seconds: float) -> str:
    return f"{seconds:.2f} s" if usage is None else f"{_tokens(usage)}, {seconds:.2f} s"


def _content(message: Message) -> str:
    """Return the text of a message; pictures are named."""
    if isinstance(message.content, str):
        return message.content
    parts = message.content
    return "\n".join(str(part.get("text", f"({part.get('type', 'part')})")) for part in parts)


def _end(call_id: str) -> str:
    """Return a call's id without that of its run."""
    return ".".join(call_id.rsplit(".", 2)[1:]) or call_id


def _head(text: str) -> None:
    _echo(f"-- {text}")


def _echo(line: str) -> None:
    """Print one harmless line with its indent."""
    indent = len(line) - len(line.lstrip(" "))
    click.echo(" " * indent + one_line(line))


def _whole(text: str, head: str = "") -> None:
    """Print all of a text, indented further than our own lines."""
    if text:
        shown = harmless(f"{head}\n{text}" if head else text)
        click.echo(textwrap.indent(shown, "   ", lambda _: True))


def _echo_text(text: str, mark: str, max_lines: int, written_chars: int = 0) -> None:
    """Print the first lines of a text behind a mark, and its size."""
    lines = harmless(text[:TEXT_CHARS]).splitlines()
    for line in lines[:max_lines]:
        click.echo(mark + (line if len(line) <= 200 else f"{line[:199]}…"))
    size = max(len(text), written_chars)
    if len(lines) > max_lines or size > TEXT_CHARS:
        click.echo(f"{mark}… ({size:,} characters in total)")


QUERY_CHARS = 2_000
ANSWER_CHARS = 20_000


def show_recorded(name: str, *, step: int | None, as_json: bool) -> None:
    """Show one run, or every root run of a log."""
    recorded = find_recorded(name)
    trajectory = open_trajectory(recorded.path)
    if as_json:
        for event in _events(trajectory, recorded, step):
            click.echo(as_harmless_json(msgspec.to_builtins(event)))
    else:
        for number, outline in enumerate(_chosen(trajectory, recorded)):
            if number:
                click.echo()
            _show_run(trajectory, outline, recorded, step)
    if warning := str(trajectory.skipped):
        say(warning)


def _chosen(trajectory: Trajectory, recorded: Recorded) -> list[RunOutline]:
    """Return the named run, or all root runs."""
    outlines = trajectory.runs()
    found = [
        each
        for each in outlines
        if (each.run_id == recorded.run_id if recorded.run_id else each.depth == 0)
    ]
    if found or not outlines:
        if not found and recorded.run is not None:  # a fork, or killed at once
            raise ConfigError(
                f"run {recorded.run.run_id} has not begun: start it with "
                f"`rlm resume {recorded.run.run_id}`"
            )
        if not found:
            raise ConfigError(f"{recorded.path} does not contain any events of a run yet")
        return found
    raise ConfigError(f"run {recorded.run_id} is not in {recorded.path}; leave out its last part")


def _events(trajectory: Trajectory, recorded: Recorded, step: int | None) -> Iterator[Event]:
    if step is not None:
        for outline in _chosen(trajectory, recorded):
            yield from trajectory.step_events(outline.run_id, step)
    elif recorded.run is not None and recorded.run_id == recorded.run.run_id:
        yield from trajectory.events()
    elif recorded.run_id is not None:
        yield from trajectory.run_events(recorded.run_id)
    else:
        yield from trajectory.events()


# -- one run --------------------------------------------------------------------------------------


def _show_run(
    trajectory: Trajectory, outline: RunOutline, recorded: Recorded, step: int | None
) -> None:
    if step is not None:
        _show_step(trajectory, outline, step)
        return
    events = trajectory.run_events(outline.run_id)
    first = next(events, None)
    show_facts(_facts(outline, first, recorded))
    shown, ended = InShort(trajectory.step_usages(outline.run_id)), None
    for event in events if first is None else chain([first], events):
        shown.add(event)
        ended = event if isinstance(event, RunEnded) else ended
    shown.finish()
    if ended is not None:
        _show_answer(ended)


def _show_step(trajectory: Trajectory, outline: RunOutline, step: int) -> None:
    events = trajectory.step_events(outline.run_id, step)
    first = next(events, None)
    if first is None:
        steps = trajectory.steps(outline.run_id)
        raise ConfigError(
            f"run {outline.run_id} has no step {step}; its steps are 0 to {max(steps, default=0)}"
        )
    shown = InFull(trajectory.step_usages(outline.run_id))
    for event in chain([first], events):
        shown.add(event)


def _facts(
    outline: RunOutline, first: Event | None, recorded: Recorded
) -> Iterator[tuple[str, str]]:
    yield "run", outline.run_id + _origin(recorded, outline)
    if outline.parent_id is not None:
        yield "parent", outline.parent_id
    yield "query", one_line(outline.query, QUERY_CHARS)
    if isinstance(first, RunStarted):
        calls = "" if first.sub_model == first.model else f"; for calls {first.sub_model}"
        yield "model", f"{first.model}{calls}; strategy {first.strategy}"
        about = f"text of {counted(first.context_bytes, 'byte')}, {first.context_description}"
        if first.context_kind != "text":  # Its bytes are those of an encoding.
            about = first.context_description or first.context_kind
        yield "context", about if first.context_bytes else "none"
    else:
        yield "model", outline.model
    yield "status", _status(outline, recorded)


def _origin(recorded: Recorded, outline: RunOutline) -> str:
    """Return where a fork began."""
    if recorded.run is None or recorded.run.run_id != outline.run_id:
        return ""
    with suppress(ConfigError):
        origin = archive().facts(recorded.run).forked_from
        return f", forked from {origin.run_id} at step {origin.step}" if origin else ""
    return ""


def _status(outline: RunOutline, recorded: Recorded) -> str:
    """Return what was used so far and, if the journal's lock shows it, whether it is running."""
    named = outline.limit and outline.limit != outline.stop_reason
    why = outline.stop_reason + (f" ({outline.limit})" if named else "")
    state = {"interrupted": "interrupted", "running": "running, or recently interrupted"}
    if recorded.run is not None and outline.run_id == recorded.run.run_id:
        with suppress(ConfigError):
            state["running"] = state["interrupted"] = summary_of(archive(), recorded.run).status
    attempts = f", attempt {outline.attempts:,}" if outline.attempts > 1 else ""
    return (
        f"{state.get(outline.status, why)}: {counted(outline.steps, 'step')}, "
        f"{counted(outline.calls, 'call')}, {counted(outline.tokens, 'token')}, "
        f"{cost_words(outline.cost_usd)}, {outline.seconds:.1f} s{attempts}"
    )


def _show_answer(ended: RunEnded) -> None:
    click.echo()
    if ended.answer is None:
        click.echo(f"No answer: {one_line(ended.detail or ended.error or ended.stop_reason)}")
        return
    what = "Passages" if ended.stop_reason == "passages" else "Answer"
    click.echo(f"{what} ({one_line(ended.answer_source)}):")
    answer = with_places(ended.answer[:ANSWER_CHARS], ended.stop_reason, ended.citations)
    click.echo(harmless(answer))
    if len(ended.answer) > ANSWER_CHARS:
        click.echo(f"… ({len(ended.answer):,} characters in all; --json prints them)")
    for line in footnotes(ended.citations):
        click.echo(harmless(line))
    if ended.unsupported_quotes:
        click.echo(warning_of(ended.unsupported_quotes))
