"""How fast requests may go: what a server takes, what it allows a minute, how long we wait."""

from rlm.calls.pacing.deadlines import Deadlines, TimeLimit
from rlm.calls.pacing.lanes import Lane
from rlm.calls.pacing.ratelimits import Charge, RateGate, RateLimit

__all__ = ["Charge", "Deadlines", "Lane", "RateGate", "RateLimit", "TimeLimit"]
