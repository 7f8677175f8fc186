"""Editing users' JSON files: whatever they contain, only the requested member changes."""

import json
import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rlm.cli._jsonc import (
    Unreadable,
    add_element,
    drop_element,
    drop_member,
    put_member,
    value_of,
)

KEYS = st.sampled_from(["mcpServers", "rlm", "a", "ü", 'q"uote', "", "servers"]) | st.text(
    max_size=4
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
FILES = st.dictionaries(KEYS, VALUES, max_size=4)
COMMENT = re.compile(r"#\d+#")
ENTRY = {"command": "rlm", "args": ["mcp", "--root", "."]}


class Writer:
    """Writes JSON as people do: with numbered comments and irregular blanks."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.comments = 0

    def gap(self) -> str:
        kind = self.draw(st.integers(0, 9))
        if kind > 4:
            return ("", " ", "\n  ", "\t", "\r\n")[int(kind) - 5]
        self.comments += 1
        if kind > 2:
            return f' // #{self.comments}# }} , " \n'
        return f' /* #{self.comments}# {{ " \n // */' if kind else ""

    def write(self, value: Any) -> str:
        if isinstance(value, dict):
            parts = [
                f"{self.gap()}{json.dumps(k)}{self.gap()}:{self.gap()}{self.write(v)}{self.gap()}"
                for k, v in value.items()
            ]
            return "{" + self.joined(parts) + "}"
        if isinstance(value, list):
            return "[" + self.joined([f"{self.gap()}{self.write(each)}" for each in value]) + "]"
        return json.dumps(value, ensure_ascii=self.draw(st.booleans()))

    def joined(self, parts: list[str]) -> str:
        trailing = "," if parts and self.draw(st.booleans()) else ""
        return ",".join(parts) + trailing + self.gap()


@st.composite
def documents(draw: Any) -> tuple[str, dict[str, Any]]:
    value = draw(FILES)
    writer = Writer(draw)
    bom = draw(st.sampled_from(["", "\ufeff"]))
    return bom + writer.gap() + writer.write(value) + writer.gap(), value


def servers_are_objects(value: dict[str, Any]) -> bool:
    return isinstance(value.get("mcpServers", {}), dict)


@given(documents())
def test_generated_documents_are_read_correctly(document: tuple[str, dict[str, Any]]) -> None:
    text, value = document
    assert value_of(text) == value


@given(documents(), VALUES)
def test_putting_a_member_keeps_everything_else(
    document: tuple[str, dict[str, Any]], entry: Any
) -> None:
    text, value = document
    assume(servers_are_objects(value))
    made = put_member(text, ("mcpServers", "rlm"), entry)
    servers = {**value.get("mcpServers", {}), "rlm": entry}
    assert value_of(made) == {**value, "mcpServers": servers}
    assert [*value_of(made)] == [*{**value, "mcpServers": 0}]
    assert put_member(made, ("mcpServers", "rlm"), entry) == made
    if "rlm" not in value.get("mcpServers", {}):
        assert COMMENT.findall(made) == COMMENT.findall(text)
        assert _is_part_of(text, made)


@given(documents())
def test_dropping_a_member_keeps_everything_else(document: tuple[str, dict[str, Any]]) -> None:
    text, value = document
    assume(servers_are_objects(value))
    made = drop_member(text, ("mcpServers", "rlm"))
    left = dict(value)
    if "mcpServers" in value:
        left["mcpServers"] = {k: v for k, v in value["mcpServers"].items() if k != "rlm"}
    assert value_of(made) == left
    if "rlm" not in value.get("mcpServers", {}):
        assert made == text
    else:
        assert _is_part_of(made, text)


@given(documents())
def test_a_member_that_was_put_can_be_dropped(document: tuple[str, dict[str, Any]]) -> None:
    text, value = document
    assume(servers_are_objects(value) and "rlm" not in value.get("mcpServers", {}))
    made = drop_member(put_member(text, ("mcpServers", "rlm"), ENTRY), ("mcpServers", "rlm"))
    assert value_of(made) == {**value, "mcpServers": value.get("mcpServers", {})}
    assert COMMENT.findall(made) == COMMENT.findall(text)


@given(documents(), VALUES)
def test_an_element_can_be_added_and_dropped(
    document: tuple[str, dict[str, Any]], other: Any
) -> None:
    text, value = document
    assume(isinstance(value.get("a", []), list))
    element = {"id": "token", "more": other}
    made = add_element(text, ("a",), element)
    assert value_of(made) == {**value, "a": [*value.get("a", []), element]}
    assert COMMENT.findall(made) == COMMENT.findall(text)
    again = drop_element(made, ("a",), "id", "token")
    kept = [e for e in value.get("a", []) if not (isinstance(e, dict) and e.get("id") == "token")]
    assert value_of(again) == {**value, "a": kept}


def _is_part_of(less: str, more: str) -> bool:
    """Whether all letters of one text are in another, in their order; blanks do not count."""
    letters = iter(more)
    return all(letter in letters for letter in less if not letter.isspace())


@given(st.text(alphabet='{}[]",:/*\n ab1\\-.etrufalsn', max_size=40))
def test_any_text_is_edited_or_unreadable(text: str) -> None:
    try:
        made = put_member(text, ("a", "b"), 1)
    except Unreadable:
        return
    assert value_of(made)["a"]["b"] == 1


@given(st.text(max_size=30))
def test_anything_json_accepts_is_read_identically(text: str) -> None:
    try:
        value = json.loads(text, parse_constant=lambda _: 1 / 0)
    except (ValueError, ZeroDivisionError):
        return
    assert value_of(text) == value


def test_a_settings_file_is_edited_as_a_person_would_edit_it() -> None:
    text = (
        "// Zed settings\n{\n"
        '    "theme": "One", // nice\n'
        '    "context_servers": {\n'
        "        // mine\n"
        '        "other": {"command": "x"}, // keep\n'
        "    },\n"
        '    "vim": true,\n'
        "}\n"
    )
    made = put_member(text, ("context_servers", "rlm"), ENTRY)
    assert made == text.replace(
        "// keep\n",
        '// keep\n        "rlm": {\n            "command": "rlm",\n            "args": [\n'
        '                "mcp",\n                "--root",\n                "."\n'
        "            ]\n        },\n",
    )
    assert drop_member(made, ("context_servers", "rlm")) == text


def test_a_comma_is_inserted_before_the_comment() -> None:
    made = put_member('{\n\t"a": 1 // one\n}\n', ("b",), 2)
    assert made == '{\n\t"a": 1, // one\n\t"b": 2\n}\n'


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("", '{\n  "s": {\n    "r": 1\n  }\n}\n'),
        ("{}", '{\n  "s": {\n    "r": 1\n  }\n}'),
        ('{"a": 1}', '{"a": 1, "s": {"r": 1}}'),
        ('{\r\n "a": 1\r\n}', '{\r\n "a": 1,\r\n "s": {\r\n  "r": 1\r\n }\r\n}'),
        ('{"s": {}}', '{"s": {\n  "r": 1\n}}'),
        ('{"s": {"r": 2}}', '{"s": {"r": 1}}'),
    ],
)
def test_the_formatting_style_of_a_file_is_kept(text: str, made: str) -> None:
    assert put_member(text, ("s", "r"), 1) == made


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", "the file is not an object"),
        ('{"s": 1}', "s is not an object"),
        ('{"s": {}, "s": {}}', "occurs twice"),
        ('{"a" 1}', "line 1: a colon is missing"),
        ('{"a": 1\n "b": 2}', "line 2: a comma is missing"),
        ("{a: 1}", "a key in quotes"),
        ('{"a": 1} {}', "unexpected text"),
        ('{"a": tru}', "a value is missing"),
        ('{"a": "\\x"}', "invalid escape"),
        ("{" * 3, "a key in quotes"),
        ("[" * 300, "nested too deeply"),
        ('{"a": "x', "does not end"),
        ('{"a": 1 /* }', "comma"),
    ],
)
def test_a_file_that_cannot_be_edited_safely_is_refused(text: str, words: str) -> None:
    with pytest.raises(Unreadable, match=words):
        put_member(text, ("s", "r"), 1)
