"""What a client is told when it can't have what it asked for. No path of this machine is in it."""

__all__ = ["BudgetSpent", "Refused"]


class Refused(Exception):
    """A request that is not granted; the text is written for the model that made it."""


class BudgetSpent(Refused):
    """Nothing more in this session: calls, bytes or seconds are used up."""
