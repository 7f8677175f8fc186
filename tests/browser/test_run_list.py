"""The list as a place to work: filters in the address, search over all texts, judging, groups."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlm.events import CellOutput, CellStarted, Event
from rlm.logger import encoded
from tests.browser.driving import Page, Visits, expect, node_count, wait_until
from tests.browser.viewers import viewing
from tests.records.trajectories.samples import ended, started, written

pytestmark = pytest.mark.heavy
MANY = 10_000
WIDTHS = [1280, 420]


def one(run_id: str, at: float, **facts: Any) -> list[Event]:
    """A run with a cell; `output` is what that printed."""
    output = facts.pop("output", f"output of {run_id}")
    answer = facts.pop("answer", f"answer of {run_id}")
    about: dict[str, Any] = {"run_id": run_id, "step": 1, "cell": 1}
    return [
        started(run_id, wall_time=at, **facts),
        CellStarted(code=f"print('code of {run_id}')", **about),
        CellOutput(stream="stdout", text=output, written_chars=len(output), **about),
        ended(run_id, step=1, answer=answer, wall_time=at + 2),
    ]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two turns of a chat, and two runs of other models."""
    folder = tmp_path / "logs"
    folder.mkdir()
    chat = {"group": {"kind": "chat", "name": "c1"}}
    written(folder / "a.jsonl", one("a", 100.0, query="First turn?", settings=chat))
    written(folder / "b.jsonl", one("b", 200.0, query="Second turn?", settings=chat))
    written(folder / "c.jsonl", one("c", 300.0, query="Alone?", model="p/other"))
    written(folder / "d.jsonl", one("d", 400.0, query="Broken?", output="a needle\nin hay"))
    return folder


@pytest.fixture
def url(logs: Path) -> Iterator[str]:
    with viewing(logs) as address:
        yield address


def queries(page: Page) -> list[str]:
    found: list[str] = page.locator(".query a, .run-card a").all_inner_texts()
    return found


def axe_complaints(page: Page) -> list[str]:
    axe = importlib.import_module("axe_playwright_python.sync_playwright").Axe()
    return [
        f"{each['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
        for each in axe.run(page).response["violations"]
        for node in each["nodes"][:3]
    ]


# -- filters --------------------------------------------------------------------------------------


def test_filters_stay_in_the_address(visit: Visits, url: str) -> None:
    page = visit(url)
    expect(page.locator(".bar")).to_contain_text("4 runs")
    page.get_by_role("combobox", name="Model").select_option("p/other")
    expect(page.locator(".bar")).to_contain_text("1 of 4 runs")
    assert page.url.endswith("#/?model=p%2Fother")
    page.get_by_label("Filter runs by words").fill("alone & sad?")
    expect(page.get_by_text("No runs match this filter.")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Filter runs by words")).to_have_value("alone & sad?")
    page.get_by_label("Filter runs by words").fill("alone")
    expect(page.locator(".bar")).to_contain_text("1 of 4 runs")
    page.get_by_role("link", name="Alone?").click()
    expect(page.get_by_role("heading", name="Judgment")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("combobox", name="Model")).to_have_value("p/other")
    expect(page.get_by_label("Filter runs by words")).to_have_value("alone")


def test_the_order_stays_in_the_address(visit: Visits, url: str) -> None:
    page = visit(url)
    expect(page.locator(".bar")).to_contain_text("4 runs")
    page.get_by_role("button", name="query", exact=True).click()
    expect(page.get_by_role("columnheader", name="query")).to_have_attribute(
        "aria-sort", "ascending"
    )
    assert page.url.endswith("#/?sort=query")
    page.reload()
    expect(page.get_by_role("columnheader", name="query")).to_have_attribute(
        "aria-sort", "ascending"
    )


def test_any_address_options_show_the_list(visit: Visits, url: str) -> None:
    base = url.partition("?")[0]
    page = visit(url)
    for options in (
        "?status=evil&sort=-no&score=9",
        "?q=%E0%A4%A&tag=%00",
        "?model=<b>x</b>",
        "?" + "q=x&" * 500,
    ):
        page.goto(f"{base}#/{options}")
        expect(page.get_by_role("heading", name="Runs")).to_be_visible()


# -- groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
def test_turns_of_a_chat_are_one_expandable_row(visit: Visits, url: str, width: int) -> None:
    page = visit(url, width=width)
    expect(page.locator(".bar")).to_contain_text("4 runs")
    group = page.get_by_role("button", name="chat First turn?")
    expect(group).to_have_attribute("aria-expanded", "false")
    expect(page.locator(".group")).to_contain_text("2 turns")
    assert queries(page) == ["Broken?", "Alone?"]
    group.click()
    expect(group).to_have_attribute("aria-expanded", "true")
    assert queries(page) == ["Broken?", "Alone?", "Second turn?", "First turn?"]
    page.keyboard.press("Escape")
    for _ in range(3):
        page.keyboard.press("j")
    expect(page.locator(".group")).to_have_class(re.compile("active"))


def test_a_group_can_be_opened_by_keyboard(visit: Visits, url: str) -> None:
    page = visit(url)
    expect(page.locator(".bar")).to_contain_text("4 runs")
    for key in "jjjo":
        page.keyboard.press(key)
    expect(page.get_by_role("link", name="Second turn?")).to_be_visible()


# -- all texts ------------------------------------------------------------------------------------


def test_text_of_any_run_is_found_and_opened_at_its_position(visit: Visits, url: str) -> None:
    page = visit(url)
    expect(page.locator(".bar")).to_contain_text("4 runs")
    page.keyboard.press("/")
    page.keyboard.type("needle")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Search all runs")).to_be_visible()
    hit = page.locator(".found-runs .hit")
    expect(hit).to_have_count(1)
    expect(hit).to_contain_text("step 1, output of cell 1")
    expect(hit.locator("mark")).to_have_text("needle")
    hit.click()
    expect(page.get_by_role("heading", name="Step 1", exact=True)).to_be_visible()
    expect(page.get_by_text("a needle")).to_be_visible()
    page.go_back()
    page.get_by_label("Words in queries").fill("answer of")
    expect(page.locator(".found-runs li")).to_have_count(4)
    expect(page.locator("[aria-live]")).to_contain_text("4 runs found")
    page.get_by_label("Words in queries").fill("zebra")
    expect(page.get_by_text("No text in these runs contains all of “zebra”.")).to_be_visible()


def test_filters_narrow_the_search(visit: Visits, url: str) -> None:
    page = visit(url)
    page.goto(f"{url.partition('?')[0]}#/find?q=answer&model=p%2Fother")
    expect(page.locator(".found-runs li")).to_have_count(1)
    expect(page.get_by_text('Only runs with model="p/other"')).to_be_visible()
    page.get_by_role("link", name="List of runs", exact=True).click()
    expect(page.get_by_role("combobox", name="Model")).to_have_value("p/other")


# -- judging --------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
def test_a_run_is_tagged_scored_and_commented(visit: Visits, url: str, width: int) -> None:
    visit.forgive("status of 400")
    page = visit(f"{url}#/run/c", width=width)
    panel = page.get_by_role("region", name="Judgment")
    panel.get_by_role("button", name="Good (1)").click()
    expect(panel.get_by_role("button", name="Good (1)")).to_have_attribute("aria-pressed", "true")
    panel.get_by_label("Another score").fill("0,75")
    panel.get_by_role("button", name="Set").click()
    expect(panel.locator("strong")).to_have_text("0.75")
    panel.get_by_label("New tag").fill("good kept")
    panel.get_by_role("button", name="Add").click()
    expect(panel.locator(".badge-tag")).to_have_count(2)
    panel.get_by_role("button", name="Remove the tag kept").click()
    expect(panel.locator(".badge-tag")).to_have_count(1)
    panel.get_by_label("New tag").fill("<b>")
    panel.get_by_role("button", name="Add").click()
    expect(panel.get_by_role("alert")).to_contain_text("can't be a tag")
    panel.get_by_label("New comment").fill("<img src=x onerror=alert(1)> \u202eevil")
    panel.get_by_role("button", name="Comment", exact=True).click()
    expect(panel.locator("li")).to_contain_text("<img src=x onerror=alert(1)>")
    assert axe_complaints(page) == []
    page.reload()
    expect(panel.locator("strong")).to_have_text("0.75")
    page.goto(f"{url.partition('?')[0]}#/")
    row = page.locator(".run-row, .run-card", has_text="Alone?")
    expect(row).to_contain_text("good")
    expect(row).to_contain_text("0.75")
    expect(row).to_contain_text("1 comment")
    page.get_by_role("combobox", name="Tag").select_option("good")
    expect(page.locator(".bar")).to_contain_text("1 of 4 runs")
    page.get_by_role("combobox", name="Score").select_option("0.8")
    expect(page.get_by_text("No runs match this filter.")).to_be_visible()


def test_another_page_sees_a_judgment_without_reloading(visit: Visits, url: str) -> None:
    page, other = visit(url), visit(f"{url}#/run/c")
    expect(page.locator(".bar")).to_contain_text("4 runs")
    other.get_by_label("New tag").fill("fresh")
    other.get_by_role("button", name="Add").click()
    expect(page.locator(".run-row", has_text="Alone?")).to_contain_text("fresh")


# -- accessibility --------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_no_problems_and_no_page_is_wider_than_the_window(
    visit: Visits, url: str, width: int, scheme: str
) -> None:
    page = visit(url, width=width, scheme=scheme)
    base = url.partition("?")[0]
    page.get_by_role("button", name="chat First turn?").click()
    for address, wanted in (
        ("#/", ".group"),
        ("#/find?q=answer", ".hit"),
        ("#/run/c", ".judge textarea"),
    ):
        page.goto(f"{base}{address}")
        expect(page.locator(wanted).first).to_be_visible()
        assert axe_complaints(page) == []
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_an_empty_list_says_what_would_appear_there(visit: Visits, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with viewing(tmp_path / "empty") as address:
        page = visit(address)
        expect(page.locator(".empty")).to_contain_text("No logs here yet")


# -- many -----------------------------------------------------------------------------------------


def test_a_list_of_ten_thousand_runs_stays_responsive(visit: Visits, tmp_path: Path) -> None:
    """The page holds only the rows in view, and responds to keys and filters."""
    folder = tmp_path / "many"
    folder.mkdir()
    for part in range(10):
        lines = (
            encoded(event) + b"\n"
            for number in range(part, MANY, 10)
            for event in one(f"r{number:05}", 1_000.0 + number, query=f"Question {number}?")
        )
        (folder / f"part{part}.jsonl").write_bytes(b"".join(lines))
    with viewing(folder) as address:
        page = visit(address)
        expect(page.locator(".bar")).to_contain_text("10,000 runs", timeout=120_000)
        assert node_count(page) < 3_000
        assert queries(page)[0] == f"Question {MANY - 1}?"
        page.get_by_label("Filter runs by words").fill("question 123")
        expect(page.locator(".bar")).to_contain_text("20 of 10,000 runs")
        page.get_by_label("Filter runs by words").fill("")
        expect(page.locator(".bar")).to_contain_text("10,000 runs")
        page.locator(".windowed").evaluate("element => element.scrollTop = element.scrollHeight")
        wait_until(page, "() => document.querySelector('.runs').innerText.includes('Question 0?')")
        assert node_count(page) < 3_000
        page.goto(f"{address.partition('?')[0]}#/find?q=r04711")
        expect(page.locator(".found-runs li")).to_have_count(1, timeout=120_000)
        page.locator(".found-runs .hit").first.click()
        expect(page.locator("h1")).to_contain_text("Question 4711?")
