"""For tests of programs that use rlm: scripted models, a fake server, suites for environments."""

from typing import TYPE_CHECKING

from rlm._util.lazy import on_demand

if TYPE_CHECKING:
    from rlm.testing.fake_server import FakeServer
    from rlm.testing.scripted import ScriptedClient

__all__ = ["FakeServer", "ScriptedClient"]

__getattr__, __dir__ = on_demand(
    __name__, {"FakeServer": "fake_server", "ScriptedClient": "scripted"}
)
