"""Charts of calls, tokens and cost, and two runs compared: they show what happened."""

import re

import pytest

from tests.browser.driving import Page, Visits, expect, wait_until
from tests.browser.story import CALLS, QUERY, Story

pytestmark = pytest.mark.heavy


DRAWN_YET = "document.querySelector('.gantt canvas').style.width !== ''"
DRAWN = "document.querySelector('.gantt canvas').toDataURL()"


def chart(page: Page) -> Page:
    return page.get_by_role("application", name=re.compile("Timeline"))


def calls_page(visit: Visits, story: Story, url: str) -> Page:
    page = visit(f"{url}#/run/{story.main.run_id}/calls")
    expect(chart(page)).to_be_visible()
    wait_until(page, DRAWN_YET)
    return page


def ink(page: Page) -> int:
    """Return how many pixels of the chart differ from its background."""
    drawn: int = page.evaluate(
        """() => {
          const canvas = document.querySelector('.gantt canvas')
          const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)
          const colours = new Map()
          for (let at = 0; at < data.length; at += 4) {
            const key = `${data[at]},${data[at + 1]},${data[at + 2]},${data[at + 3]}`
            colours.set(key, (colours.get(key) ?? 0) + 1)
          }
          return data.length / 4 - Math.max(...colours.values())
        }"""
    )
    return drawn


# -- calls in time --------------------------------------------------------------------------------


def test_64_calls_at_once_are_drawn_and_listed(visit: Visits, story: Story, story_url: str) -> None:
    page = calls_page(visit, story, story_url)
    expect(page.locator(".calls-page .bar").first).to_contain_text(
        f"{CALLS + 3} calls, at most {CALLS} at once"
    )
    assert ink(page) > 5_000
    rows = page.locator(".call-table .call-row")
    assert 5 < rows.count() < CALLS, "only rows in view exist"


def test_arrow_keys_move_between_calls_and_enter_opens_one(
    visit: Visits, story: Story, story_url: str
) -> None:
    page = calls_page(visit, story, story_url)
    chart(page).focus()
    for _ in range(7):  # The first two steps, their requests and cells come before the calls.
        page.keyboard.press("ArrowRight")
    expect(page.locator(".chosen")).to_contain_text("step 2, depth 0")
    prompt = page.locator(".chosen p").nth(1).inner_text()
    number = re.match(r"Part \d+\.", prompt)
    assert number, prompt
    page.keyboard.press("Enter")
    opened = page.get_by_role("article", name="Selected call")
    expect(opened.get_by_label("Prompt")).to_contain_text(number[0])
    expect(page.get_by_role("heading", name="Step 2", exact=True)).to_be_visible()


def test_a_click_selects_a_call_and_a_double_click_opens_it(
    visit: Visits, story: Story, story_url: str
) -> None:
    page = calls_page(visit, story, story_url)
    box = chart(page).bounding_box()
    assert box is not None
    # Below steps, requests and cells, the 64 calls began together.
    places = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    spots = [(share * box["width"], 0.4 * box["height"]) for share in places]
    for x, y in spots:
        chart(page).click(position={"x": x, "y": y})
        chosen = page.locator(".chosen p")
        if chosen.count() and chosen.nth(1).inner_text().startswith("Part"):
            break
    expect(page.locator(".chosen")).to_contain_text("step 2")
    words = page.locator(".chosen p").nth(1).inner_text().split("→")[0]
    chart(page).dblclick(position={"x": x, "y": y})
    opened = page.get_by_role("article", name="Selected call")
    expect(opened.get_by_label("Prompt")).to_contain_text(words.split(".")[0])


def test_a_call_can_be_opened_from_the_list_below(
    visit: Visits, story: Story, story_url: str
) -> None:
    page = calls_page(visit, story, story_url)
    page.get_by_role("listbox", name=re.compile("The same as a list")).focus()
    page.keyboard.press("End")
    expect(page.locator(".call-row.active")).to_contain_text("FINAL(f'''")
    page.locator(".call-row", has_text="child run").last.locator(".kind").click()
    page.get_by_role("listbox", name=re.compile("The same as a list")).focus()
    expect(page.locator(".chosen")).to_contain_text("depth 2")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="open the child run")).to_be_visible()


def test_zooming_redraws_the_chart(visit: Visits, story: Story, story_url: str) -> None:
    page = calls_page(visit, story, story_url)
    before = page.evaluate(DRAWN)
    page.get_by_role("button", name="Zoom in").click()
    expect(page.get_by_role("button", name="Fit")).to_be_enabled()
    wait_until(page, f"before => {DRAWN} !== before", before)
    page.get_by_role("button", name="Fit").click()
    expect(page.get_by_role("button", name="Fit")).to_be_disabled()
    page.get_by_label("colour by").select_option("depth")
    expect(page.get_by_role("list", name="Legend")).to_contain_text("depth 2")


# -- tokens and cost ------------------------------------------------------------------------------


def test_tokens_and_cost_add_up_by_depth(visit: Visits, story: Story, story_url: str) -> None:
    page = visit(f"{story_url}#/run/{story.main.run_id}/usage")
    tokens, cost = (page.locator(".usage-chart").nth(at) for at in (0, 1))
    total, by_depth = story.main.usage.total, story.main.usage.by_depth
    everything = total.input_tokens + total.output_tokens
    expect(tokens.locator(".total")).to_have_text(f"{everything / 1000:.1f} k")
    expect(cost.locator(".total")).to_have_text(re.compile(r"^\$0\.02"))
    legend = tokens.locator(".legend li").all_inner_texts()
    assert len(legend) == len(by_depth) == 4
    for depth, text in enumerate(legend):
        used = by_depth[depth].input_tokens + by_depth[depth].output_tokens
        figure = f"{used:,}" if used < 10_000 else f"{used / 1000:.1f} k"
        assert text.split("depth ")[1].split(maxsplit=1) == [str(depth), figure]
    assert tokens.locator("path.area").count() == 4


# -- two runs -------------------------------------------------------------------------------------


def test_two_runs_can_be_compared(visit: Visits, story: Story, story_url: str) -> None:
    page = visit(story_url)
    expect(page.locator(".run-row", has_text=QUERY)).to_be_visible()
    for key in "jxjx":
        page.keyboard.press(key)
    expect(page.get_by_role("button", name="Compare 2 of 2")).to_be_enabled()
    page.keyboard.press("c")
    expect(page.get_by_role("heading", name="Compare two runs")).to_be_visible()
    row = page.locator(".compare-facts tr", has_text="steps")
    assert row.locator("td").all_inner_texts() == ["5", "2", "−3"]
    answers = page.get_by_role("group", name="Answers")
    expect(answers.locator(".added")).to_contain_text("none")
    expect(answers.locator(".removed").first).to_contain_text("34 tickets")
    code = page.get_by_role("group", name="Code of step 1")
    expect(code.locator(".removed").last).to_contain_text("print(context[:1500])")
    expect(code.locator(".added")).to_contain_text("print(context[:300])")
    expect(page.locator(".step-diff", has_text="Step 5")).to_contain_text("only in A")
