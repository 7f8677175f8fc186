"""Split → filter → map → merge, owned by the engine: no model-written code at all.

For models that can't write code, and for runs that are stuck. `kinds.py` finds out what is asked
for, `planning.py` cuts the context accordingly, models read the pieces (`asking.py`), and what they
say is put together by code wherever code can do it (`merging.py`). Every call goes through
calls.py, so the budget holds here as everywhere.
"""

from rlm.engine.mapreduce.running import map_reduce

__all__ = ["map_reduce"]
