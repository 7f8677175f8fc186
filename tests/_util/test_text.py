"""Numbers with their nouns."""

import pytest

from rlm._util.text import all_used, counted


@pytest.mark.parametrize(
    ("number", "noun", "plural", "text"),
    [
        (0, "row", "", "0 rows"),
        (1, "row", "", "1 row"),
        (2, "row", "", "2 rows"),
        (12_345, "row", "", "12,345 rows"),
        (1, "entry", "entries", "1 entry"),
        (0, "entry", "entries", "0 entries"),
        (1, "more run", "", "1 more run"),
    ],
)
def test_counted_combines_a_number_with_its_noun(
    number: int, noun: str, plural: str, text: str
) -> None:
    assert counted(number, noun, plural) == text


def test_all_used_describes_a_limit_that_was_reached() -> None:
    assert all_used(1, "call") == "the only call is used"
    assert all_used(5_000, "call") == "all 5,000 calls are used"
