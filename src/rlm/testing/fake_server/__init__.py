"""A model server that answers from a script over real HTTP, in four dialects, however wrong.

Product code: it is how programs that speak HTTP to models are tested. `rlm fake-server` serves a
file; `FakeServer` serves the same from Python. Nothing is imported before it is asked for.
"""

from typing import TYPE_CHECKING

from rlm._util.lazy import on_demand

if TYPE_CHECKING:
    from rlm.testing.fake_server.asked import Asked
    from rlm.testing.fake_server.received import Received
    from rlm.testing.fake_server.script import BEHAVIOURS, Answer
    from rlm.testing.fake_server.script_files import read_script
    from rlm.testing.fake_server.server import FakeServer

__all__ = ["BEHAVIOURS", "Answer", "Asked", "FakeServer", "Received", "read_script"]

__getattr__, __dir__ = on_demand(
    __name__,
    {
        "BEHAVIOURS": "script",
        "Answer": "script",
        "Asked": "asked",
        "FakeServer": "server",
        "Received": "received",
        "read_script": "script_files",
    },
)
