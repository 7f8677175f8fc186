"""The coverage map of a context for which it is known exactly what was read, and by which calls."""

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rlm import Limits
from rlm.results import RunResult
from tests.browser.driving import Page, Visits, expect, wait_until
from tests.browser.models import Part, cell, play_once
from tests.browser.viewers import viewing
from tests.records.trajectories.samples import one_run, written

pytestmark = pytest.mark.heavy
SIDE, ROWS = 13, 18
CHARS = 20_000
LETTERS = "abcdefghijklmnopqrstuvwxyz .\u00e4\u6587\U0001f642"
TEXT = "".join(random.Random(3).choices(LETTERS, k=CHARS))
"""A random text without repetitions, with characters of one and two UTF-16 units."""

QUERY, CHILD = "What is in it?", "Look closer."
CODES = [
    "print(context[2_000:4_000])",
    "note = llm_query('Tell me:' + context[8_000:12_000])",
    f"print(context[10_000:11_000])\nrlm_query({CHILD!r}, context[15_000:18_000])",
    "unseen = context[18_500:19_500].upper()\nFINAL('letters')",
]
SPANS = {(2_000, 4_000): 1, (8_000, 10_000): 1, (10_000, 11_000): 2, (11_000, 12_000): 1}
SPANS[(15_500, 16_500)] = 1
"""What was read, and by how many. The child run printed a part of what it was given."""

UNREAD = "65 %"


class Mapped(NamedTuple):
    url: str
    run: RunResult


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapped]:
    state: Path = tmp_path_factory.mktemp("mapped") / "state"
    seen = ["print(context[500:1500])", "FINAL('seen')"]
    steps = {QUERY: [*map(cell, CODES)], CHILD: [*map(cell, seen)]}
    limits = Limits(max_depth=2)
    run = play_once(state, Part(steps), QUERY, TEXT, limits=limits, preview_chars=0)
    assert run.answer == "letters"
    with viewing(state) as url:
        yield Mapped(url, run)


@pytest.fixture
def page(visit: Visits, mapped: Mapped) -> Page:
    found = visit(f"{mapped.url}#/run/{mapped.run.run_id}/coverage")
    expect(found.locator(".coverage-head .big")).to_be_visible()
    wait_until(found, "document.querySelector('.context-map canvas').style.width !== ''")
    return found


def pieces(page: Page) -> tuple[int, list[tuple[int, int]]]:
    """How many columns the map has, and which characters each square stands for."""
    width = page.locator(".context-map canvas").bounding_box()["width"]
    columns = round(width / SIDE)
    many = columns * ROWS
    edges = [at * CHARS // many for at in range(many + 1)]
    return columns, [(edges[at], edges[at + 1]) for at in range(many)]


def readers_of(start: int, end: int) -> int:
    """The most readers of any part of it; 0 if nobody read any."""
    return max((n for (a, b), n in SPANS.items() if a < end and start < b), default=0)


def read_in(start: int, end: int) -> int:
    return sum(max(0, min(b, end) - max(a, start)) for a, b in SPANS)


def click(page: Page, number: int) -> None:
    columns, _ = pieces(page)
    spot = {"x": number % columns * SIDE + 5, "y": number // columns * SIDE + 5}
    page.locator(".context-map canvas").click(position=spot)


def test_the_percentage_of_unread_text_is_shown(page: Page) -> None:
    expect(page.locator(".coverage-head .big")).to_have_text(UNREAD)
    expect(page.locator(".coverage-head")).to_contain_text("20,000 characters, 4 readers.")
    expect(page.locator(".coverage-head")).to_contain_text("Found by matching every output")


def test_every_square_is_coloured_by_how_often_it_was_read(page: Page) -> None:
    """The lowest pixels of a square are filled if anything of it was read, the highest if all."""
    columns, squares = pieces(page)
    found: dict[str, Any] = page.evaluate(
        """([columns, count, side]) => {
          const canvas = document.querySelector('.context-map canvas')
          const {width, height} = canvas
          const {data} = canvas.getContext('2d').getImageData(0, 0, width, height)
          const scale = width / parseFloat(canvas.style.width)
          const at = (x, y) => {
            const place = 4 * (Math.floor(y * scale) * width + Math.floor(x * scale))
            return [...data.slice(place, place + 4)].join()
          }
          const swatches = [...document.querySelectorAll('.context-map .swatch')]
          const seen = Array.from({length: count}, (_, n) => {
            const [x, y] = [(n % columns) * side, Math.floor(n / columns) * side]
            return [at(x + 5, y + 1), at(x + 5, y + side - 4)]
          })
          return {seen, inks: swatches.map((each) => getComputedStyle(each).backgroundColor)}
        }""",
        [columns, len(squares), SIDE],
    )
    inks = [
        ",".join([*re.findall(r"\d+", ink)[:3], "255"]) for ink in found["inks"]
    ]  # as a canvas reports them
    assert len(set(inks)) == 5
    wrong = []
    for (start, end), (top, bottom) in zip(squares, found["seen"], strict=True):
        ink = inks[readers_of(start, end)]
        share = read_in(start, end) / (end - start)
        if share == 0.0 or share == 1.0:
            expected = (ink, ink)
        elif 0.3 < share < 0.7:
            expected = (inks[0], ink)
        else:
            continue
        if (top, bottom) != expected:
            wrong.append((start, end, top, bottom, expected))
    assert not wrong


@pytest.mark.parametrize(
    ("place", "readers"),
    [
        (500, []),
        (3_000, ["step 1: printed by cell 1"]),
        (8_500, ["step 2: sent to a call"]),
        (10_500, ["step 2: sent to a call", "step 3: printed by cell 1"]),
        (14_000, []),
        (15_200, []),
        (16_000, ["step 1: printed by cell 1"]),
        (19_000, []),
    ],
)
def test_clicking_a_square_lists_its_readers(
    page: Page, mapped: Mapped, place: int, readers: list[str]
) -> None:
    _, squares = pieces(page)
    number = next(at for at, (start, end) in enumerate(squares) if start <= place < end)
    start, end = squares[number]
    click(page, number)
    inspect = page.locator(".inspect")
    expect(inspect.locator(":is(h2, h3)")).to_have_text(f"Characters {start:,} to {end:,}")
    words = "100 % of it was read" if readers else "This part was never read."
    expect(inspect).to_contain_text(words)
    found = inspect.locator(".readers a").all_inner_texts()
    if place == 16_000:
        assert len(found) == 1
        assert re.fullmatch(r"child run \w{10}, step 1: printed by cell 1", found[0].strip())
    else:
        assert [each.strip() for each in found] == readers
    shown = inspect.locator(".context-text .inside")
    assert shown.evaluate("each => each.textContent") == TEXT[start:end]


def test_the_text_of_a_square_is_shaded_exactly_where_it_was_read(page: Page) -> None:
    """In a square at an edge, the shaded part of the text ends where reading ended."""
    _, squares = pieces(page)
    number = next(at for at, (start, end) in enumerate(squares) if start < 4_000 < end)
    start, end = squares[number]
    click(page, number)
    inside = page.locator(".inspect .context-text .inside .read")
    expect(inside).to_have_count(2)
    texts = [each.evaluate("each => each.textContent") for each in inside.all()]
    assert texts == [TEXT[start:4_000], TEXT[4_000:end]]
    assert "read-1" in inside.nth(0).get_attribute("class")
    assert "read-0" in inside.nth(1).get_attribute("class")


def test_a_reader_is_one_click_away(page: Page) -> None:
    _, squares = pieces(page)
    click(page, next(at for at, (start, end) in enumerate(squares) if start <= 9_000 < end))
    page.get_by_role("link", name="step 2: sent to a call").click()
    prompt = page.get_by_role("article", name="Selected call").get_by_label("Prompt")
    expect(prompt).to_contain_text(f"Tell me:{TEXT[8_000:8_020]}")


def test_the_map_can_be_navigated_by_keyboard_and_unread_parts_are_named(page: Page) -> None:
    _, squares = pieces(page)
    page.get_by_role("application", name=re.compile("Map of the context")).focus()
    page.keyboard.press("End")
    expect(page.locator(".inspect :is(h2, h3)")).to_have_text(
        f"Characters {squares[-1][0]:,} to 20,000"
    )
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    start, end = squares[1]
    expect(page.locator(".inspect :is(h2, h3)")).to_have_text(f"Characters {start:,} to {end:,}")
    gaps = page.locator(".gaps button").all_inner_texts()
    assert gaps == ["4,000 to 8,000", "12,000 to 15,500", "16,500 to 20,000", "0 to 2,000"]
    page.get_by_role("button", name="16,500 to 20,000").click()
    expect(page.locator(".inspect")).to_contain_text("This part was never read.")


def test_a_child_run_has_its_own_map(visit: Visits, mapped: Mapped) -> None:
    page = visit(f"{mapped.url}#/run/{mapped.run.run_id}")
    page.get_by_role("treeitem").nth(1).get_by_role("link").click()
    expect(page.get_by_role("heading", name=CHILD)).to_be_visible()
    page.get_by_role("link", name="Coverage").click()
    expect(page.locator(".coverage-head .big")).to_have_text(re.compile(r"\d"))
    expect(page.locator(".coverage-head")).to_contain_text("1 reader.")


def test_without_a_context_the_page_says_why(visit: Visits, tmp_path: Path) -> None:
    log = written(tmp_path / "a.jsonl", one_run("r", context_sha256="0" * 64))
    with viewing(log) as url:
        page = visit(f"{url}#/run/r/coverage")
        expect(page.locator(".empty")).to_contain_text("--context")
