"""What a run may need again: its replies, its turns, its events and its context, on disk.

A journal is one SQLite file a root run. Whatever was paid for is in it before it is used, so a
process that is killed can go on where it was: the same requests find their replies there.
"""

from rlm.journal.contexts import ContextFolder
from rlm.journal.journal import Journal, Turn
from rlm.journal.places import Places, RunFile

__all__ = ["ContextFolder", "Journal", "Places", "RunFile", "Turn"]
