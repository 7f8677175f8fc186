"""A chat beyond its turns: what it spends, and one file that holds all of it."""

from rlm.chat.keeping import Keeper, Loaded
from rlm.chat.saved import TurnSummary
from rlm.chat.turns import Meter, Spending, messages_in

__all__ = [
    "Keeper",
    "Loaded",
    "Meter",
    "Spending",
    "TurnSummary",
    "messages_in",
]
