"""Lines of Hebrew and Arabic that were printed from left to right are put into reading order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.context.documents.right_to_left import in_reading_order


@pytest.mark.parametrize(
    ("printed", "read"),
    [
        ("The lamp (12.5)", "The lamp (12.5)"),
        ("Привет", "Привет"),
        ("םלוע םולש", "שלום עולם"),
        ("ןושאר 1.5 ףיעס", "סעיף 1.5 ראשון"),
        ("2024-03-01 ךיראת", "תאריך 2024-03-01"),
        ("(רגוס)", "(סוגר)"),
        ("Lamp תרבח לש", "של חברת Lamp"),
        ("A long English line with one word: םולש", "A long English line with one word: םולש"),
        ("", ""),
    ],
)
def test_right_to_left_text_is_put_in_reading_order(printed: str, read: str) -> None:
    assert in_reading_order(printed) == read


@given(st.text(alphabet=st.sampled_from("אבגדהشسز abc019.,-()[] \u0301"), max_size=40))
def test_reordering_loses_no_character(printed: str) -> None:
    brackets = str.maketrans("([", ")]")
    read = in_reading_order(printed)
    assert sorted(read.translate(brackets)) == sorted(printed.translate(brackets))
