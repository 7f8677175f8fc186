"""`rlm bench`: tasks with exact answers, run through the engine, scored and reported.

A task makes its samples offline, from a seed. To add one, derive from `Task` and `register` it, or
name it on the command line as `file.py:Class`.
"""

from rlm.bench.random_text import Dice
from rlm.bench.registry import find_tasks, known_tasks, register
from rlm.bench.task import Labelling, Sample, Task

__all__ = ["Dice", "Labelling", "Sample", "Task", "find_tasks", "known_tasks", "register"]
