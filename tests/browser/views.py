"""The pages of the workbench, for tests that look at every one of them."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from rlm.batch.viewing import BatchRuns
from rlm.bench.trial_runs import TrialRuns
from tests.browser.driving import Page, expect
from tests.browser.hostile_log import RUN_ID, write_hostile_log
from tests.browser.viewers import viewing
from tests.browser.workbench import Workbench, set_up
from tests.records.trajectories.samples import written
from tests.viewer.data_logs import RUN_ID as DATA
from tests.viewer.data_logs import orders_log, papers_log

__all__ = ["VIEWS", "Places", "View", "places"]

HOSTILE = quote(RUN_ID, safe="")


class Places(NamedTuple):
    """The addresses of viewers: of runs, of a benchmark, of two, of two runs, of a batch, of runs
    over a corpus and over tables, of a hostile log.
    """

    run: str
    bench: str
    compared: str
    pair: str
    batch: str
    corpus: str
    tables: str
    hostile: str


class View(NamedTuple):
    """Where a page is, what is on it when it is there, and what to do then."""

    place: str
    address: str
    wanted: str
    arrange: Callable[[Page], None] = lambda page: None


def _choose_row(page: Page) -> None:
    page.locator(".sample-row").nth(2).click()
    expect(page.get_by_role("region", name="Selected sample")).to_be_visible()


def _choose_bar(page: Page) -> None:
    page.locator(".gantt").focus()
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".chosen")).to_be_visible()


def _open_actions(page: Page) -> None:
    page.get_by_role("button", name="Actions").click()
    expect(page.get_by_role("button", name="Copy as Python")).to_be_visible()


def _ask_to_delete(page: Page) -> None:
    _open_actions(page)
    page.get_by_role("button", name="Delete…").click()
    expect(page.get_by_role("dialog", name="Delete this run?")).to_be_visible()


def _scroll_to_tables(page: Page) -> None:
    page.locator(".usage-table").last.scroll_into_view_if_needed()


def _choose_line(page: Page) -> None:
    expect(page.locator(".line-readers a").first).to_be_visible()


def _find(page: Page) -> None:
    page.get_by_label("Find in the context").fill("1911")
    page.keyboard.press("Enter")
    expect(page.locator(".places li").first).to_be_visible()
    expect(page.locator(".line-readers")).to_contain_text("What read")


VIEWS: dict[str, View] = {
    "overview": View("run", "#/run/{run}", ".citations a"),
    "step": View("run", "#/run/{run}/step/2", ".cell"),
    "timeline": View("run", "#/run/{run}/calls", ".gantt canvas", _choose_bar),
    "usage": View("run", "#/run/{run}/usage", ".usage-table", _scroll_to_tables),
    "context": View("run", "#/run/{run}/context?citation=0", ".context-lines mark", _choose_line),
    "find": View("run", "#/run/{run}/context", ".context-row", _find),
    "coverage": View("run", "#/run/{run}/coverage", ".context-map canvas"),
    "search": View("run", "#/run/{run}/search?q=harbour", ".hit"),
    "actions": View("run", "#/run/{run}", ".answer", _open_actions),
    "delete": View("run", "#/run/{run}", ".answer", _ask_to_delete),
    "bench": View("bench", "#/results", ".sample-row", _choose_row),
    "compared": View("compared", "#/results", ".sample-row", _choose_row),
    "compare": View("pair", "#/compare/{one}/{other}", ".step-diff[open] .added"),
    "batch": View("batch", "#/results", ".sample-row", _choose_row),
    "documents": View("corpus", f"#/run/{DATA}/coverage", ".coverage-head"),
    "statements": View("tables", f"#/run/{DATA}/coverage", "main tbody tr"),
    "hostile": View("hostile", f"#/run/{HOSTILE}/step/1", ".output-stderr"),
}


@contextmanager
def places(folder: Path) -> Generator[tuple[Workbench, Places], None, None]:
    made = set_up(folder)
    hostile = write_hostile_log(folder / "hostile.jsonl")
    with (
        viewing(made.state) as run,
        viewing(made.bench, shelf=TrialRuns(made.bench)) as bench,
        viewing(made.bench, shelf=TrialRuns(made.bench, made.other_bench)) as compared,
        viewing(made.pair.state) as pair,
        viewing(made.batch, shelf=BatchRuns(made.batch)) as batch,
        viewing(written(folder / "corpus.jsonl", papers_log())) as corpus,
        viewing(written(folder / "tables.jsonl", orders_log())) as tables,
        viewing(hostile) as nasty,
    ):
        yield made, Places(run, bench, compared, pair, batch, corpus, tables, nasty)
