"""A model server that answers from a script over real HTTP, in five dialects, with any fault.

It is for testing programs that speak HTTP to models. `rlm fake-server` serves a file; `FakeServer`
does the same from Python. Nothing is imported before it is used.
"""

from typing import TYPE_CHECKING

from rlm._util.lazy import on_demand

if TYPE_CHECKING:
    from rlm.testing.fake_server.requests import Asked, Received
    from rlm.testing.fake_server.script import BEHAVIOURS, Answer, read_script
    from rlm.testing.fake_server.server import FakeServer

__all__ = ["BEHAVIOURS", "Answer", "Asked", "FakeServer", "Received", "read_script"]

__getattr__, __dir__ = on_demand(
    __name__,
    {
        "BEHAVIOURS": "script",
        "Answer": "script",
        "Asked": "requests",
        "FakeServer": "server",
        "Received": "requests",
        "read_script": "script",
    },
)
