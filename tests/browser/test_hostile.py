"""Everything in a log is shown as text: it runs nothing, loads nothing, and breaks no layout."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.browser.driving import Page, Visits, expect
from tests.browser.hostile_log import LINE_CHARS, NAMELESS, RUN_ID, write_hostile_log
from tests.browser.viewers import viewing

pytestmark = pytest.mark.heavy
RUN = f"#/run/{quote(RUN_ID, safe='')}"
MADE = "#app :is(script, img, iframe, object, embed, base, style, link, meta, form[action])"

INVISIBLE = r"""() => {
  const seen = [document.body.innerText, document.title]
  for (const each of document.querySelectorAll('[title], [aria-label]')) {
    seen.push(each.title, each.ariaLabel ?? '')
  }
  return seen.filter((text) => /[\u202a-\u202e\u2066-\u2069\u200b\x00-\x08\x1b]/.test(text))
}"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hostile_log(tmp_path_factory.mktemp("hostile") / "log.jsonl")


@pytest.fixture(scope="module")
def url(log: Path) -> Iterator[str]:
    with viewing(log) as address:
        yield address


def is_harmless(page: Page) -> None:
    """Check that no text became an element, no link leads away, and the page is not too wide."""
    assert page.locator(MADE).count() == 0
    assert page.locator("[onerror], [onload], [onmouseover], [srcdoc]").count() == 0
    links = page.eval_on_selector_all("a", "all => all.map((each) => each.getAttribute('href'))")
    assert [each for each in links if not each.startswith("#")] == []
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, f"the page is {wide} pixels wider than its window"
    assert page.evaluate(INVISIBLE) == [], "what can't be seen must have been made visible"


@pytest.mark.parametrize("width", [1280, 390])
def test_lists_runs_and_steps_show_only_text(visit: Visits, url: str, width: int) -> None:
    page = visit(url, width=width)
    expect(page.get_by_text("could not be read")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="<script>")).to_have_count(1)
    is_harmless(page)
    page.get_by_role("row").filter(has_text="<script>").get_by_role("link").click()
    expect(page.locator(".answer")).to_contain_text("<img src=x onerror=")
    page.get_by_text("Settings", exact=True).click()
    is_harmless(page)
    for step in (1, 2):
        page.evaluate("address => location.hash = address", f"{RUN}/step/{step}")
        expect(page.get_by_role("heading", name=f"Step {step}", exact=True)).to_be_visible()
        expect(page.locator(".failure").first).to_contain_text("window.__pwned=")
        page.eval_on_selector_all("details", "all => all.forEach((each) => { each.open = true })")
        expect(page.locator(".output-stdout").first).to_contain_text("⟨ESC⟩[31mred")
        expect(page.locator(".output-stdout").first).to_contain_text("⟨U+202E⟩gnp.exe")
        is_harmless(page)


def test_very_long_texts_are_loaded_in_parts(visit: Visits, url: str) -> None:
    page = visit(f"{url}{RUN}/step/1")
    output = page.locator(".output-stderr")
    expect(output.locator(".more")).to_contain_text(f"of {LINE_CHARS:,} characters")
    output.get_by_role("button", name="Show more").click()
    expect(output.locator(".more")).to_contain_text("60,000 of")
    output.get_by_role("button", name="Next part").click()
    expect(output.locator(".more")).to_contain_text("characters 60,001 to 120,000")
    assert len(output.locator("pre").inner_text()) == 60_000
    is_harmless(page)


def test_raw_replies_and_calls_show_only_text(visit: Visits, url: str) -> None:
    page = visit(f"{url}{RUN}/step/1")
    page.get_by_role("button", name="Show as written").click()
    expect(page.get_by_label("Reply as it was written")).to_contain_text("[press](javascript:")
    page.locator(".call-row").first.click()
    expect(page.get_by_role("article", name="Selected call")).to_contain_text("<svg onload=")
    is_harmless(page)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("view", ["calls", "usage", "coverage", "search?q=pwned"])
def test_charts_and_search_show_only_text(visit: Visits, url: str, view: str, width: int) -> None:
    page = visit(f"{url}{RUN}/{view}", width=width)
    waits = {"calls": ".gantt", "usage": ".usage-chart", "coverage": ".empty"}
    expect(page.locator(waits.get(view, ".hit")).first).to_be_visible()
    if view == "calls":
        page.locator(".call-table .call-row .kind").first.click()
        expect(page.locator(".chosen")).to_be_visible()
    is_harmless(page)


def test_a_run_without_a_query_shows_only_its_id(visit: Visits, url: str) -> None:
    page = visit(f"{url}#/run/{quote(NAMELESS, safe='')}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("<img src=x onerror=")
    is_harmless(page)


def test_a_comparison_shows_only_text(visit: Visits, url: str) -> None:
    page = visit(f"{url}#/compare/{quote(RUN_ID, safe='')}/another")
    expect(page.get_by_role("group", name="Answers")).to_contain_text("<script>")
    is_harmless(page)


@pytest.mark.parametrize(
    "address",
    [
        "#/run/%3Cimg%20src%3Dx%20onerror%3Dwindow.__pwned%3D1%3E",
        "#/run/%ff%00/step/99999999999",
        "#/compare/%3Cscript%3E/..%2f..",
        "#/run/another/step/1?call=%22%3E%3Cimg%20src%3Dx%20onerror%3Dwindow.__pwned%3D1%3E",
        "#javascript:window.__pwned=1",
    ],
)
def test_a_hostile_address_is_harmless(visit: Visits, url: str, address: str) -> None:
    visit.forgive("404|400")
    page = visit(f"{url}{address}")
    expect(page.locator("main")).not_to_be_empty()
    is_harmless(page)


def test_a_dropped_hostile_log_is_harmless_too(visit: Visits, url: str, log: Path) -> None:
    page = visit(url)
    page.locator("input[type=file]").set_input_files(log)
    expect(page.locator(".where")).to_have_text("log.jsonl")
    expect(page.locator(".opening")).to_have_count(0)
    expect(page.get_by_role("row").filter(has_text="<script>")).to_have_count(1)
    is_harmless(page)
    page.get_by_role("row").filter(has_text="<script>").get_by_role("link").click()
    expect(page.locator(".answer")).to_contain_text("<img src=x onerror=")
    page.locator(".step-row", has_text="step 1").click()
    expect(page.locator(".failure").first).to_contain_text("window.__pwned=")
    expect(page.locator(".output-stdout").first).to_contain_text("⟨U+202E⟩gnp.exe")
    expect(page.locator(".output-stdout")).to_have_count(1)  # The line with LONE is not JSON.
    is_harmless(page)
    page.get_by_role("link", name="Timeline", exact=True).click()
    expect(page.locator(".gantt")).to_be_visible()
    is_harmless(page)
