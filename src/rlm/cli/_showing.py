"""What `rlm show` prints, event by event: a trajectory of any size is never held as a whole."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

import click
import msgspec

from rlm.cli._border import say
from rlm.cli._listing import summary_of
from rlm.cli._output import as_harmless_json
from rlm.cli._records import Recorded, archive, find_recorded
from rlm.cli._steps import InFull, InShort
from rlm.cli._table import show_facts
from rlm.errors import ConfigError
from rlm.events import Event, RunEnded, RunStarted
from rlm.records.recorders.console import counted, harmless, one_line
from rlm.records.trajectories import RunOutline, Trajectory, open_trajectory

__all__ = ["show_recorded"]

QUERY_CHARS = 2_000
ANSWER_CHARS = 20_000


def show_recorded(name: str, *, step: int | None, as_json: bool) -> None:
    """One run, or every root run of a log."""
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
    if told := str(trajectory.skipped):
        say(told)


def _chosen(trajectory: Trajectory, recorded: Recorded) -> list[RunOutline]:
    """The run that was named, or all root runs."""
    outlines = trajectory.runs()
    found = [
        each
        for each in outlines
        if (each.run_id == recorded.run_id if recorded.run_id else each.depth == 0)
    ]
    if found or not outlines:
        if not found:
            raise ConfigError(f"no event of a run is in {recorded.path} yet")
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
        about = f", {first.context_description}" if first.context_description else ""
        size = f"{first.context_kind} of {first.context_bytes:,} bytes{about}"
        yield "context", size if first.context_bytes else "none"
    else:
        yield "model", outline.model
    yield "status", _status(outline, recorded)


def _origin(recorded: Recorded, outline: RunOutline) -> str:
    """Of a fork: where it parted."""
    if recorded.run is None or recorded.run.run_id != outline.run_id:
        return ""
    with suppress(ConfigError):
        origin = archive().facts(recorded.run).forked_from
        return f", forked from {origin.run_id} at step {origin.step}" if origin else ""
    return ""


def _status(outline: RunOutline, recorded: Recorded) -> str:
    """What was used so far and, where a journal's lock says it for sure, whether it is running."""
    named = outline.limit and outline.limit != outline.stop_reason
    why = outline.stop_reason + (f" ({outline.limit})" if named else "")
    state = {"killed": "interrupted", "running": "running, or interrupted lately"}
    if recorded.run is not None and outline.run_id == recorded.run.run_id:
        with suppress(ConfigError):
            state["running"] = state["killed"] = summary_of(archive(), recorded.run).status
    cost = "" if outline.cost_usd is None else f", ${outline.cost_usd:.4f}"
    attempts = f", attempt {outline.attempts:,}" if outline.attempts > 1 else ""
    return (
        f"{state.get(outline.status, why)}: {counted(outline.steps, 'step')}, "
        f"{counted(outline.calls, 'call')}, {outline.tokens:,} tokens{cost}, "
        f"{outline.seconds:.1f} s{attempts}"
    )


def _show_answer(ended: RunEnded) -> None:
    click.echo()
    if ended.answer is None:
        click.echo(f"No answer: {one_line(ended.detail or ended.error or ended.stop_reason)}")
        return
    click.echo(f"Answer ({one_line(ended.answer_source)}):")
    click.echo(harmless(ended.answer[:ANSWER_CHARS]))
    if len(ended.answer) > ANSWER_CHARS:
        click.echo(f"… ({len(ended.answer):,} characters in all; --json prints them)")
