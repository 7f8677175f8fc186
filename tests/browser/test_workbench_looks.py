"""Every page of the workbench at two widths in both themes: axe, width, and pictures for the docs.

`UPDATE_SCREENSHOTS=1` has the pictures taken again; without it, those that exist are looked at.
"""

import importlib
import io
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.driving import Page, Visits, expect
from tests.browser.views import VIEWS, Places, places
from tests.browser.workbench import Workbench
from tests.shape.tree import ROOT

pytestmark = pytest.mark.heavy
IMAGES = ROOT / "docs" / "images" / "viewer"
SIZES = {"wide": (1280, 800), "narrow": (420, 860)}
SCHEMES = ["light", "dark"]
MAX_BYTES = 150_000
COLOURS = 96


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workbench, Places]]:
    with places(tmp_path_factory.mktemp("looks")) as found:
        yield found


def shown(
    visit: Visits,
    made: tuple[Workbench, Places],
    name: str,
    size: str,
    scheme: str,
    *,
    arranged: bool = True,
) -> Page:
    view, (width, height) = VIEWS[name], SIZES[size]
    workbench, found = made
    one, other = (run.run_id for run in workbench.pair.runs)
    names = {"run": workbench.run.run_id, "one": one, "other": other}
    address = f"{getattr(found, view.place)}{view.address.format(**names)}"
    page = visit(address, width=width, height=height, scheme=scheme)
    expect(page.locator(view.wanted).first).to_be_visible()
    if arranged:
        view.arrange(page)
    return page


def complaints(page: Page) -> list[str]:
    axe: Any = importlib.import_module("axe_playwright_python.sync_playwright").Axe()
    return [
        f"{each['id']} ({each['impact']}): {node['html'][:160]} {node['failureSummary'][:300]}"
        for each in axe.run(page).response["violations"]
        for node in each["nodes"][:3]
    ]


def take(page: Page, name: str, size: str, scheme: str) -> None:
    """Only if asked to; with few colours, because a repository is no album."""
    path = IMAGES / f"{name}-{size}-{scheme}.png"
    if os.environ.get("UPDATE_SCREENSHOTS"):
        page.mouse.move(0, 0)
        page.wait_for_timeout(200)
        image = importlib.import_module("PIL.Image")
        taken = image.open(io.BytesIO(page.screenshot())).convert("RGB")
        IMAGES.mkdir(exist_ok=True)
        taken.quantize(COLOURS, dither=image.Dither.NONE).save(path, optimize=True)
    assert 3_000 < path.stat().st_size < MAX_BYTES
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", VIEWS)
def test_pages_fit_the_window_are_accessible_and_have_screenshots(
    visit: Visits, made: tuple[Workbench, Places], name: str, size: str, scheme: str
) -> None:
    page = shown(visit, made, name, size, scheme)
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, f"the page is {wide} pixels wider than its window"
    beyond = page.evaluate(
        """() => [...document.querySelectorAll('header input, header button, header h1')]
          .filter((each) => each.offsetParent)
          .filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
          .map((each) => each.outerHTML.slice(0, 80))"""
    )
    assert beyond == []
    assert complaints(page) == []
    take(page, name, size, scheme)


@pytest.mark.parametrize("name", ["timeline", "usage", "context", "compared", "compare", "actions"])
def test_keyboard_focus_is_always_visible(
    visit: Visits, made: tuple[Workbench, Places], name: str
) -> None:
    page = shown(visit, made, name, "wide", "light", arranged=name == "actions")
    seen = []
    for _ in range(30):
        page.keyboard.press("Tab")
        element = page.evaluate(
            """() => {
              const element = document.activeElement
              if (!element || element === document.body) return null
              const active = document.getElementById(element.getAttribute('aria-activedescendant'))
              const styles = [element, active ?? element].map((each) => getComputedStyle(each))
              return {
                name: element.outerHTML.slice(0, 90),
                is_marked: styles.some(
                  (style) => style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1),
              }
            }"""
        )
        if element is not None:
            seen.append(element)
    assert len(seen) > 5
    assert [each["name"] for each in seen if not each["is_marked"]] == []


def test_exactly_these_screenshots_exist() -> None:
    made = {f"{name}-{size}-{scheme}.png" for name in VIEWS for size in SIZES for scheme in SCHEMES}
    assert {path.name for path in IMAGES.glob("*.png")} == made
