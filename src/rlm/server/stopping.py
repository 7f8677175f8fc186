"""Where an answer ends: at the first stop sequence, also one that comes in pieces, or at a size."""

from collections.abc import Sequence

__all__ = ["BYTES_A_TOKEN", "Stopper", "cut_to_tokens"]

BYTES_A_TOKEN = 4
"""How text is counted where no tokenizer is known."""


class Stopper:
    """Lets text through up to the first stop sequence, however it is cut into pieces.

    What may be the beginning of a stop sequence is held back until more has come.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.stopped = False

    def feed(self, piece: str) -> str:
        """What can be let through now."""
        if self.stopped:
            return ""
        text = self._held + piece
        found = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        if found:
            # An earlier one may still be on its way: a longer stop that begins before this one.
            at = min(found)
            pending = self._pending(text)
            if pending is None or pending >= at:
                self.stopped, self._held = True, ""
                return text[:at]
        pending = self._pending(text)
        cut = len(text) if pending is None else pending
        self._held = text[cut:]
        return text[:cut]

    def end(self) -> str:
        """What was held back and was no stop sequence, as it turns out."""
        if self.stopped:
            return ""
        text, self._held = self._held, ""
        found = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        self.stopped = bool(found)
        return text[: min(found)] if found else text

    def _pending(self, text: str) -> int | None:
        """Where the text's end begins that may become a stop sequence."""
        starts = [
            len(text) - size
            for stop in self._stops
            for size in range(min(len(stop) - 1, len(text)), 0, -1)
            if text.endswith(stop[:size])
        ]
        return min(starts, default=None)


def cut_to_tokens(text: str, most_tokens: int | None) -> tuple[str, bool]:
    """The beginning of a text that has at most so many tokens, and whether that is not all."""
    if most_tokens is None:
        return text, False
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= most_tokens * BYTES_A_TOKEN:
        return text, False
    return data[: most_tokens * BYTES_A_TOKEN].decode("utf-8", "ignore"), True
