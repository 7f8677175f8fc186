"""Thousands of queries, each over a context of its own, from one file into another.

`rows.py` reads them, `running.py` asks them side by side, `table.py` keeps what came of them, and
`ordered.py` writes it down in the order of the rows.
"""

from rlm.batch.folder import BatchFolder
from rlm.batch.running import Batch, Plan, Tally

__all__ = ["Batch", "BatchFolder", "Plan", "Tally"]
