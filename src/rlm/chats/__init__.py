"""A chat beyond its turns: what it spends, and one file that holds all of it."""

from rlm.chats.keeping import Keeper, Loaded
from rlm.chats.saved import TurnSummary
from rlm.chats.turns import Meter, Spending, messages_in

__all__ = [
    "Keeper",
    "Loaded",
    "Meter",
    "Spending",
    "TurnSummary",
    "messages_in",
]
