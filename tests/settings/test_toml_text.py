"""One value of a TOML text is changed; comments, order and everything else stay."""

import contextlib
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.errors import ConfigError
from rlm.settings.toml_text import change, parsed, written

TEXT = """\
# my settings
model = "openai/gpt-5"  # the usual one

[alias]
# short names
fast = 'groq/x'
big = "a/b"

[limits]
max_steps = 5
"""


def test_replacing_a_value_keeps_its_comment() -> None:
    changed = change(TEXT, "", "model", "a/b # c")
    assert changed == TEXT.replace('"openai/gpt-5"', '"a/b # c"')
    assert change(TEXT, "alias", "fast", "x/y") == TEXT.replace("'groq/x'", '"x/y"')
    assert change(TEXT, "limits", "max_steps", 7) == TEXT.replace("= 5", "= 7")


def test_a_value_is_added_in_the_right_table() -> None:
    assert change("", "", "model", "a/b") == 'model = "a/b"\n'
    assert change("", "alias", "fast", "a/b") == '[alias]\nfast = "a/b"\n'
    added = change(TEXT, "", "sub_model", "c/d")
    assert 'the usual one\nsub_model = "c/d"\n\n[alias]' in added
    added = change(TEXT, "alias", "new", "c/d")
    assert 'big = "a/b"\nnew = "c/d"\n\n[limits]' in added
    assert change("[limits]\n", "limits", "max_steps", 1) == "[limits]\nmax_steps = 1\n"


def test_removing_a_value_changes_nothing_else() -> None:
    removed = change(TEXT, "alias", "fast", None)
    assert removed == TEXT.replace("fast = 'groq/x'\n", "")
    assert change(TEXT, "alias", "none", None) == TEXT


def test_only_newlines_separate_lines() -> None:
    text = change("", "alias", "fast", "a/\x85\u2028b")
    assert change(text, "alias", "big", "c/d").count("\n") == 3
    windows = change('# a\r\nmodel = "a/b"\r\n', "", "model", "c/d")
    assert windows == '# a\r\nmodel = "c/d"\r\n'


@pytest.mark.parametrize(
    "text",
    [
        'alias.fast = "a/b"\n',
        'alias = {fast = "a/b"}\n',
        '[alias]\nfast = """\na/b"""\n',
        '["alias"]\nfast = "a/b"\n',
    ],
)
def test_unusual_toml_is_refused_and_never_damaged(text: str) -> None:
    with pytest.raises(ConfigError, match="in this form: edit"):
        change(text, "alias", "fast", "c/d")


def test_invalid_toml_is_reported_with_its_line() -> None:
    with pytest.raises(ValueError, match="line 1"):
        change("model = = 1", "", "model", "a/b")
    with pytest.raises(ConfigError, match="alias is not a table"):
        change("alias = 1", "alias", "a", "b")


VALUES = st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text()


@given(VALUES)
def test_every_value_is_read_back_unchanged(value: Any) -> None:
    if isinstance(value, str):
        value = value.encode("utf-8", "replace").decode()
    assert tomllib.loads(f"x = {written(value)}")["x"] == value


NAMES = st.sampled_from(["model", "fast", "max_steps", "other"])
TABLES = st.sampled_from(["", "alias", "limits"])


@given(st.lists(st.tuples(TABLES, NAMES, st.none() | VALUES), max_size=8), st.booleans())
def test_any_sequence_of_changes_has_the_expected_result(
    changes: list[tuple[str, str, Any]], commented: bool
) -> None:
    text, wanted = TEXT if commented else "", parsed(TEXT) if commented else {}
    for table, name, value in changes:
        if isinstance(value, str):
            value = value.encode("utf-8", "replace").decode()
        text = change(text, table, name, value)
        own = wanted.setdefault(table, {}) if table else wanted
        own.pop(name, None)
        if value is not None:
            own[name] = value
        found = {each: kept for each, kept in parsed(text).items() if kept != {}}
        assert found == {each: kept for each, kept in wanted.items() if kept != {}}
    if commented:
        assert "# my settings\n" in text
        assert "# short names\n" in text


LINES = st.sampled_from(
    ["[alias]", "[limits]", "[[alias]]", "a = 1", 'fast = "x"', "fast.x = 1", "# c", "", '"""', "["]
)


@given(st.lists(LINES | st.text(max_size=10), max_size=6).map("\n".join), TABLES, NAMES)
def test_any_text_is_changed_correctly_or_refused(text: str, table: str, name: str) -> None:
    with contextlib.suppress(ValueError):  # ConfigError too
        before = parsed(text)
        after = parsed(change(text, table, name, "new"))
        own = after[table] if table else after
        assert own[name] == "new"
        del own[name]
        kept = before.get(table, {}) if table else before
        assert own == {each: value for each, value in kept.items() if each != name}
