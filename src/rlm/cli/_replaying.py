"""Execute a recorded run again for `rlm replay`, and show the first difference."""

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from rlm._util.text import counted
from rlm.cli._context import context_of
from rlm.cli._errors import ANSWERED, FAILED, say
from rlm.cli._output import as_harmless_json
from rlm.cli._records import Recorded, archive, find_recorded
from rlm.context import StoredContext
from rlm.errors import ConfigError
from rlm.events import ContextHashed, RunStarted
from rlm.records.journal.facts import ContextFacts
from rlm.records.recorders.console import harmless, one_line
from rlm.records.trajectories import open_trajectory
from rlm.replay import ReplayReport, replay
from rlm.replay.rebuilding import check_replayable

__all__ = ["replay_recorded"]


def replay_recorded(name: str, files: tuple[str, ...], *, as_json: bool) -> int:
    """Replay a run, show the report, and return the exit code."""
    recorded = find_recorded(name)
    started = _start_of(recorded)
    if recorded.run is None:
        _check_options(started, recorded.path)
    else:  # The first version of the journal did not record it in the settings.
        in_chat = archive().facts(recorded.run).in_chat
        check_replayable(recorded.run.run_id, {"in_chat": in_chat})
    context: Any = context_of(files) if files else _kept_context(recorded, started)
    logging.getLogger("rlm").addHandler(
        logging.NullHandler()
    )  # No model is called, so there are no notices.
    report = replay(recorded.path, context)
    if as_json:
        click.echo(as_harmless_json(_facts(report)))
    else:
        _show(report)
    return ANSWERED if report.same else FAILED


def _start_of(recorded: Recorded) -> RunStarted:
    """Return the first event of the root run; a record of several runs is ambiguous."""
    trajectory = open_trajectory(recorded.path)
    roots = [outline.run_id for outline in trajectory.runs() if outline.depth == 0]
    if len(roots) > 1:
        raise ConfigError(
            f"{recorded.path} contains {len(roots)} runs; name a log that contains one"
        )
    if recorded.run_id is not None and recorded.run_id not in roots:
        raise ConfigError(
            f"run {recorded.run_id} is a child run, which is replayed with the run that it "
            "belongs to; leave out the last part of its id"
        )
    started: RunStarted | None = None
    for event in trajectory.events():
        if isinstance(event, RunStarted) and event.run_id in roots:
            started = event
            if started.context_sha256:
                return started
        elif isinstance(event, ContextHashed) and started and event.run_id == started.run_id:
            return replace(started, context_sha256=event.context_sha256)
    if started is not None:
        return started
    raise ConfigError(f"{recorded.path} contains no run; name a run, or a log that rlm wrote")


def _check_options(started: RunStarted, path: Path) -> None:
    """Refuse options in a log: it may be someone else's, and must not weaken the sandbox."""
    if options := started.settings.get("environment_kwargs"):
        names = ", ".join(options) if isinstance(options, dict) else repr(options)
        raise ConfigError(
            f"{path} sets options of the environment ({one_line(names, 80)}), which a log may not "
            "choose; replay it from Python: rlm.replay.replay(path, context, rlm=RLM(…))"
        )


def _kept_context(recorded: Recorded, started: RunStarted) -> StoredContext | None:
    """Return the stored context of the run, by its id or by the hash of the context."""
    kept = archive()
    run = recorded.run
    if run is None:
        with suppress(ConfigError, OSError):
            run = kept.places.find(started.run_id)
    try:
        if run is not None:
            return kept.context_of(kept.facts(run))
        if not started.context_bytes:
            return None
        if started.context_kind not in {"text", "json", "bytes"}:
            raise ConfigError(f"there is no context of kind {started.context_kind!r}")
        kind: Any = started.context_kind
        facts = ContextFacts(
            kind, started.context_sha256, started.context_bytes, started.context_description
        )
        return kept.contexts.restore(facts)
    except ConfigError as error:
        raise ConfigError(f"{error} with -f FILE") from error


# -- telling --------------------------------------------------------------------------------------


def _facts(report: ReplayReport) -> dict[str, Any]:
    return {
        "run_id": report.run_id,
        "same": report.same,
        "compared": report.compared,
        "answered": report.answered,
        "differences": [{"where": each.where, "diff": each.diff} for each in report.differences],
    }


def _show(report: ReplayReport) -> None:
    done = (
        f"{counted(report.compared, 'event')} compared, "
        f"{counted(report.answered, 'request')} answered from the record"
    )
    if report.same:
        click.echo(one_line(f"OK: run {report.run_id} was replayed without a difference; {done}."))
        return
    first = report.differences[0]
    click.echo(one_line(f"Diverged: {first.where}"))
    for line in harmless(first.diff).splitlines():
        click.echo(f"  {line}")
    more = len(report.differences) - 1
    others = f"; {counted(more, 'more difference')}, which --json lists" if more else ""
    say(f"{done}{others}.")
