"""Wide and narrow, dark and light: pages fit, focus is visible, and everything has a name."""

import importlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.driving import Page, Visits, expect
from tests.browser.story import Story

pytestmark = pytest.mark.heavy
SIZES = [(1280, 800), (390, 844)]
SCHEMES = ["light", "dark"]

VIEWS: dict[str, tuple[Callable[[Story], str], str]] = {
    "list": (lambda story: "", ".run-row, .run-card"),
    "all texts": (lambda story: "#/find?q=tickets", ".found-runs .hit"),
    "overview": (lambda story: f"#/run/{story.main.run_id}", ".answer table"),
    "step": (lambda story: f"#/run/{story.main.run_id}/step/2", ".calls"),
    "failed step": (lambda story: f"#/run/{story.main.run_id}/step/3", ".failure"),
    "calls": (lambda story: f"#/run/{story.main.run_id}/calls", ".gantt canvas"),
    "usage": (lambda story: f"#/run/{story.main.run_id}/usage", ".usage-chart svg"),
    "coverage": (lambda story: f"#/run/{story.main.run_id}/coverage", ".context-map canvas"),
    "search": (lambda story: f"#/run/{story.main.run_id}/search?q=tickets", ".hit"),
    "compare": (
        lambda story: f"#/compare/{story.main.run_id}/{story.short.run_id}",
        ".compare-page .diff",
    ),
}


def shown(visit: Visits, story: Story, url: str, view: str, **options: Any) -> Page:
    address, wanted = VIEWS[view]
    page = visit(f"{url}{address(story)}", **options)
    expect(page.locator(wanted).first).to_be_visible()
    return page


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", SIZES, ids=["wide", "narrow"])
@pytest.mark.parametrize("view", VIEWS)
def test_no_page_is_wider_than_the_window(
    visit: Visits, story: Story, story_url: str, view: str, size: tuple[int, int], scheme: str
) -> None:
    page = shown(visit, story, story_url, view, width=size[0], height=size[1], scheme=scheme)
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, f"the page is {wide} pixels wider than its window"
    ground = page.evaluate("getComputedStyle(document.documentElement).colorScheme")
    assert scheme in ground
    dark = page.evaluate(
        """() => {
          const canvas = document.createElement('canvas').getContext('2d')
          for (const each of [document.documentElement, document.body]) {
            canvas.fillStyle = getComputedStyle(each).backgroundColor
            canvas.fillRect(0, 0, 1, 1)
          }
          return canvas.getImageData(0, 0, 1, 1).data[0] < 128
        }"""
    )
    assert dark == (scheme == "dark")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_theme_can_be_chosen_and_is_remembered(
    visit: Visits, story_url: str, scheme: str
) -> None:
    page = visit(story_url, scheme=scheme)
    for words, theme in (("Auto", "dark"), ("Dark", "light"), ("Light", None)):
        page.get_by_role("button", name=f"Change the theme, now {words}").click()
        root = page.locator("html")
        if theme is None:
            expect(root).not_to_have_attribute("data-theme", re.compile("."))
        else:
            expect(root).to_have_attribute("data-theme", theme)
            page.reload()
            expect(root).to_have_attribute("data-theme", theme)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("view", ["list", "step", "calls", "coverage"])
def test_keyboard_focus_is_always_visible(
    visit: Visits, story: Story, story_url: str, view: str, scheme: str
) -> None:
    page = shown(visit, story, story_url, view, scheme=scheme)
    seen = []
    for _ in range(25):
        page.keyboard.press("Tab")
        element = page.evaluate(
            """() => {
              const element = document.activeElement
              if (!element || element === document.body) return null
              // A tree and lists mark the row that is active in them.
              const active = document.getElementById(element.getAttribute('aria-activedescendant'))
              const styles = [element, active ?? element].map((each) => getComputedStyle(each))
              const frame = element.getBoundingClientRect()
              return {
                name: element.outerHTML.slice(0, 90),
                is_marked: styles.some(
                  (style) => style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1),
                is_there: frame.width > 0 && frame.height > 0,
              }
            }"""
        )
        if element is None:
            break
        seen.append(element)
    assert len(seen) > 5
    assert [each["name"] for each in seen if not (each["is_marked"] and each["is_there"])] == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", SIZES, ids=["wide", "narrow"])
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_no_accessibility_problems(
    visit: Visits, story: Story, story_url: str, view: str, size: tuple[int, int], scheme: str
) -> None:
    axe = importlib.import_module("axe_playwright_python.sync_playwright").Axe()
    page = shown(visit, story, story_url, view, width=size[0], height=size[1], scheme=scheme)
    found = axe.run(page).response["violations"]
    told = [
        f"{each['id']} ({each['impact']}): {node['html'][:160]} {node['failureSummary'][:300]}"
        for each in found
        for node in each["nodes"][:3]
    ]
    assert told == []
