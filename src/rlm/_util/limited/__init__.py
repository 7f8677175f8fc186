"""Work on untrusted data in a process with limits, which can be killed at any time.

A schema, a regular expression or a document can take any amount of time and memory. Such work is a
function in its own module, called through `Jobs`: each call runs in a process that was forked in
advance, does this one job and ends. The result is JSON or text, never a pickle. Blocking code uses
`call`; a coroutine uses `acall`, which never blocks the event loop, and cancelling it kills the
process.

If jobs must first open something large, `LimitedObject` keeps a process: a function makes an
object there, its methods are called one after the other, and a call that exceeds a limit ends it.
"""

from typing import TYPE_CHECKING

from rlm._util.lazy import on_demand

if TYPE_CHECKING:
    from rlm._util.limited._jobs import Collected, Jobs, owner
    from rlm._util.limited._limits import JobLimits, JobStopped
    from rlm._util.limited._objects import LimitedObject
    from rlm._util.limited._threads import Stop, Unwanted, calling_on_stop, check_wanted, in_thread

__all__ = [
    "Collected",
    "JobLimits",
    "JobStopped",
    "Jobs",
    "LimitedObject",
    "Stop",
    "Unwanted",
    "calling_on_stop",
    "check_wanted",
    "in_thread",
    "owner",
]

__getattr__, __dir__ = on_demand(
    __name__,
    {
        **dict.fromkeys(("Collected", "Jobs", "owner"), "_jobs"),
        **dict.fromkeys(("JobLimits", "JobStopped"), "_limits"),
        "LimitedObject": "_objects",
        **dict.fromkeys(
            ("Stop", "Unwanted", "calling_on_stop", "check_wanted", "in_thread"), "_threads"
        ),
    },
)
