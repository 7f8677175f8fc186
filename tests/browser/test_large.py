"""A log of 200 MB can be opened, scrolled and searched; the page stays small. Times are printed."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.viewer import Log, words, write_log
from tests.browser.driving import Page, Visits, expect, node_count
from tests.browser.large_log import BUSY_CALLS, BYTES, NEEDLE, QUERY, write_large_log
from tests.browser.viewers import rlm_view, viewing

pytestmark = pytest.mark.heavy
MAX_NODES = 1_500


class Large(NamedTuple):
    path: Path
    steps: int


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Large]:
    path = tmp_path_factory.mktemp("large") / "large.jsonl"
    yield Large(path, write_large_log(path))
    path.unlink()


@pytest.fixture
def timed(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print how long something took since the previous call."""
    last = time.perf_counter()

    def tell(what: str) -> None:
        nonlocal last
        now = time.perf_counter()
        with capsys.disabled():
            print(f"\n    {now - last:6.2f} s  {what}", end="")
        last = time.perf_counter()

    return tell


def scrolled(page: Page, selector: str, places: int) -> int:
    """Scroll a list to its end in this many leaps; return the most nodes the page ever had."""
    most: int = page.evaluate(
        """async ([selector, places]) => {
          const list = document.querySelector(selector)
          let most = 0
          for (let at = 1; at <= places; at += 1) {
            list.scrollTop = (list.scrollHeight * at) / places
            await new Promise((done) => requestAnimationFrame(() => setTimeout(done)))
            most = Math.max(most, document.querySelectorAll('*').length)
          }
          return most
        }""",
        [selector, places],
    )
    return most


def reads_well(page: Page, large: Large, timed: Callable[[str], None]) -> None:
    """From the run's page on: a step of thousands of events, the last step, calls and search."""
    page.locator(".step-row", has_text="step 1").first.click()
    expect(page.locator(".calls-head")).to_be_visible()
    timed("the first step is shown")
    expect(page.locator(".calls-head")).to_contain_text(f"{BUSY_CALLS:,} calls")
    timed(f"all {2 * BUSY_CALLS:,} events of it are there")
    most = scrolled(page, ".call-list", 50)
    timed(f"its calls were scrolled through in 50 leaps; at most {most} nodes")
    assert most < MAX_NODES
    expect(page.locator(".call-row").last).to_contain_text(f"Part {BUSY_CALLS - 1}:")
    page.locator(".call-row").last.click()
    prompt = page.get_by_role("article", name="Selected call").get_by_label("Prompt")
    expect(prompt).to_contain_text(f"Part {BUSY_CALLS - 1}:")
    timed("its last call is opened")
    page.keyboard.press("Escape")
    page.keyboard.press("k")
    expect(page.get_by_text(f"output of step {large.steps}")).to_be_visible()
    timed("the last step is shown")
    page.get_by_role("link", name="Timeline", exact=True).click()
    expect(page.locator(".gantt")).to_be_visible()
    timed("calls in time are shown")
    assert scrolled(page, ".call-table", 20) < MAX_NODES
    page.keyboard.press("/")
    page.keyboard.type(NEEDLE.upper())
    page.keyboard.press("Enter")
    expect(page.locator(".hit")).to_have_count(1)
    timed("search has found the only place, near the end")
    page.locator(".hit").click()
    expect(prompt).to_contain_text(NEEDLE)
    assert node_count(page) < MAX_NODES


def test_the_viewer_opens_a_large_log(
    visit: Visits, large: Large, timed: Callable[[str], None]
) -> None:
    assert large.path.stat().st_size >= BYTES
    timed(f"a log of {large.path.stat().st_size / 1e6:.0f} MB, {large.steps} steps is written")
    with rlm_view(str(large.path)) as viewer:
        timed("rlm view has started")
        page = visit(viewer.url)
        row = page.locator(".run-row", has_text=QUERY)
        expect(row).to_be_visible()
        timed("the list shows the run")
        expect(row.locator(".status")).to_contain_text("answer")
        timed("and how it ended")
        row.get_by_role("link").click()
        expect(page.locator(".answer")).to_contain_text("42")
        timed("the run is shown")
        reads_well(page, large, timed)


def test_a_dropped_large_log_is_opened_by_the_server(
    visit: Visits, large: Large, timed: Callable[[str], None]
) -> None:
    with rlm_view(str(large.path.parent / ".."), RLM_STATE_DIR=str(large.path.parent)) as viewer:
        page = visit(viewer.url)
        expect(page.locator(".list-page")).to_be_visible()
        timed("a page is there")
        page.locator("input[type=file]").set_input_files(large.path)
        expect(page.locator(".answer")).to_contain_text("42")
        timed("the dropped log is copied and read, and its run shown")
        reads_well(page, large, timed)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """A run of 100,000 events, with its context."""
    folder = tmp_path_factory.mktemp("many")
    return write_log(folder, "events", words(1_000_000), 200, lambda events, _: events >= 100_000)


def test_every_page_of_a_run_of_100000_events_loads(
    visit: Visits, many: Log, timed: Callable[[str], None]
) -> None:
    pages = {
        "": ".step-row",
        "/step/100": ".call-row",
        "/calls": ".call-table .call-row",
        "/usage": ".usage-table tbody tr",
        "/context": ".context-row",
        "/search?q=output%20of%20step%20200": ".hit",
        "/coverage": ".context-map canvas",
    }
    with viewing(many.path, context=many.context) as url:
        page = visit(url)
        expect(page.locator(".run-row .query a")).to_be_visible()
        timed(f"{many.events:,} events are listed")
        for place, wanted in pages.items():
            page.evaluate("address => location.hash = address", f"#/run/large{place}")
            expect(page.locator(wanted).first).to_be_visible(timeout=300_000)
            timed(f"page {place or 'of the run'}")
            # A page of the context has 200 lines, each a button and some text.
            assert node_count(page) < (3 * MAX_NODES if place == "/context" else 2 * MAX_NODES)
