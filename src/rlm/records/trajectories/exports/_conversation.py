"""What a model was told at each request, put together again from the events of one run."""

from rlm.events import ModelAsked, ModelReplied
from rlm.messages import Message

__all__ = ["Conversation"]


class Conversation:
    """The messages of one run. A log has only what each request added to the one before."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._sent = 0

    def ask(self, event: ModelAsked) -> list[Message]:
        """Take in a request. What came before is given back if this one does not go on from it.

        That is so after a compaction, and for requests that stand alone.
        """
        base = max(0, event.message_count - len(event.new_messages))
        before = self.messages
        self.messages = [*before[:base], *event.new_messages]
        goes_on = before[: self._sent] == self.messages[: self._sent]
        self._sent = len(self.messages)
        return [] if goes_on else finished(before)

    def reply(self, event: ModelReplied) -> None:
        """Take in a reply. If the model was then asked anew, the next request leaves it out."""
        if event.error is None:
            self.messages.append(
                Message("assistant", event.text, tool_calls=tuple(event.tool_calls))
            )


def finished(messages: list[Message]) -> list[Message]:
    """The conversation up to its last reply; empty if there was none."""
    last = max((at for at, each in enumerate(messages) if each.role == "assistant"), default=-1)
    return messages[: last + 1]
