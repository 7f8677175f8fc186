"""Reading replies of operators: whatever a model writes, it is read correctly or not at all."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.engine.operators import reading
from rlm.engine.operators.reading import (
    Codes,
    Label,
    codes_for,
    json_in,
    label_in,
    labels_in,
    lines_in,
    numbers_in,
    order_in,
    rating_in,
)

CODES = Codes({"A": "bug report", "B": "feature request", "C": "bug"})
THREE = {1: Label("bug report"), 2: Label("feature request"), 3: Label("bug", unsure=True)}


@pytest.mark.parametrize(
    "reply",
    [
        "1: A\n2: B\n3: C?",
        "1) A\n2) B\n3) C?",
        "1. a\n2. b\n3. c?",
        "**1**: A\n**2**: B\n**3**: C?",
        "- 1: A\n- 2: B\n- 3: C ?",
        "1 - bug report\n2 - feature request\n3 - bug?",
        "1: A = bug report\n2: B (feature request)\n3: C - bug?",
        "Here are the labels:\n\n1: A\n2: B\n3: C?\n\nI hope this helps!",
        "```\n1: A\n2: B\n3: C?\n```",
        '{\n"1": "A",\n"2": "B",\n"3": "C?"\n}',
        "| 1 | A |\n| 2 | B |\n| 3 | C? |",
        "Item 1: A\nItem 2: B\nItem 3: C?",
        "#1: A\n#2: B\n#3: C?",
        "1: `A`\n2: `B`\n3: `C?`",
        "1: A, 2: B, 3: C?",
        "<think>1: B\n2: A</think>\n1: A\n2: B\n3: C?",
        "A\nB\nC?",
        "1: A\n1: A\n2: B\n3: C?\n4: A\n0: B",
        "1: A.\n2: B.\n3: C (not sure).",
        "1 → A\n2 → B\n3 → C?",
    ],
)
def test_varying_reply_formats_are_read(reply: str) -> None:
    assert labels_in(reply, 3, CODES) == THREE


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I can't do that.",
        "1: A or B",
        "1: D",
        "1: bug reports are A",
        "A",
        "1: A\n1: B",
        "11: A",
        "1.5: A",
        "1: neither A",
        "1: A, but it could be B",
    ],
)
def test_ambiguous_replies_are_not_read(reply: str) -> None:
    assert 1 not in labels_in(reply, 3, CODES)


@given(st.text(max_size=300), st.integers(1, 20))
def test_any_text_yields_only_known_labels_and_numbers(reply: str, count: int) -> None:
    found = labels_in(reply, count, CODES)
    assert all(1 <= number <= count for number in found)
    assert all(label.text in CODES.values() for label in found.values())


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1),
        min_size=2,
        max_size=60,
        unique_by=lambda text: " ".join(text.casefold().split()),
    )
)
def test_every_code_maps_to_its_label(labels: list[str]) -> None:
    codes = codes_for(labels)
    assert list(codes.values()) == labels
    for code, label in codes.items():
        found = label_in(code, codes)
        assert found is not None
        assert found.text == label


@given(st.dictionaries(st.integers(1, 30), st.sampled_from("ABC"), min_size=2), st.randoms())
def test_lines_are_read_in_any_order(wanted: dict[int, str], random: Any) -> None:
    lines = [f"{number}: {code}" for number, code in wanted.items()]
    random.shuffle(lines)
    found = labels_in("\n".join(lines), 30, CODES)
    assert found == {number: Label(CODES[code]) for number, code in wanted.items()}


def test_continuation_lines_belong_to_the_item_above() -> None:
    assert lines_in("1: one\n   more\n2: two\n\nend", 2, whole=True) == [
        (1, "one\n   more"),
        (2, "two\nend"),
    ]


@pytest.mark.parametrize(
    ("text", "rating"),
    [("70", 70), ("70/100", 70), ("70%", 70), ("7.5", 7.5), ("101", None), ("-3", 3), ("x", None)],
)
def test_ratings_are_read_from_text(text: str, rating: float | None) -> None:
    assert rating_in(text) == rating


def test_orders_and_lists_of_numbers() -> None:
    assert order_in("3, 1, 2, 3, 9", 3) == [3, 1, 2]
    assert numbers_in("2, 5 and 7", 7) == [2, 5, 7]
    assert numbers_in("none", 7) == []
    assert numbers_in("2, 9", 7) is None
    assert numbers_in("perhaps", 7) is None


@given(st.text(max_size=200))
def test_any_text_is_json_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        json_in(text)


def test_json_in_a_fence_and_in_prose() -> None:
    assert json_in('```json\n{"a": 1}\n```') == {"a": 1}
    assert json_in('Sure: {"a": [1]} is it.') == {"a": [1]}
    assert json_in("The list: [1, 2]") == [1, 2]


def test_reading_labels_does_not_compare_each_line_with_every_label(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes = codes_for([f"label {number}" for number in range(500)])
    looked_at: list[str] = []
    plain = reading._plain

    def counting(text: str) -> str:
        looked_at.append(text)
        return plain(text)

    monkeypatch.setattr(reading, "_plain", counting)
    reply = "\n".join(f"{number}: label {number}" for number in range(1, 101))
    assert labels_in(reply, 100, codes)[7] == Label("label 7")
    assert len(looked_at) <= 3 * 100
