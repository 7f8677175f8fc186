"""Split, filter, map and merge without any model-written code.

This is for models that can't write code and for runs that are stuck. `running.py` asks which kind
of answer is wanted and cuts the context accordingly (`pieces.py`), models read the pieces
(`asking.py`), and code merges their replies where it can (`merging.py`). Every call goes through
calls.py, so the limits apply here too.
"""

from typing import TYPE_CHECKING

from rlm._util.lazy import on_demand

if TYPE_CHECKING:
    from rlm.engine.mapreduce.running import map_reduce

__all__ = ["map_reduce"]

__getattr__, __dir__ = on_demand(__name__, {"map_reduce": "running"})
