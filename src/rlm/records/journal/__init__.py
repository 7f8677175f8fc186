"""What a run may need again: its replies, turns, events and context, on disk.

A journal is one SQLite file per root run. Whatever was paid for is stored before it is used, so a
killed run can continue where it was: the same requests find their replies there. Nothing is
imported before it is used: most runs are not journaled.
"""

from typing import TYPE_CHECKING

from rlm._util.lazy import on_demand

if TYPE_CHECKING:
    from rlm.records.journal.archive import Archive, Retention, RunSummary, facts_of, fork
    from rlm.records.journal.contexts import ContextFolder
    from rlm.records.journal.facts import Origin, RunFacts
    from rlm.records.journal.journal import Journal, events_after, events_of, long_results
    from rlm.records.journal.keeping import Record, how_to_continue, journaled_run
    from rlm.records.journal.places import Places, RunFile
    from rlm.records.journal.stopping import request_stop, stop_requests

__all__ = [
    "Archive",
    "ContextFolder",
    "Journal",
    "Origin",
    "Places",
    "Record",
    "Retention",
    "RunFacts",
    "RunFile",
    "RunSummary",
    "events_after",
    "events_of",
    "facts_of",
    "fork",
    "how_to_continue",
    "journaled_run",
    "long_results",
    "request_stop",
    "stop_requests",
]

__getattr__, __dir__ = on_demand(
    __name__,
    {
        "Archive": "archive",
        "ContextFolder": "contexts",
        "Journal": "journal",
        "Origin": "facts",
        "Places": "places",
        "Record": "keeping",
        "Retention": "archive",
        "RunFacts": "facts",
        "RunFile": "places",
        "RunSummary": "archive",
        "events_after": "journal",
        "events_of": "journal",
        "facts_of": "archive",
        "fork": "archive",
        "how_to_continue": "keeping",
        "journaled_run": "keeping",
        "long_results": "journal",
        "request_stop": "stopping",
        "stop_requests": "stopping",
    },
)
