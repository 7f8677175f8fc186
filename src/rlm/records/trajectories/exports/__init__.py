"""Export trajectories: training rows, a report for people, the reference engine's log.

Every format is written piece by piece, so a run of any size can be exported.
"""

from collections.abc import Callable, Collection, Iterator

from msgspec import Struct

from rlm.errors import ConfigError
from rlm.records.trajectories.exports._reference import reference_jsonl
from rlm.records.trajectories.exports._report import html, markdown
from rlm.records.trajectories.exports._texts import clock_time, in_tree_order
from rlm.records.trajectories.exports._training import openai_chat, sft, trl
from rlm.records.trajectories.index import RunOutline
from rlm.records.trajectories.read import Trajectory

__all__ = ["FORMATS", "Format", "clock_time", "export"]


class Format(Struct, frozen=True):
    """One format: its purpose, the suffix of its files, and its writer."""

    description: str
    ending: str
    write: Callable[[Trajectory, list[RunOutline]], Iterator[str]]


FORMATS: dict[str, Format] = {
    "sft": Format("one row per reply, with what it answers and where it comes from", ".jsonl", sft),
    "trl": Format("one row per reply, in the columns that TRL and datasets read", ".jsonl", trl),
    "openai-chat": Format(
        "one conversation per run, for OpenAI fine-tuning", ".jsonl", openai_chat
    ),
    "markdown": Format("a readable report", ".md", markdown),
    "html": Format("a self-contained report that runs no code and loads nothing", ".html", html),
    "reference-jsonl": Format("a log in the reference engine's format", ".jsonl", reference_jsonl),
}


def export(
    trajectory: Trajectory,
    format: str,  # noqa: A002
    *,
    run_id: str | None = None,
    run_ids: Collection[str] | None = None,
) -> Iterator[str]:
    """Yield the text in pieces; `run_id` or `run_ids` select runs and those below them."""
    if format not in FORMATS:
        raise ConfigError(f"unknown format {format!r}; formats: {', '.join(FORMATS)}")
    only = run_ids if run_id is None else {run_id}
    runs = in_tree_order(trajectory.runs(), only)
    if not runs:
        what = "no run" if run_id is None else f"no run {run_id!r}"
        why = f" ({trajectory.skipped})" if trajectory.skipped.total else ""
        raise ConfigError(f"found {what} to export in {_places(trajectory)}{why}")
    return FORMATS[format].write(trajectory, runs)


def _places(trajectory: Trajectory) -> str:
    paths = trajectory.paths
    return str(paths[0]) if len(paths) == 1 else f"these {len(paths):,} files"
