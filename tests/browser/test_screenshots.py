"""Pictures of the documentation: `UPDATE_SCREENSHOTS=1` has them taken again.

Without it the pages are only shown as they are there, and the pictures that exist are looked at.
"""

import io
import os
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from tests.browser.driving import Page, Visits, expect
from tests.browser.going_on import asking
from tests.browser.story import PART, QUERY, Story, tickets
from tests.browser.viewers import rlm_view
from tests.shape.tree import ROOT

pytestmark = pytest.mark.heavy
IMAGES = ROOT / "docs" / "images"
SCHEMES = ["light", "dark"]
MAX_BYTES = 150_000
COLOURS = 192


def take(page: Page, name: str, scheme: str) -> None:
    """Only if asked to; with few colours, for a repository is no album."""
    page.mouse.move(0, 0)
    page.wait_for_timeout(300)
    path = IMAGES / f"viewer-{name}-{scheme}.png"
    if os.environ.get("UPDATE_SCREENSHOTS"):
        image = import_module("PIL.Image")
        taken = image.open(io.BytesIO(page.screenshot())).convert("RGB")
        taken.quantize(COLOURS, dither=image.Dither.NONE).save(path, optimize=True)
    assert 5_000 < path.stat().st_size < MAX_BYTES
    assert path.read_bytes().startswith(b"\x89PNG")


def a_list(page: Page, story: Story) -> None:
    expect(page.locator(".run-row .query a")).to_have_count(5)


def a_run(page: Page, story: Story) -> None:
    expect(page.locator(".variables tr").first).to_be_visible()
    page.locator(".call-row").nth(3).click()
    expect(page.get_by_role("article", name="Selected call").get_by_label("Reply")).to_be_visible()
    page.locator(".reading").evaluate("each => each.scrollTo(0, 0)")


def a_gantt(page: Page, story: Story) -> None:
    chart = page.get_by_role("application", name=re.compile("Timeline"))
    chart.focus()
    for _ in range(20):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".chosen")).to_contain_text("Part")


def a_map(page: Page, story: Story) -> None:
    box = page.locator(".context-map canvas").bounding_box()
    spot = {"x": box["width"] * 0.4, "y": box["height"] * 0.14}
    page.locator(".context-map canvas").click(position=spot)
    expect(page.locator(".context-text")).to_be_visible()


PICTURES: dict[str, tuple[str, Callable[[Page, Story], None]]] = {
    "list": ("", a_list),
    "run": ("#/run/{}/step/2", a_run),
    "calls": ("#/run/{}/calls", a_gantt),
    "coverage": ("#/run/{}/coverage", a_map),
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PICTURES)
def test_screenshots_of_finished_runs_are_taken(
    visit: Visits, story: Story, story_url: str, name: str, scheme: str
) -> None:
    address, arrange = PICTURES[name]
    height = 420 if name == "list" else 800
    page = visit(f"{story_url}{address.format(story.main.run_id)}", height=height, scheme=scheme)
    arrange(page, story)
    take(page, name, scheme)


def is_quick(prompt: str) -> bool:
    """Two of three calls are answered, the others go on."""
    number = re.match(r"Part (\d+)\.", prompt)
    return number is not None and int(number[1]) % 3 != 1


@pytest.mark.parametrize("scheme", SCHEMES)
def test_screenshots_of_a_running_run_are_taken(visit: Visits, tmp_path: Path, scheme: str) -> None:
    state = tmp_path / "state"
    with (
        rlm_view(RLM_STATE_DIR=str(state)) as viewer,
        asking(state, QUERY, PART, tickets(), free=is_quick) as going,
    ):
        page = visit(viewer.url, scheme=scheme)
        going.release(2)
        page.locator(".run-row", has_text="Which version").get_by_role("link").click()
        expect(page.locator(".calls-head")).to_contain_text("64 calls")
        expect(page.locator(".going")).to_have_text("live")
        expect(page.locator(".call-row", has_text="in progress").first).to_be_visible()
        take(page, "live", scheme)


def test_exactly_these_screenshots_exist() -> None:
    names = {path.name for path in IMAGES.glob("viewer-*.png")}
    assert names == {
        f"viewer-{name}-{scheme}.png" for name in (*PICTURES, "live") for scheme in SCHEMES
    }
