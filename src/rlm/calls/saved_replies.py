"""Replies that were paid for by a cell whose session was lost: whoever asks again gets them.

The variables of such a cell are gone, and most models run it again, with the same calls. What those
obtained the first time is served from here, in memory; on disk it is the journal that remembers.
"""

from collections import deque

from rlm.messages import Reply

__all__ = ["Obtained"]


class Obtained:
    """Replies by what was asked, and what child runs obtained by what they were asked.

    Every reply is added and hardly one is taken: so they are put in order when one is.
    """

    def __init__(self) -> None:
        self._added: list[tuple[str, Reply | Obtained]] = []
        self._replies: dict[str, deque[Reply]] = {}
        self._children: dict[str, deque[Obtained]] = {}

    def add(self, digest: str, reply: Reply) -> None:
        self._added.append((digest, reply))

    def add_child(self, digest: str, child: "Obtained") -> None:
        """What this child obtains, also what it will."""
        self._added.append((digest, child))

    def add_all(self, other: "Obtained") -> None:
        """All that nobody has taken from there."""
        for kept in (other._replies, other._children):
            self._added += [(digest, each) for digest, many in kept.items() for each in many]
        self._added += other._added

    def take(self, digest: str) -> Reply | None:
        """A reply to this, which nobody else gets then."""
        self._put_in_order()
        replies = self._replies.get(digest)
        return replies.popleft() if replies else None

    def take_child(self, digest: str) -> "Obtained":
        """What a child that was asked this obtained; nothing if there was none."""
        self._put_in_order()
        children = self._children.get(digest)
        return children.popleft() if children else Obtained()

    def _put_in_order(self) -> None:
        for digest, each in self._added:
            if isinstance(each, Reply):
                self._replies.setdefault(digest, deque()).append(each)
            else:
                self._children.setdefault(digest, deque()).append(each)
        self._added.clear()
