"""A run that goes on in another process while its page is open."""

from pathlib import Path

import pytest

from tests.browser.driving import Page, Visits, expect
from tests.browser.going_on import asking
from tests.browser.models import Part, cell
from tests.browser.viewers import rlm_view

pytestmark = pytest.mark.heavy
AWAY = "ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET|status of 503"
"""What a browser reports while the viewer stops, which it answers with 503, and when it is away."""

QUERY = "How does it end?"
STEPS = [
    cell("print('the first look')", "I look."),
    cell("note = llm_query('And then?')\nprint('it says', note)"),
    cell("print('the third look')"),
    cell("print('while nobody was there')"),
    cell("FINAL('It ends well.')"),
]
PART = Part({QUERY: STEPS})


def at(page: Page, step: int) -> None:
    expect(page.get_by_role("heading", name=f"Step {step}", exact=True)).to_be_visible()
    assert page.url.endswith(f"/step/{step}")


def output(page: Page) -> Page:
    return page.locator(".step .output")


def test_a_run_is_followed_live_from_start_to_end(visit: Visits, tmp_path: Path) -> None:
    visit.forgive(AWAY)
    state = tmp_path / "state"
    folder = {"RLM_STATE_DIR": str(state)}
    with rlm_view(**folder) as first:
        page = visit(first.url)
        expect(page.get_by_text("No runs yet.")).to_be_visible()
        page.evaluate("window.__loaded_once = true")
        with asking(state, QUERY, PART) as going:
            row = page.locator(".run-row", has_text=QUERY)
            expect(row.locator(".status")).to_contain_text("running")
            row.get_by_role("link").click()
            expect(page.locator(".going")).to_have_text("live")
            at(page, 1)
            going.release()
            at(page, 2)
            going.release()  # the cell has begun; its call waits
            expect(page.locator(".call-row")).to_contain_text("And then?")
            expect(page.locator(".call-row")).to_contain_text("in progress")
            expect(page.locator(".cell .python")).to_contain_text("note = llm_query")
            going.release()
            at(page, 3)

            # Going back stops following, until the user chooses to follow again.
            page.keyboard.press("k")
            at(page, 2)
            expect(output(page)).to_contain_text("it says yes")
            expect(page.get_by_role("button", name="Follow", exact=True)).to_be_visible()
            going.release()
            expect(page.locator(".step-row", has_text="step 4")).to_be_visible()
            at(page, 2)
            page.keyboard.press("f")
            at(page, 4)

            first.process.terminate()
            first.process.wait(60)
            expect(page.locator(".lost")).to_contain_text("connection lost, trying again")
            going.release()
            with rlm_view(port=first.port, **folder):
                expect(page.locator(".going")).to_have_text("live")
                at(page, 5)
                page.keyboard.press("k")
                expect(output(page)).to_contain_text("while nobody was there")
                going.release()
                expect(page.locator(".run-facts .status")).to_contain_text("answer")
                expect(page.locator(".live")).to_have_count(0)
                assert going.finish() == "It ends well.\n"
                page.keyboard.press("Escape")
                expect(page.locator(".answer")).to_contain_text("It ends well.")
                page.get_by_role("link", name="rlm: list of runs").click()
                expect(row.locator(".status")).to_contain_text("answer")
                assert page.evaluate("window.__loaded_once") is True


def test_the_list_is_correct_after_a_restart_of_the_viewer(visit: Visits, tmp_path: Path) -> None:
    """Events during the viewer's absence are not shown twice; the page reloads the list."""
    visit.forgive(AWAY)
    state = tmp_path / "state"
    with rlm_view(RLM_STATE_DIR=str(state)) as first:
        page = visit(first.url)
        expect(page.get_by_text("No runs yet.")).to_be_visible()
        first.process.terminate()
        first.process.wait(60)
        expect(page.locator(".lost")).to_be_visible()
    with asking(state, QUERY, PART) as going:
        going.release(6)
        going.finish()
    with rlm_view(port=first.port, RLM_STATE_DIR=str(state)):
        row = page.locator(".run-row", has_text=QUERY)
        expect(row.locator(".status")).to_contain_text("answer")


def test_a_run_that_is_killed_is_shown_as_interrupted(visit: Visits, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with rlm_view(RLM_STATE_DIR=str(state)) as viewer, asking(state, QUERY, PART) as going:
        going.release()
        page = visit(viewer.url)
        row = page.locator(".run-row", has_text=QUERY)
        expect(row.locator(".status")).to_contain_text("running")
        assert going.process is not None
        going.process.kill()
        going.process.wait()
        expect(row.locator(".status")).to_contain_text("interrupted")


def test_charts_of_a_running_run_grow(visit: Visits, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with rlm_view(RLM_STATE_DIR=str(state)) as viewer, asking(state, QUERY, PART) as going:
        page = visit(viewer.url)
        page.locator(".run-row", has_text=QUERY).get_by_role("link").click()
        page.get_by_role("link", name="Timeline", exact=True).click()
        expect(page.locator(".calls-page .bar").first).to_contain_text("0 calls, at most 1 at once")
        going.release(3)
        expect(page.locator(".calls-page .bar").first).to_contain_text("1 call, at most 1 at once")
        page.get_by_role("link", name="Tokens and cost").click()
        expect(page.locator(".usage-chart .total").first).to_have_text("1,530")
        going.release()
        expect(page.locator(".usage-chart .total").first).to_have_text("2,040")
