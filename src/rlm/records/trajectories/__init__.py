"""Read what runs left behind: logs, journals, and logs of the reference engine.

`open_trajectory` yields the events of a file or folder without keeping all of them in memory.
"""

from rlm.records.trajectories.decoding import Skipped
from rlm.records.trajectories.index import RunOutline, StepUsage
from rlm.records.trajectories.read import Trajectory, open_trajectories, open_trajectory

__all__ = [
    "RunOutline",
    "Skipped",
    "StepUsage",
    "Trajectory",
    "open_trajectories",
    "open_trajectory",
]
