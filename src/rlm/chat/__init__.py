"""Chats: what they spend, and the file that stores them."""

from rlm.chat.saved import TurnSummary
from rlm.chat.storage import ChatStorage, Loaded
from rlm.chat.turns import Spending, messages_in

__all__ = [
    "ChatStorage",
    "Loaded",
    "Spending",
    "TurnSummary",
    "messages_in",
]
