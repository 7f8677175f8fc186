"""The site as readers meet it: pages open, search finds, and nothing is fetched from elsewhere."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.site.conftest import HTML

PAGES = sorted(path.relative_to(HTML).as_posix() for path in HTML.rglob("*.html"))


@pytest.fixture
def page(browser: Any, site_url: str) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    opened = context.new_page()
    opened.problems = []
    opened.on("pageerror", lambda error: opened.problems.append(str(error)))
    opened.on(
        "request",
        lambda request: (
            request.url.startswith((site_url, "data:", "blob:"))
            or opened.problems.append(f"asks {request.url}")
        ),
    )
    opened.on(
        "response",
        lambda response: (
            response.status < 400 or opened.problems.append(f"{response.status} {response.url}")
        ),
    )
    yield opened
    problems = opened.problems
    context.close()
    assert problems == []


def test_the_site_has_pages_of_every_kind() -> None:
    for name in ("index", "tutorial", "start/operators", "recipes/contracts", "api/runs"):
        assert f"{name}.html" in PAGES


@pytest.mark.parametrize("part", range(4))
def test_every_page_opens_without_requests_to_other_hosts(
    page: Any, site_url: str, part: int
) -> None:
    for name in PAGES[part::4]:
        page.goto(f"{site_url}/{name}", wait_until="load")
        assert page.locator("h1").count() >= 1, name


def test_search_finds_a_recipe(page: Any, site_url: str) -> None:
    page.goto(f"{site_url}/index.html")
    page.keyboard.press("/")
    page.keyboard.type("support tickets", delay=20)
    page.get_by_text("what do people complain about?").first.wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url("**/support-tickets.html**")


@pytest.mark.parametrize("width", [420, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_is_wider_than_the_window(
    browser: Any, site_url: str, theme: str, width: int
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 860}, color_scheme=theme)
    try:
        page = context.new_page()
        for name in ("index", "recipes/contracts", "reference/cli", "api/runs"):
            page.goto(f"{site_url}/{name}.html")
            excess = page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert excess <= 0, (name, excess)
            page.screenshot(path=str(HTML.parent / f"{name.replace('/', '-')}-{theme}-{width}.png"))
    finally:
        context.close()
