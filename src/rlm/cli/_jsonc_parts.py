"""JSON with comments and trailing commas, read so that every part knows where it is in the text."""

import json
import re
from typing import Any, NoReturn

from msgspec import Struct, field

__all__ = ["Item", "Node", "Unreadable", "read"]

MOST_DEPTH = 100
_BLANK = re.compile(r"[ \t\r\n]+|//[^\n]*|/\*.*?\*/", re.DOTALL)
_WORD = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_WORDS = {"true": True, "false": False, "null": None}


class Unreadable(ValueError):
    """Not JSON, with comments or without; where, and why."""


class Item(Struct):
    """A member of an object, or an element of a list. `comma`: where the one after it is."""

    start: int
    node: "Node"
    key: str | None = None
    comma: int | None = None


class Node(Struct):
    """A value, from `start` up to `end`. `tail` is where the last thing in it ends: item, comma or
    comment.
    """

    start: int
    end: int
    kind: str
    plain: Any = None
    items: list[Item] = field(default_factory=list)
    tail: int = 0

    @property
    def value(self) -> Any:
        """As `json.loads` would have it; of keys that are there twice, the last."""
        if self.kind == "{":
            return {item.key: item.node.value for item in self.items}
        return [item.node.value for item in self.items] if self.kind == "[" else self.plain


def read(text: str) -> Node:
    """The one value in a text, and nothing but blanks and comments around it."""
    reader = _Reader(text)
    at, _ = reader.skip(1 if text.startswith("\ufeff") else 0)
    node = reader.value(at, 0)
    end, _ = reader.skip(node.end)
    if end < len(text):
        reader.fail(end, "something follows the end")
    return node


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text

    def fail(self, at: int, why: str) -> NoReturn:
        raise Unreadable(f"line {self.text.count(chr(10), 0, at) + 1}: {why}")

    def skip(self, at: int) -> tuple[int, int]:
        """Past blanks and comments; and where the last comment ended, or the beginning."""
        last = at
        while match := _BLANK.match(self.text, at):
            at = match.end()
            if match.group().startswith("/"):
                last = at
        return at, last

    def value(self, at: int, depth: int) -> Node:
        if depth > MOST_DEPTH:
            self.fail(at, "it is nested too deeply")
        mark = self.text[at : at + 1]
        if mark in ("{", "["):
            return self.items(at, mark, depth)
        if mark == '"':
            plain, end = self.string(at)
            return Node(at, end, "s", plain)
        match = _WORD.match(self.text, at)
        if not mark or match is None:
            self.fail(at, "a value is missing")
        word = match.group()
        if word in _WORDS:
            return Node(at, match.end(), "s", _WORDS[word])
        number = float(word) if re.search(r"[.eE]", word) else int(word[:4_000])
        return Node(at, match.end(), "s", number)

    def string(self, at: int) -> tuple[str, int]:
        match = _STRING.match(self.text, at)
        if match is None:
            self.fail(at, "a string does not end")
        try:
            text: str = json.loads(match.group())
        except ValueError:
            self.fail(at, "a string holds what none can")
        return text, match.end()

    def items(self, start: int, mark: str, depth: int) -> Node:
        closing = "}" if mark == "{" else "]"
        node = Node(start, start, mark, tail=start + 1)
        at, last = self.skip(start + 1)
        while self.text[at : at + 1] != closing:
            if node.items and node.items[-1].comma is None:
                self.fail(at, "a comma is missing")
            item = self.item(at, mark, depth)
            node.items.append(item)
            at, last = self.skip(item.node.end)
            if self.text[at : at + 1] == ",":
                item.comma = at
                at, last = self.skip(at + 1)
        node.tail = last
        node.end = at + 1
        return node

    def item(self, at: int, mark: str, depth: int) -> Item:
        if mark == "[":
            return Item(at, self.value(at, depth + 1))
        if self.text[at : at + 1] != '"':
            self.fail(at, "a key in quotes is missing")
        key, end = self.string(at)
        colon, _ = self.skip(end)
        if self.text[colon : colon + 1] != ":":
            self.fail(colon, "a colon is missing")
        begin, _ = self.skip(colon + 1)
        return Item(at, self.value(begin, depth + 1), key)
