"""Replies that were paid for by a cell whose session was lost: whoever asks again gets them.

The variables of such a cell are gone, and most models run it again, with the same calls. What those
obtained the first time is served from here, in memory; on disk it is the journal that remembers.
"""

from collections import defaultdict, deque

from rlm.messages import Reply

__all__ = ["Obtained"]


class Obtained:
    """Replies by what was asked, and what child runs obtained by what they were asked."""

    def __init__(self) -> None:
        self._replies: defaultdict[str, deque[Reply]] = defaultdict(deque)
        self._children: defaultdict[str, deque[Obtained]] = defaultdict(deque)

    def add(self, digest: str, reply: Reply) -> None:
        self._replies[digest].append(reply)

    def add_child(self, digest: str, child: "Obtained") -> None:
        """What this child obtains, also what it will."""
        self._children[digest].append(child)

    def add_all(self, other: "Obtained") -> None:
        for digest, replies in other._replies.items():
            self._replies[digest] += replies
        for digest, children in other._children.items():
            self._children[digest] += children

    def take(self, digest: str) -> Reply | None:
        """A reply to this, which nobody else gets then."""
        replies = self._replies.get(digest)
        return replies.popleft() if replies else None

    def take_child(self, digest: str) -> "Obtained":
        """What a child that was asked this obtained; nothing if there was none."""
        children = self._children.get(digest)
        return children.popleft() if children else Obtained()
