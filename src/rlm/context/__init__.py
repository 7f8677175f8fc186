"""What users hand in becomes one stored blob, described by structure only.

The blob is encoded once per run; every session of the tree is fed from it. Its text never enters
a message or a log: those hold its hash, size and description.
"""

from rlm.context.describe import describe
from rlm.context.store import ContextValue, StoredContext, store_context

__all__ = ["ContextValue", "StoredContext", "describe", "store_context"]
