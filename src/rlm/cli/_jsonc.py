"""Edit other programs' JSON files: what is not changed stays exactly as written.

Comments, whitespace, the order of keys and the spelling of numbers are copied as text. Every edited
text is parsed again and compared with the intended value before it is returned.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from msgspec import Struct, field

__all__ = [
    "Item",
    "Node",
    "Unreadable",
    "add_element",
    "drop_element",
    "drop_member",
    "put_member",
    "read",
    "value_of",
]

MAX_DEPTH = 100
_BLANK = re.compile(r"[ \t\r\n]+|//[^\n]*|/\*.*?\*/", re.DOTALL)
_WORD = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_WORDS = {"true": True, "false": False, "null": None}


class Unreadable(ValueError):
    """The text is not JSON, with or without comments; the message says where and why."""


class Item(Struct):
    """A member of an object or an element of a list. `comma` is where the comma after it is."""

    start: int
    node: "Node"
    key: str | None = None
    comma: int | None = None


class Node(Struct):
    """A value from `start` to `end`. `tail` is the end of the last item, comma or comment in it."""

    start: int
    end: int
    kind: str
    plain: Any = None
    items: list[Item] = field(default_factory=list)
    tail: int = 0

    @property
    def value(self) -> Any:
        """Return the value as `json.loads` would; of duplicate keys, the last."""
        if self.kind == "{":
            return {item.key: item.node.value for item in self.items}
        return [item.node.value for item in self.items] if self.kind == "[" else self.plain


def read(text: str) -> Node:
    """Parse the one value of a text, which only whitespace and comments may surround."""
    reader = _Reader(text)
    at, _ = reader.skip(1 if text.startswith("\ufeff") else 0)
    node = reader.value(at, 0)
    end, _ = reader.skip(node.end)
    if end < len(text):
        reader.fail(end, "unexpected text after the end")
    return node


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text

    def fail(self, at: int, why: str) -> NoReturn:
        raise Unreadable(f"line {self.text.count(chr(10), 0, at) + 1}: {why}")

    def skip(self, at: int) -> tuple[int, int]:
        """Skip whitespace and comments; return the new offset and the end of the last comment."""
        last = at
        while match := _BLANK.match(self.text, at):
            at = match.end()
            if match.group().startswith("/"):
                last = at
        return at, last

    def value(self, at: int, depth: int) -> Node:
        if depth > MAX_DEPTH:
            self.fail(at, "nested too deeply")
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
            self.fail(at, "a string contains an invalid escape")
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


EMPTY = "{}\n"


def value_of(text: str) -> Any:
    """Return the value of a file's text; an empty file is an empty object."""
    return read(text if text.strip("\ufeff \t\r\n") else EMPTY).value


def put_member(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with a member set; missing objects on the path are created."""
    text = text if text.strip("\ufeff \t\r\n") else EMPTY
    root = read(text)
    node = _object(root, ())
    for depth, key in enumerate(path):
        item = _member(node, key)
        if item is None:
            for name in reversed(path[depth + 1 :]):
                value = {name: value}
            return _checked(_inserted(text, root, node, key, value), path[: depth + 1], value)
        if depth + 1 < len(path):
            node = _object(item.node, path[: depth + 1])
    assert item is not None
    if item.node.value == value:
        return text
    written = _rendered(value, text, _indent_of(text, item.start), _unit(text, root))
    return _checked(text[: item.node.start] + written + text[item.node.end :], path, value)


def drop_member(text: str, path: Sequence[str]) -> str:
    """Return the text without a member, or the same text if there is none."""
    found = _find(text, path[:-1])
    item = None if found is None else _member(found, path[-1])
    if found is None or item is None:
        return text
    return _checked(_removed(text, found, item), path, None)


def add_element(text: str, path: Sequence[str], element: Any) -> str:
    """Return the text with an element appended to a list, which is created if missing."""
    found = _find(text, path)
    if found is None:
        return put_member(text, path, [element])
    if found.kind != "[":
        raise Unreadable(f"{'.'.join(path)} is not a list")
    wanted = [*found.value, element]
    return _checked(_inserted(text, read(text), found, None, element), path, wanted)


def drop_element(text: str, path: Sequence[str], name: str, value: Any) -> str:
    """Return the text without the list elements whose member `name` equals `value`."""
    found = _find(text, path)
    for item in reversed(found.items if found is not None and found.kind == "[" else []):
        held = item.node.value
        if isinstance(held, dict) and held.get(name) == value:
            again = _find(text, path)
            assert found is not None
            assert again is not None
            text = _removed(text, again, again.items[found.items.index(item)])
            read(text)
    return text


# -- finding ---------------------------------------------------------------------------------------


def _find(text: str, path: Sequence[str]) -> Node | None:
    node = read(text if text.strip("\ufeff \t\r\n") else EMPTY)
    for depth, key in enumerate(path):
        item = _member(_object(node, path[:depth]), key)
        if item is None:
            return None
        node = item.node
    return node


def _object(node: Node, path: Sequence[str]) -> Node:
    if node.kind != "{":
        raise Unreadable(f"{'.'.join(path) or 'the file'} is not an object")
    return node


def _member(node: Node, key: str) -> Item | None:
    found = [item for item in node.items if item.key == key]
    if len(found) > 1:
        raise Unreadable(f"the key {key!r} occurs twice")
    return found[0] if found else None


def _checked(text: str, path: Sequence[str], value: Any) -> str:
    """Parse the edited text and compare: an edit that did something else is refused."""
    node = _find(text, path)
    if (None if node is None else node.value) != value:
        raise Unreadable(f"{'.'.join(path)} cannot be changed safely")
    return text


# -- changing --------------------------------------------------------------------------------------


def _inserted(text: str, root: Node, node: Node, key: str | None, value: Any) -> str:
    """Return the text with an item appended in the style of its neighbours."""
    newline, unit = _newline(text), _unit(text, root)
    label = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
    outer = _indent_of(text, node.start)
    if not node.items:
        indent = outer + unit
        written = newline + indent + label + _rendered(value, text, indent, unit)
        rest = text[node.tail : node.end - 1]
        closing = rest[rest.rfind("\n") :] if "\n" in rest else newline + outer
        return text[: node.tail] + written + closing + text[node.end - 1 :]
    last = node.items[-1]
    if "\n" in text[node.start : node.end]:
        indent = _indent_of(text, node.items[0].start)
        written = newline + indent + label + _rendered(value, text, indent, unit)
    else:
        written = f" {label}{json.dumps(value, ensure_ascii=False)}"
    if last.comma is not None:
        return text[: node.tail] + written + "," + text[node.tail :]
    end = last.node.end
    return text[:end] + "," + text[end : node.tail] + written + text[node.tail :]


def _removed(text: str, node: Node, item: Item) -> str:
    """Return the text without an item and without the comma that would be left over."""
    number = node.items.index(item)
    spans = [(item.start, item.node.end)]
    if item.comma is not None:
        spans.append((item.comma, item.comma + 1))
    elif number:
        before = node.items[number - 1].comma
        assert before is not None
        spans.append((before, before + 1))
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + text[end:]
    return _without_blank_line(text, item.start - (spans[-1][0] < item.start))


def _without_blank_line(text: str, at: int) -> str:
    """Remove the line at an offset if it is blank."""
    start = text.rfind("\n", 0, at) + 1
    stop = text.find("\n", at)
    if start and stop >= 0 and not text[start:stop].strip():
        return text[:start] + text[stop + 1 :]
    return text


def _rendered(value: Any, text: str, indent: str, unit: str) -> str:
    written = json.dumps(value, indent=unit, ensure_ascii=False)
    return written.replace("\n", _newline(text) + indent)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent_of(text: str, at: int) -> str:
    """Return the whitespace at the beginning of the line of an offset."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    blanks = re.match(r"\ufeff?([ \t]*)", line)
    return blanks[1] if blanks else ""


def _unit(text: str, root: Node) -> str:
    """Return the indentation of one level."""
    for item in root.items:
        if "\n" in text[root.start : item.start]:
            return _indent_of(text, item.start) or "  "
    return "  "
