"""The context by line, the timeline, usage, actions and results, as a user works with them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlm.batch.viewing import BatchRuns
from rlm.bench.trial_runs import TrialRuns
from tests.browser.driving import Page, Visits, expect, wait_until
from tests.browser.going_on import asking
from tests.browser.hostile_log import MARKUP, write_hostile_log
from tests.browser.models import Part, cell, play_once
from tests.browser.test_fork import stranger
from tests.browser.viewers import rlm_view, viewing
from tests.browser.workbench import QUERY, QUOTE, WIDE, Workbench, set_up
from tests.endpoint import endpoint

__all__ = ["stranger"]

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    return set_up(tmp_path_factory.mktemp("workbench"))


@pytest.fixture(scope="module")
def url(made: Workbench) -> Iterator[str]:
    with viewing(made.state) as address:
        yield address


@pytest.fixture(scope="module")
def bench_url(made: Workbench) -> Iterator[str]:
    with viewing(made.bench, shelf=TrialRuns(made.bench, made.other_bench)) as address:
        yield f"{address}#/results"


def at(url: str, made: Workbench, rest: str = "") -> str:
    return f"{url}#/run/{made.run.run_id}{rest}"


# -- the context ----------------------------------------------------------------------------------


def test_a_citation_opens_in_the_context_and_shows_its_readers(
    visit: Visits, made: Workbench, url: str
) -> None:
    page = visit(at(url, made))
    page.get_by_role("link", name="minutes.txt:250").click()
    expect(page.locator(".context-lines mark")).to_have_text(QUOTE)
    expect(page.locator(".context-lines mark")).to_be_in_viewport()
    readers = page.locator(".line-readers")
    expect(readers).to_contain_text("What read line 250")
    expect(readers.get_by_role("link")).to_have_text(["step 2: sent to a call"])
    readers.get_by_role("link").click()
    prompt = page.get_by_role("article", name="Selected call").get_by_label("Prompt")
    expect(prompt).to_contain_text(QUOTE)


def test_a_citation_in_wide_characters_is_marked_exactly(
    visit: Visits, made: Workbench, url: str
) -> None:
    page = visit(at(url, made, "/context?citation=1"))
    expect(page.locator(".context-lines mark").first).to_be_visible()
    marked = "".join(page.locator(".context-lines mark").all_inner_texts())
    assert marked.replace("\n", "") == WIDE[:30].replace("\n", "")


def test_words_are_found_in_the_context_and_can_be_stepped_through(
    visit: Visits, made: Workbench, url: str
) -> None:
    page = visit(at(url, made, "/context"))
    expect(page.locator(".context-row")).to_have_count(200)
    page.keyboard.press("s")
    page.keyboard.type("THE HARBOUR")
    page.keyboard.press("Enter")
    expect(page.locator(".context-find [role=status]")).to_have_text("1 of 1")
    expect(page.locator(".context-lines mark")).to_have_text("The harbour")
    page.get_by_label("Find in the context").fill("1911")
    page.keyboard.press("Enter")
    expect(page.locator(".context-find [role=status]")).to_have_text(re.compile(r"^1 of 13$"))
    page.keyboard.press("n")
    expect(page.locator(".places [aria-current]")).to_contain_text("he.txt: line 1")
    page.keyboard.press("p")
    expect(page.locator(".places [aria-current]")).to_contain_text("minutes.txt: line 250")
    page.get_by_label("Find in the context").fill("nowhere at all")
    page.keyboard.press("Enter")
    expect(page.locator(".context-find [role=status]")).to_have_text("0")


def test_a_line_can_be_jumped_to_and_pages_turned(visit: Visits, made: Workbench, url: str) -> None:
    page = visit(at(url, made, "/context"))
    expect(page.locator(".context-row")).to_have_count(200)
    page.get_by_label("Line to jump to").fill("301")
    page.keyboard.press("Enter")
    expect(page.locator(".chosen-row .line-number")).to_have_text("301")
    page.keyboard.press(":")
    expect(page.get_by_label("Line to jump to")).to_be_focused()
    page.get_by_role("combobox", name="Document").select_option("ja.txt")
    page.get_by_label("Line to jump to").fill("3")
    page.get_by_role("button", name="Jump").click()
    expect(page.locator(".chosen-row .line-number")).to_have_text("3")
    expect(page.locator(".chosen-row .row-text")).to_contain_text("港は")
    page.evaluate("address => location.hash = address", f"#/run/{made.run.run_id}/context")
    expect(page.locator(".line-number").first).to_have_text("1")
    page.get_by_role("button", name="Next lines").click()
    expect(page.locator(".line-number").first).to_have_text("201")
    page.get_by_role("button", name="Previous lines").click()
    expect(page.locator(".line-number").first).to_have_text("1")


def test_a_line_shows_whether_and_by_which_cell_it_was_read(
    visit: Visits, made: Workbench, url: str
) -> None:
    page = visit(at(url, made, "/context"))
    page.get_by_role("button", name="What read line 2,", exact=False).click()
    expect(page.locator(".line-readers")).to_contain_text("step 1: printed by cell 1")
    page.get_by_role("button", name="What read line 150, never read").click()
    expect(page.locator(".line-readers")).to_contain_text("no call was sent it")


# -- the timeline and usage -----------------------------------------------------------------------


def test_the_timeline_has_every_kind_and_can_hide_some(
    visit: Visits, made: Workbench, url: str
) -> None:
    page = visit(at(url, made, "/calls"))
    expect(page.locator(".call-table .kind").first).to_be_visible()
    kinds = page.locator(".kinds label").all_inner_texts()
    assert [each.strip() for each in kinds] == [
        "steps", "requests", "cells", "operators", "model calls"
    ]  # fmt: skip
    words = page.locator(".call-table .kind").all_inner_texts()
    assert {"step", "request", "cell", "operator", "model"} <= set(words)
    for kind in ("steps", "requests", "cells", "operators"):
        page.get_by_label(kind, exact=True).uncheck()
    expect(page.locator(".call-table .kind").first).to_have_text("model")
    assert set(page.locator(".call-table .kind").all_inner_texts()) == {"model"}
    page.get_by_label("cells", exact=True).check()
    page.locator(".call-table .call-row", has_text="classify(lines").dblclick()
    expect(page.get_by_role("heading", name="Step 2", exact=True)).to_be_visible()


def test_usage_adds_up_by_model_depth_and_step(visit: Visits, made: Workbench, url: str) -> None:
    page = visit(at(url, made, "/usage"))
    total = made.run.usage.total
    for name in ("By model", "By depth", "By step"):
        expect(page.get_by_role("region", name=name)).to_be_visible()
    rows = page.get_by_role("region", name="By model").locator("tbody tr")
    cells = [each.locator("td").all_inner_texts() for each in rows.all()]
    numbers = [[int(cell.replace(",", "")) for cell in row[:3]] for row in cells]
    assert sum(row[0] for row in numbers) == total.requests
    assert sum(row[1] for row in numbers) == total.input_tokens
    assert sum(row[2] for row in numbers) == total.output_tokens
    expect(page.get_by_role("region", name="By step").locator("tbody tr")).to_have_count(3)


# -- acting ---------------------------------------------------------------------------------------

STEPS = {"Which?": [cell("x = 1"), cell("FINAL('done')")]}


def test_a_run_in_progress_can_be_stopped_resumed_and_deleted(
    visit: Visits, tmp_path: Path
) -> None:
    visit.forgive("404")
    state = tmp_path / "state"
    with asking(state, "Which?", Part(STEPS)) as going:
        variables = {"RLM_STATE_DIR": str(state)}
        with rlm_view(**variables) as viewer:
            page = visit(viewer.url)
            page.locator(".run-row", has_text="Which?").get_by_role("link").click()
            expect(page.locator(".going")).to_have_text("live")
            page.get_by_role("button", name="Actions").click()
            dialog = page.get_by_role("dialog", name="Actions")
            expect(dialog.get_by_role("button", name="Delete…")).to_be_disabled()
            expect(dialog.get_by_role("button", name="Resume")).to_be_disabled()
            dialog.get_by_role("button", name="Stop").click()
            expect(page.locator(".run-facts .status")).to_contain_text("cancelled")
            going.release(100)
            assert going.process is not None
            assert going.process.wait(60) != 0
            page.get_by_role("button", name="Actions").click()
            expect(dialog.get_by_role("button", name="Stop")).to_be_disabled()
            expect(dialog.get_by_role("button", name="Resume")).to_be_enabled()
            dialog.get_by_role("button", name="Delete…").click()
            question = page.get_by_role("dialog", name="Delete this run?")
            expect(question).to_contain_text("Which?")
            question.get_by_role("button", name="Keep it").click()
            expect(dialog).to_be_visible()
            assert [each for each in visit.asked if each[1].endswith("/delete")] == []
            dialog.get_by_role("button", name="Delete…").click()
            question.get_by_role("button", name="Delete", exact=True).click()
            expect(page.locator(".run-row")).to_have_count(0)
    assert list((state / "runs").glob("*.sqlite")) == []


def test_a_killed_run_is_resumed_and_the_page_shows_its_new_steps(
    visit: Visits, tmp_path: Path
) -> None:
    visit.forgive("ERR_CONNECTION_(REFUSED|RESET)|ERR_INCOMPLETE|503")  # The first viewer ends.
    state = tmp_path / "state"
    steps = {"Which?": [cell("x = 'kept'"), cell("print(x)"), cell("FINAL(f'{x}, and done')")]}
    part = Part(steps)
    with asking(state, "Which?", part) as going:
        going.release(1)
        with rlm_view(RLM_STATE_DIR=str(state)) as viewer:
            page = visit(viewer.url)
            page.locator(".run-row", has_text="Which?").get_by_role("link").click()
            # The overview, events before the first step, and two steps.
            expect(page.locator(".aside-steps .step-row")).to_have_count(4)
        assert going.process is not None
        going.process.kill()
        going.process.wait(60)
    asked: list[str] = []

    def answer(body: dict[str, Any]) -> str:
        asked.append(str(part.of_body(body)))
        return asked[-1]

    with endpoint(answer) as model:
        variables = {"LLM_BASE_URL": model.url, "LLM_API_KEY": "k"}
        with rlm_view(RLM_STATE_DIR=str(state), **variables) as viewer:
            page = visit(viewer.url)
            page.locator(".run-row", has_text="Which?").get_by_role("link").click()
            expect(page.locator(".run-facts .status")).to_contain_text("interrupted")
            page.get_by_role("button", name="Actions").click()
            page.get_by_role("dialog").get_by_role("button", name="Resume").click()
            expect(page.locator(".run-facts .status")).to_contain_text("answer")
            expect(page.locator(".aside-steps .step-row")).to_have_count(5)
            page.locator(".aside-steps .step-row").nth(3).click()
            expect(page.locator(".output")).to_contain_text("kept")
            page.get_by_role("link", name="overview").click()
            expect(page.locator(".answer")).to_contain_text("kept, and done")
    assert asked == steps["Which?"][1:], "the reply of the first step was not asked for again"


# -- what a search finds --------------------------------------------------------------------------

LINES = "\n".join(f"line {number} of many" for number in range(300))
FAR = {
    "Where?": [
        cell("x = 1", "I begin."),
        cell(f"print({LINES!r})\nprint('the hidden place')\nprint({LINES!r})"),
        cell("FINAL('found')"),
    ]
}
MARKED = """([words, label]) => {
  const [range] = [...(CSS.highlights.get('hit') ?? [])]
  if (!range) return false
  const { top, bottom } = range.getBoundingClientRect()
  const text = range.startContainer.parentElement.closest('[aria-label]')?.ariaLabel
  return range.toString() === words && text === label && top >= 0 && bottom <= innerHeight
}"""


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    state = tmp_path_factory.mktemp("far") / "state"
    run = play_once(state, Part(FAR), "Where?", "some text")
    with viewing(state) as address:
        yield address, run.run_id


def test_a_hit_within_a_run_scrolls_to_the_words(visit: Visits, far: tuple[str, str]) -> None:
    url, run_id = far
    page = visit(f"{url}#/run/{run_id}/search?q=hidden place")
    page.locator(".hit", has_text="output of cell 1").click()
    wait_until(page, MARKED, ["hidden place", "What the cell printed"])
    page.go_back()
    page.locator(".hit", has_text="code of cell 1").click()
    wait_until(page, MARKED, ["hidden place", "Code of cell 1"])
    page.get_by_role("link", name="overview").click()
    expect(page.locator(".answer")).to_be_visible()
    assert page.evaluate("CSS.highlights.has('hit')") is False


def test_a_hit_among_all_runs_scrolls_to_the_words(visit: Visits, far: tuple[str, str]) -> None:
    url, _ = far
    page = visit(f"{url}#/find?q=hidden")
    page.locator(".hit", has_text="output of cell 1").click()
    wait_until(page, MARKED, ["hidden", "What the cell printed"])
    page.go_back()
    page.get_by_role("searchbox").fill("found")
    page.locator(".hit", has_text="answer").click()
    wait_until(page, MARKED, ["found", "Selected step"])


def test_the_command_to_repeat_a_run_can_be_copied(
    visit: Visits, made: Workbench, url: str
) -> None:
    page = visit(at(url, made))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    expect(page.get_by_role("heading", name="Facts")).to_be_visible()
    page.keyboard.press("a")
    page.get_by_role("button", name="Copy as command line").click()
    expect(page.get_by_text("Copied.")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith(f"rlm ask '{QUERY}' -f context.txt -m openai/gpt-5")
    expect(page.get_by_label("This run as Python")).to_have_value(re.compile(r"rlm\.ask\("))
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_an_exported_page_needs_no_server(visit: Visits, tmp_path: Path) -> None:
    visit.forgive("downloads")
    log = write_hostile_log(tmp_path / "log.jsonl")
    with viewing(log) as url:
        page = visit(url)
        page.get_by_role("row").filter(has_text="<script>").get_by_role("link").click()
        page.get_by_role("button", name="Actions").click()
        with page.expect_download() as download:
            page.get_by_role("link", name="Share as one HTML file").click()
        target = tmp_path / "shared.html"
        download.value.save_as(target)
    before = len(visit.asked)
    shared = visit(target.as_uri())
    expect(shared.locator("body")).to_contain_text("<img src=x onerror=")
    asked = [address for _, address in visit.asked[before:]]
    assert asked == [target.as_uri()], "it loads nothing but itself"
    assert MARKUP in shared.locator("body").inner_text()
    assert shared.locator("script, img, iframe, link, base, form").count() == 0
    assert shared.evaluate("document.querySelectorAll('style').length") == 1


def test_another_website_can_neither_stop_nor_delete_a_run(
    visit: Visits, made: Workbench, url: str, stranger: str
) -> None:
    visit.forgive("CORS policy|403|ERR_FAILED|refused")
    own = visit(at(url, made))
    expect(own.get_by_role("heading", name="Facts")).to_be_visible()
    token = own.locator("meta[name=rlm-token]").get_attribute("content")
    page = visit(stranger)
    base = url.partition("?")[0]
    for what in ("stop", "resume", "delete"):
        address = f"{base}api/runs/{made.run.run_id}/{what}"
        for headers in ({}, {"X-RLM-Token": token}):
            assert page.evaluate(POST, [address, headers]) == "TypeError: Failed to fetch"
        refused = own.request.post(address, headers={"X-RLM-Token": token})
        assert refused.status == 403, "the token alone, from no page, is not enough"
    read = page.evaluate(
        "address => fetch(address).then((r) => r.text(), (error) => String(error))",
        f"{base}api/runs/{made.run.run_id}/export/html",
    )
    assert read == "TypeError: Failed to fetch"
    own.reload()
    expect(own.locator(".answer")).to_contain_text("1911")


POST = """([address, headers]) =>
  fetch(address, {method: 'POST', headers}).then((r) => r.text(), (error) => String(error))"""


# -- results --------------------------------------------------------------------------------------


def test_two_benchmarks_can_be_compared(visit: Visits, made: Workbench, bench_url: str) -> None:
    page = visit(bench_url)
    expect(page.locator(".folders li")).to_have_count(2)
    expect(page.locator(".figures tbody tr")).to_have_count(4)
    expect(page.locator(".figures tbody")).to_contain_text("+16.7 points")
    expect(page.locator(".bar [role=status]")).to_have_text("24 samples")
    page.get_by_label("show").select_option("differ")
    expect(page.locator(".bar [role=status]")).to_have_text("4 of 24 samples")
    assert "only=differ" in page.url
    page.get_by_role("combobox", name="task").select_option("s-niah/single")
    expect(page.locator(".bar [role=status]")).to_have_text("2 of 24 samples")
    page.keyboard.press("j")
    detail = page.get_by_role("region", name="Selected sample")
    expect(detail).to_contain_text("not found <b>")
    expect(detail.locator(".score").first).to_have_text("✕ 0 %")
    expect(detail.locator(".score").nth(1)).to_have_text("✓ 100 %")
    gold = detail.get_by_label("Gold").inner_text()
    assert gold in detail.get_by_label("Answer").nth(1).inner_text()
    page.reload()
    expect(page.locator(".bar [role=status]")).to_have_text("2 of 24 samples")


def test_a_sample_links_to_its_run(visit: Visits, made: Workbench) -> None:
    with viewing(made.bench, shelf=TrialRuns(made.bench)) as url:
        page = visit(f"{url}#/results")
        page.get_by_label("show").select_option("wrong")
        page.locator(".sample-row").first.click()
        page.get_by_role("link", name="open the run").click()
        expect(page.locator(".run-facts")).to_contain_text("score 0")
        page.get_by_role("link", name="Results").click()
        expect(page.locator(".figures")).to_be_visible()


def test_results_grow_while_the_page_is_open(
    visit: Visits, made: Workbench, tmp_path: Path
) -> None:
    folder = tmp_path / "growing"
    folder.mkdir()
    lines = (made.bench / "results.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "settings.json").write_bytes((made.bench / "settings.json").read_bytes())
    (folder / "results.jsonl").write_bytes(b"")
    with viewing(folder, shelf=TrialRuns(folder)) as url:
        page = visit(f"{url}#/results")
        expect(page.get_by_text("No results yet.")).to_be_visible()
        with (folder / "results.jsonl").open("ab") as file:
            file.write(b"".join(lines[:3]) + lines[3][:40])
        expect(page.locator(".bar [role=status]")).to_have_text("3 samples")
        with (folder / "results.jsonl").open("ab") as file:
            file.write(lines[3][40:])
        expect(page.locator(".bar [role=status]")).to_have_text("4 samples")


def test_a_batch_shows_answers_beside_gold(visit: Visits, made: Workbench) -> None:
    with viewing(made.batch, shelf=BatchRuns(made.batch)) as url:
        page = visit(f"{url}#/results")
        expect(page.locator(".figures tbody")).to_contain_text("91.7 %")
        page.get_by_label("show").select_option("wrong")
        row = page.locator(".sample-row")
        expect(row).to_have_count(1)
        expect(row).to_contain_text("ticket 1")
        row.click()
        page.get_by_role("link", name="open the run").click()
        wait_until(page, "() => location.hash.startsWith('#/run/')")
        expect(page.get_by_role("heading", level=1)).to_contain_text("row 1 ?")


@pytest.mark.parametrize("width", [1280, 420])
def test_hostile_results_are_shown_as_text(
    visit: Visits, made: Workbench, tmp_path: Path, width: int
) -> None:
    out = tmp_path / "answers.jsonl"
    row = '{"row": 0, "id": %s, "stop_reason": %s, "answer": %s, "error": %s, "meta": {"gold": %s}}'
    import json

    nasty = json.dumps(f"{MARKUP} \u202egnp.exe " + "W" * 1_000_000)
    out.write_text("\n".join([row % ((nasty,) * 5)] * 3), "utf-8")
    with viewing(out, shelf=BatchRuns(out)) as url:
        page = visit(f"{url}#/results", width=width)
        page.locator(".sample-row").first.click()
        expect(page.get_by_role("region", name="Selected sample")).to_contain_text("⟨U+202E⟩gnp")
        is_harmless(page)


def is_harmless(page: Page) -> None:
    made = "#app :is(script, img, iframe, object, embed, base, style, link, meta, form[action])"
    assert page.locator(made).count() == 0
    assert page.locator("[onerror], [onload], [onmouseover], [srcdoc]").count() == 0
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, f"the page is {wide} pixels wider than its window"
