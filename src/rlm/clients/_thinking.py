"""Thinking that a server left in the text, between tags at its very beginning."""

from typing import Literal

__all__ = ["InlineThinking"]

TAGS = {"<think>": "</think>", "<thinking>": "</thinking>"}


class InlineThinking:
    """Divides text that comes in pieces into thinking and answer; tags may be cut anywhere.

    Only a tag before all other text counts, so that an answer may speak of `<think>`.
    """

    def __init__(self) -> None:
        self._state: Literal["start", "thinking", "gap", "answer"] = "start"
        self._closing = ""
        self._held = ""
        self._thoughts: list[str] = []

    @property
    def reasoning(self) -> str:
        return "".join(self._thoughts).strip()

    def add(self, piece: str) -> str:
        """The part of this piece, and of what was held back, that belongs to the answer."""
        self._held += piece
        if self._state == "start":
            self._find_opening()
        if self._state == "thinking":
            self._find_closing()
        if self._state == "gap" and (rest := self._held.lstrip()):
            self._held, self._state = rest, "answer"
        return self._released() if self._state == "answer" else ""

    def end(self) -> str:
        """The text is over: what was held back and turned out to be answer."""
        held = self._released()
        if self._state == "thinking":
            self._thoughts.append(held)
        return held if self._state == "start" else ""

    def _find_opening(self) -> None:
        text = self._held.lstrip()
        for opening, closing in TAGS.items():
            if text.startswith(opening):
                self._held, self._closing = text.removeprefix(opening), closing
                self._state = "thinking"
                return
        if text and not any(tag.startswith(text) for tag in TAGS):
            self._state = "answer"

    def _find_closing(self) -> None:
        thinking, closed, rest = self._held.partition(self._closing)
        if closed:
            self._held, self._state = rest, "gap"
        else:  # its end may be the first half of the closing tag
            middle = max(0, len(thinking) - len(self._closing) + 1)
            thinking, self._held = thinking[:middle], thinking[middle:]
        self._thoughts.append(thinking)

    def _released(self) -> str:
        text, self._held = self._held, ""
        return text
