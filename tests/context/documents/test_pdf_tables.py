"""Tables are found by lines or by columns, and no text is lost or doubled."""

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from rlm.context.documents.pdf_tables import Rule, Segment, find_tables, join_rules

PROSE = (
    "The keeper of the lamp writes",
    "down every movement of the gate",
    "in a book that is kept upstairs",
    "and reads it when the tide turns",
)


def row(y: float, *cells: tuple[float, str]) -> list[Segment]:
    return [Segment(x, y, x + 5 * len(text), y + 10, text) for x, text in cells]


def grid(xs: Sequence[float], ys: Sequence[float]) -> list[Rule]:
    """The borders of every cell, drawn one by one as many programs do."""
    across = [Rule(x0, y, x1, y) for y in ys for x0, x1 in itertools.pairwise(xs)]
    return across + [Rule(x, y0, x, y1) for x in xs for y0, y1 in itertools.pairwise(ys)]


def test_a_grid_of_lines_is_a_table() -> None:
    segments = [
        *row(82, (12, "Name"), (112, "Duties")),
        *row(66, (12, "Ann"), (112, "keeps the lamp,")),
        *row(54, (112, "writes the book")),
        *row(32, (12, "Bo"), (112, "repairs")),
    ]
    rules = join_rules(grid((10, 110, 210), (30, 50, 80, 95)))
    assert len(rules) == 7
    (found,) = find_tables(segments, rules)
    assert found.text == (
        "| Name | Duties |\n| --- | --- |\n"
        "| Ann | keeps the lamp, writes the book |\n| Bo | repairs |"
    )
    assert found.segments == segments


def test_a_frame_around_text_is_not_a_table() -> None:
    segments = [each for y, text in enumerate(PROSE) for each in row(80 - 12 * y, (12, text))]
    assert find_tables(segments, join_rules(grid((10, 300), (30, 95)))) == []


def test_aligned_columns_are_a_table() -> None:
    segments = [
        *row(100, (10, "A heading")),
        *row(80, (10, "Month"), (100, "North"), (200, "South")),
        *row(68, (10, "January"), (110, "12"), (210, "15")),
        *row(56, (10, "March"), (210, "21")),
        *row(20, (10, "far"), (110, "below"), (210, "it")),
    ]
    (found,) = find_tables(segments, [])
    assert found.text == (
        "| Month | North | South |\n| --- | --- | --- |\n| January | 12 | 15 |\n| March |  | 21 |"
    )


def test_amounts_beside_names_are_a_table_but_names_beside_names_are_not() -> None:
    amounts = [(10, "Rent"), (300, "1,200.00")], [(10, "Repairs"), (300, "88.00")]
    segments = [
        each for y, cells in enumerate((*amounts, amounts[0])) for each in row(-12 * y, *cells)
    ]
    assert len(find_tables(segments, [])) == 1
    names = [each for y in range(4) for each in row(-12 * y, (10, "Ann"), (300, "Bo"))]
    assert find_tables(names, []) == []


def test_columns_of_prose_are_not_a_table() -> None:
    columns = [
        each
        for y, text in enumerate(PROSE * 3)
        for each in row(-12 * y, (10, text), (200, text), (390, text))
    ]
    assert find_tables(columns, []) == []


def test_a_drawing_has_no_rules() -> None:
    lines = [Rule(7 * each, 5 * each, 7 * each + 1, 5 * each + 4) for each in range(600)]
    assert join_rules(lines) == []


PLACES = st.floats(0, 600, width=32)
SEGMENTS = st.builds(
    lambda x, y, width, height, text: Segment(x, y, x + width, y + height, text),
    PLACES, PLACES, st.floats(1, 200, width=32), st.floats(5, 20, width=32),
    st.text("abc019", min_size=1, max_size=12),
)  # fmt: skip
RULES = st.builds(
    lambda x, y, length, across: Rule(x, y, x + length, y) if across else Rule(x, y, x, y + length),
    PLACES, PLACES, PLACES, st.booleans(),
)  # fmt: skip


@given(st.lists(SEGMENTS, max_size=40, unique_by=id), st.lists(RULES, max_size=20))
def test_every_segment_belongs_to_at_most_one_table(
    segments: list[Segment], rules: list[Rule]
) -> None:
    tables = find_tables(segments, join_rules(rules))
    taken = [id(each) for table in tables for each in table.segments]
    assert len(taken) == len(set(taken))
    for table in tables:
        words = table.text.replace("|", " ").replace("---", " ").split()
        assert sorted(words) == sorted(each.text for each in table.segments)
