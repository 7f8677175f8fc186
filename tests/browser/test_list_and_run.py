"""The list of runs, and a run with its tree and its steps, as a user reads them."""

import re
from typing import Any

import pytest

from tests.browser.driving import Page, Visits, expect
from tests.browser.story import CALLS, CHILD, GRANDCHILD, GREAT_GRANDCHILD, QUERY, Story

pytestmark = pytest.mark.heavy


def queries(page: Page) -> list[str]:
    """Return the queries in the list, from top to bottom."""
    found: list[str] = page.locator(".run-row .query a").all_inner_texts()
    return found


def sort(page: Page, column: str, direction: str) -> None:
    page.get_by_role("button", name=column, exact=True).click()
    head = page.get_by_role("columnheader", name=column, exact=True)
    expect(head).to_have_attribute("aria-sort", direction)


def at_step(page: Page, story: Story, step: int, **options: Any) -> None:
    page.evaluate("address => location.hash = address", f"#/run/{story.main.run_id}/step/{step}")
    expect(page.locator(f"article[aria-label='Step {step}']"), **options).to_be_visible()


# -- the list -------------------------------------------------------------------------------------


def test_the_list_shows_what_each_run_was(visit: Visits, story: Story, story_url: str) -> None:
    page = visit(story_url)
    row = page.locator(".run-row", has_text=QUERY)
    expect(row).to_be_visible()
    cells = row.get_by_role("cell").all_inner_texts()
    usage = story.main.usage.total
    assert cells[1].split()[-1] == "answer"
    assert cells[2].splitlines()[0] == QUERY
    assert story.main.answer.split()[0] in cells[2].splitlines()[1]
    model, costs = cells[3].splitlines()
    assert model == "openai/gpt-5"
    assert [each.split()[0] for each in costs.split(" · ")] == ["gpt-5-mini", "gpt-5"]
    assert cells[5:8] == ["5", str(CALLS + 3), "3"]
    assert cells[8] == f"{(usage.input_tokens + usage.output_tokens) / 1000:.1f} k"
    assert cells[9].startswith("$0.02")
    assert len(queries(page)) == 5
    stands = page.locator(".run-row .status").all_inner_texts()
    assert sorted(each.split()[-1] for each in stands) == [
        *("answer", "answer", "answer", "error", "steps")
    ]


def test_the_list_is_filtered_by_words_status_and_model(visit: Visits, story_url: str) -> None:
    page = visit(story_url)
    expect(page.locator(".bar")).to_contain_text("5 runs")
    page.keyboard.press("/")
    page.keyboard.type("oldest TICKET")
    expect(page.locator(".bar")).to_contain_text("1 of 5 runs")
    assert queries(page) == ["Who wrote the oldest ticket?"]
    page.keyboard.press("Escape")
    page.get_by_label("Filter runs by words").fill("no such words")
    expect(page.get_by_text("No runs match this filter.")).to_be_visible()
    page.get_by_label("Filter runs by words").fill("")
    page.get_by_role("combobox", name="Status").select_option("error")
    expect(page.locator(".bar")).to_contain_text("1 of 5 runs")
    assert queries(page) == ["Translate the tickets."]
    page.get_by_role("combobox", name="Status").select_option("")
    page.get_by_role("combobox", name="Model").select_option("openai/gpt-5-mini")
    expect(page.locator(".bar")).to_contain_text("2 of 5 runs")


def test_the_list_is_sorted_by_any_column(visit: Visits, story_url: str) -> None:
    page = visit(story_url)
    expect(page.locator(".bar")).to_contain_text("5 runs")
    assert queries(page)[0] == QUERY, "the newest is the first"
    sort(page, "query", "ascending")
    assert queries(page) == sorted(queries(page))
    sort(page, "query", "descending")
    assert queries(page) == sorted(queries(page), reverse=True)
    for column in ("calls", "cost", "tokens", "depth"):
        sort(page, column, "descending")
        assert queries(page)[0] == QUERY
        sort(page, column, "ascending")
        assert queries(page)[-1] == QUERY


# -- by keyboard ----------------------------------------------------------------------------------


def test_a_run_is_opened_and_read_without_a_mouse(
    visit: Visits, story: Story, story_url: str
) -> None:
    page = visit(story_url)
    expect(page.locator(".run-row", has_text=QUERY)).to_be_visible()
    expect(page.locator(".run-row.active")).to_have_count(0)
    page.keyboard.press("j")
    expect(page.locator(".run-row.active")).to_contain_text(QUERY)
    page.keyboard.press("j")
    expect(page.locator(".run-row.active")).to_contain_text("Which customers wrote twice?")
    page.keyboard.press("k")
    page.keyboard.press("o")
    expect(page.get_by_role("heading", name=QUERY)).to_be_visible()
    page.keyboard.press("o")  # the first entry: events before the first step
    expect(page.get_by_role("heading", name="Before the first step")).to_be_visible()
    for step in (1, 2):
        page.keyboard.press("j")
        expect(page.get_by_role("heading", name=f"Step {step}", exact=True)).to_be_visible()
    expect(page.locator(".step-row[aria-current=step]")).to_contain_text("step 2")
    page.keyboard.press("k")
    expect(page.get_by_role("heading", name="Step 1", exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", name="Facts")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("customer")
    page.keyboard.press("Enter")
    expect(page.locator(".hit mark").first).to_have_text("customer")
    page.keyboard.press("g")
    page.keyboard.press("l")
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()


def test_help_is_one_key_away_and_keeps_other_keys_out(visit: Visits, story_url: str) -> None:
    page = visit(story_url)
    expect(page.locator(".run-row", has_text=QUERY)).to_be_visible()
    page.keyboard.press("?")
    help_ = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(help_).to_be_visible()
    page.keyboard.press("o")
    expect(help_).to_be_visible()
    assert page.url.endswith("/")
    page.keyboard.press("Escape")
    expect(help_).to_have_count(0)
    page.keyboard.press("o")
    expect(page.get_by_role("heading", name=QUERY)).to_be_visible()


def test_the_tree_of_runs_can_be_opened_down_to_depth_3(
    visit: Visits, story: Story, story_url: str
) -> None:
    page = visit(f"{story_url}#/run/{story.main.run_id}")
    items = page.get_by_role("treeitem")
    expect(items).to_have_count(4)
    texts = [" ".join(each.split()) for each in items.all_inner_texts()]
    wanted = (QUERY, CHILD, GRANDCHILD, GREAT_GRANDCHILD)
    assert all(query in text for query, text in zip(wanted, texts, strict=True)), texts
    assert [each.get_attribute("aria-level") for each in items.all()] == ["1", "2", "3", "4"]
    page.keyboard.press("t")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    expect(items).to_have_count(2)
    page.keyboard.press("ArrowRight")
    expect(items).to_have_count(4)
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=GREAT_GRANDCHILD)).to_be_visible()
    path = page.get_by_role("navigation", name="Parent runs").get_by_role("link")
    expect(path).to_have_count(4)
    path.last.click()
    expect(page.get_by_role("heading", name=GRANDCHILD)).to_be_visible()


# -- a step ---------------------------------------------------------------------------------------


def test_a_step_shows_reply_code_output_and_variables(
    visit: Visits, story: Story, story_url: str
) -> None:
    page = visit(story_url)
    at_step(page, story, 1)
    reply = page.get_by_role("region", name="Reply")
    expect(reply.locator("strong")).to_have_text("shape")
    expect(reply.locator("ol li")).to_have_count(2)
    expect(page.locator(".cell .python")).to_contain_text("print(context[:1500])")
    expect(page.locator(".cell .py-string").first).to_be_visible()
    expect(page.locator(".output")).to_contain_text("96,000 characters")
    at_step(page, story, 2)
    variables = page.locator(".variables tr")
    expect(variables.first).to_be_visible()
    names = {each.split()[1] for each in variables.all_inner_texts()}
    assert {"chunks", "notes", "found", "size"} <= names
    page.get_by_text("Messages to the model").click()
    expect(page.locator(".message").first).to_be_visible()


def test_a_failed_cell_says_so_and_shows_its_traceback(
    visit: Visits, story: Story, story_url: str
) -> None:
    page = visit(story_url)
    at_step(page, story, 3)
    failure = page.locator(".cell-failed .failure")
    expect(failure).to_contain_text("ValueError: invalid literal for int()")
    failure.get_by_text("Traceback", exact=True).click()
    expect(failure.get_by_label("Traceback", exact=True)).to_contain_text("int(note)")
    row = page.locator(".step-row", has_text="step 3")
    expect(row.locator(".error-sign")).to_be_visible()


def test_a_call_shows_its_whole_prompt_and_reply(
    visit: Visits, story: Story, story_url: str
) -> None:
    page = visit(story_url)
    at_step(page, story, 2)
    rows = page.get_by_role("listbox", name="Calls. Press Enter to open one")
    expect(page.locator(".calls-head")).to_contain_text(f"{CALLS} calls")
    assert page.locator(".call-row").count() < CALLS, "only rows in view exist"
    rows.focus()
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    detail = page.get_by_role("article", name="Selected call")
    expect(detail.get_by_label("Prompt")).to_contain_text("Part 3. Which of these tickets")
    expect(detail.get_by_label("Prompt")).to_contain_text("customer")
    expect(detail.get_by_label("Reply")).to_have_text("yes: 4")
    expect(detail.locator(".facts")).to_contain_text("openai/gpt-5-mini")
    expect(detail.locator(".facts")).to_contain_text("the model")


def test_a_child_run_is_opened_from_its_call(visit: Visits, story: Story, story_url: str) -> None:
    page = visit(story_url)
    at_step(page, story, 4)
    page.locator(".call-row", has_text="child run").click()
    page.get_by_role("link", name="open the child run").click()
    expect(page.get_by_role("heading", name=CHILD)).to_be_visible()


def test_long_output_is_loaded_on_demand(visit: Visits, story: Story, story_url: str) -> None:
    page = visit(story_url)
    at_step(page, story, 4)
    output = page.locator(".output")
    expect(output.locator(".more")).to_contain_text("of ")
    shown = len(output.locator("pre").inner_text())
    output.get_by_role("button", name="Show more").click()
    expect(output.get_by_role("button", name="Show less")).to_be_visible()
    assert len(output.locator("pre").inner_text()) > shown
    expect(output.locator("pre")).to_contain_text("part 63: yes: 4")


def test_the_overview_shows_the_answer_as_markdown(
    visit: Visits, story: Story, story_url: str
) -> None:
    page = visit(f"{story_url}#/run/{story.main.run_id}")
    answer = page.locator(".answer")
    expect(answer.locator("strong").first).to_have_text("34 tickets")
    expect(answer.locator("table tbody tr")).to_have_count(2)
    expect(page.locator(".facts").first).to_contain_text(story.main.run_id)


def test_search_finds_and_opens_the_call(visit: Visits, story: Story, story_url: str) -> None:
    page = visit(f"{story_url}#/run/{story.main.run_id}/search?q=Part%2017.")
    hit = page.locator(".hit", has_text=re.compile("prompt"))
    expect(hit.locator("mark")).to_have_text("Part 17.")
    hit.click()
    prompt = page.get_by_role("article", name="Selected call").get_by_label("Prompt")
    expect(prompt).to_contain_text("Part 17. Which of these")
    page.evaluate("location.hash = location.hash.replace(/step.*/, 'search?q=never said')")
    expect(page.get_by_text("No text contains “never said”.")).to_be_visible()


def test_a_missing_run_is_reported_in_a_sentence(visit: Visits, story_url: str) -> None:
    visit.forgive("404")
    page = visit(f"{story_url}#/run/nobody")
    expect(page.get_by_role("alert")).to_contain_text("no such run")
    page.get_by_role("link", name="rlm: list of runs").click()
    expect(page.locator(".bar")).to_contain_text("5 runs")
