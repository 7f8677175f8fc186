"""How many requests one server takes at once, learned from what it answers.

The number grows while requests succeed and all of it is used, and halves when the server says that
it has too much to do. How long replies take says nothing: outputs differ in length.
"""

__all__ = ["Lane"]

FIRST_WINDOW = 64
"""Most servers take so many. One that does not says so, and its calls are sent again later."""


class Lane:
    """One server: how many requests may be there at once, how many are, and until when none may.

    An epoch lasts from one cut to the next. Only requests sent in the present one count, so that a
    hundred refusals of requests sent together halve the window once.
    """

    __slots__ = (
        *("_most", "_searching", "_window", "active", "epoch"),
        *("pause_reason", "paused_until", "width"),
    )

    def __init__(self, most: int) -> None:
        self._most = most
        self._window: float = min(FIRST_WINDOW, most)
        self._searching = True
        self.width = int(self._window)
        self.epoch = 0
        self.active = 0
        self.paused_until = 0.0
        self.pause_reason = ""

    def grow(self, epoch: int) -> None:
        """After a success: by one; after the first cut, by one in a whole round of successes."""
        if self.active >= self.width and epoch == self.epoch:
            more = 1.0 if self._searching else 1.0 / self._window
            self._set_window(min(self._most, self._window + more))

    def shrink(self, epoch: int) -> None:
        """After a refusal: by half, once for all that was sent before."""
        if epoch == self.epoch:
            self._set_window(max(1.0, self._window / 2))
            self._searching = False
            self.epoch += 1

    def pause(self, until: float, reason: str) -> None:
        """Let nobody in before `until`. A shorter pause does not end a longer one."""
        if until > self.paused_until:
            self.paused_until = until
            self.pause_reason = reason

    def opens_at(self, now: float) -> float:
        """When the next request may go, unless the lane is full."""
        if self.paused_until <= now:
            self.paused_until = 0.0
        return max(now, self.paused_until)

    def _set_window(self, window: float) -> None:
        self._window = window
        self.width = int(window)
