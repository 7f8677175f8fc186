"""Run a recorded trajectory again, offline, and compare.

Models and tools answer from the recording; cells really run. Two executions are the same if each
run and each call has the same content, in whatever order they finished.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

from msgspec import Struct

from rlm.api import RLM
from rlm.context import ContextValue, StoredContext
from rlm.errors import RLMError
from rlm.events import Event
from rlm.messages import Reply
from rlm.portal import portal
from rlm.records.journal import long_results
from rlm.records.recorders.in_process import MemoryRecorder
from rlm.records.trajectories import open_trajectory
from rlm.replay.comparing import Difference, compare
from rlm.replay.rebuilding import check_replayable, config_like, recorded_rlm
from rlm.replay.recording import Recording
from rlm.replay.store import ReplayStore

__all__ = ["Difference", "ReplayReport", "areplay", "replay"]


class ReplayReport(Struct, frozen=True):
    """The result of a replay: how many events were compared, and what differs."""

    run_id: str
    compared: int
    answered: int
    differences: tuple[Difference, ...]

    @property
    def same(self) -> bool:
        return not self.differences


async def areplay(
    recording: str | Path,
    context: ContextValue | StoredContext = None,
    *,
    rlm: RLM | None = None,
) -> ReplayReport:
    """Replay a log or a journal over the context it had; nothing is sent to any model.

    `rlm` is needed for runs with values among their tools or with a custom environment. For a
    resumed run, the last execution is replayed. A turn of a chat raises ConfigError.
    """
    trajectory = open_trajectory(recording)
    resumed = {outline.run_id for outline in trajectory.runs() if outline.attempts > 1}
    return await replay_events(
        list(trajectory.events()),
        context,
        rlm=rlm,
        long_results=long_results(recording),
        resumed=resumed,
    )


def replay(
    recording: str | Path,
    context: ContextValue | StoredContext = None,
    *,
    rlm: RLM | None = None,
) -> ReplayReport:
    """Do the same as `areplay`, and block until it is done."""
    return portal().call(lambda: areplay(recording, context, rlm=rlm))


async def replay_events(
    events: list[Event],
    context: ContextValue | StoredContext,
    *,
    rlm: RLM | None = None,
    long_results: Mapping[str, Reply] | None = None,
    resumed: Collection[str] = (),
) -> ReplayReport:
    recording = Recording(events, resumed)
    root = recording.root
    assert root is not None
    check_replayable(root.run_id, root.settings)
    store, now = ReplayStore(recording, long_results), MemoryRecorder()
    own = rlm is None
    engine = recorded_rlm(root) if rlm is None else rlm
    schema, config = root.settings.get("answer_schema"), config_like(root, engine.config)
    try:
        await engine.runner.repeat(
            root.query,
            context,
            root.run_id,
            store,
            schema,
            now,
            config,
            root.settings.get("operator"),
        )
    except RLMError:
        if not now.events:  # It did not start; otherwise it may have failed in the recording too.
            raise
    finally:
        if own:
            await engine.aclose()
    found, compared = compare(events, now.events)
    return ReplayReport(root.run_id, compared, store.answered, (*store.differences, *found))
