"""For tests of programs that use rlm: scripted and noisy models, a fake server, suites."""

from typing import TYPE_CHECKING

from rlm._util.lazy import on_demand

if TYPE_CHECKING:
    from rlm.testing.fake_server import FakeServer
    from rlm.testing.noisy_oracle import NoisyOracle
    from rlm.testing.scripted import ScriptedClient

__all__ = ["FakeServer", "NoisyOracle", "ScriptedClient"]

__getattr__, __dir__ = on_demand(
    __name__,
    {"FakeServer": "fake_server", "NoisyOracle": "noisy_oracle", "ScriptedClient": "scripted"},
)
