"""Thousands of queries, each with its own context, from one file into another.

`rows.py` reads them, `running.py` asks them concurrently, `outcomes.py` stores the results, and
`folder.py` writes the answers in the order of the rows.
"""

from rlm.batch.folder import BatchFolder
from rlm.batch.rows import BadRowsError
from rlm.batch.running import Batch, Plan, Tally

__all__ = ["BadRowsError", "Batch", "BatchFolder", "Plan", "Tally"]
