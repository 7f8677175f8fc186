"""Errors for clients. They contain no path of this machine."""

__all__ = ["BudgetSpent", "Refused"]


class Refused(Exception):
    """A request that is not granted; the text is written for the model that made it."""


class BudgetSpent(Refused):
    """The calls, bytes, seconds, runs or money of a session are used up."""
