"""Answers in Markdown as a terminal shows them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.cli._markdown import rendered
from rlm.records.recorders.console import harmless

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
TEXT = "# Opening\n\nIt opens **then**.\nNot before.\n\n| a | b |\n|---|---|\n| 1 | <i>2</i> |\n"


def plain(text: str, columns: int = 60) -> str:
    return COLOURS.sub("", rendered(text, columns) or "")


def test_lines_tables_and_html_are_kept() -> None:
    assert plain(TEXT).split("\n") == [
        "Opening",
        "",
        "It opens then.",
        "Not before.",
        "",
        " a  b",
        " ───────────",
        " 1  <i>2</i>",
    ]


@pytest.mark.parametrize("text", ["", "42", "a\nb  c", "2 * 3 < 4", "snake_case_name", "x" * 400])
def test_text_without_markup_is_not_rendered(text: str) -> None:
    assert rendered(text, 80) is None


def test_a_long_text_is_not_rendered() -> None:
    assert rendered("**x** " * 10_000, 80) is None


@pytest.mark.parametrize(
    "text",
    [
        "**x** " + "[" * 2_001,
        "|a" * 40 + "|\n" + "|-" * 40 + "|\n" + "a\n" * 1_000,
    ],
)
def test_an_intricate_text_is_not_rendered(text: str) -> None:
    assert rendered(text, 80) is None


def test_html_entities_do_not_undo_escaping() -> None:
    text = "&#8238; **b** `&#8238;`\n\n- &#x2066;\n\n[&#8239;&#8237;](https://a.example/&#8238;)"
    shown = plain(text)
    assert "\\u202e b &#8238;" in shown
    assert "\\u2066" in shown
    assert "\\u202d" in shown
    assert harmless(shown) == shown


@given(st.lists(st.integers(0, 0x10FFFF), max_size=20), st.sampled_from(["**b** ", "# ", "- "]))
def test_no_html_entity_becomes_a_control_character(codes: list[int], before: str) -> None:
    shown = plain(before + "".join(f"&#{code};" for code in codes))
    assert harmless(shown) == shown


def test_link_targets_are_shown() -> None:
    shown = plain("[bank](https://evil.example) [x](javascript:y) ![p](https://evil.example/p)")
    assert "bank (https://evil.example)" in shown
    assert "[x](javascript:y)" in shown
    assert "\x1b]8" not in (rendered("[bank](https://evil.example)", 60) or "")


@given(st.text(max_size=300), st.integers(1, 120))
def test_any_text_is_rendered_without_control_characters(text: str, columns: int) -> None:
    shown = rendered(harmless(text), columns)
    assert shown is None or "\x1b" not in COLOURS.sub("", shown)


@given(st.text(alphabet="#*-_[]()>:<\n 1.ab\\", max_size=200))
def test_rendering_loses_no_word(text: str) -> None:
    shown = rendered(text, 40)
    kept = re.sub(r"[^ab]", "", text if shown is None else COLOURS.sub("", shown))
    assert kept == re.sub(r"[^ab]", "", text)
