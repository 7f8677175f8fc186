"""Runs over a corpus and over tables in the browser: rows of a step, documents, statements."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.driving import Visits, expect
from tests.browser.viewers import viewing
from tests.records.trajectories.samples import written
from tests.viewer.data_logs import RUN_ID, corpus_log, tables_log

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("data")
    with viewing(written(folder / "corpus.jsonl", corpus_log())) as url:
        yield f"{url}#/run/{RUN_ID}"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("data")
    with viewing(written(folder / "tables.jsonl", tables_log())) as url:
        yield f"{url}#/run/{RUN_ID}"


def test_documents_are_listed_with_how_much_was_read(visit: Visits, corpus: str) -> None:
    page = visit(f"{corpus}/coverage")
    expect(page.locator(".coverage-head")).to_contain_text("2 of 5,000 documents read")
    expect(page.locator(".coverage-head")).to_contain_text("1.15 kB of 1.00 MB read")
    rows = page.get_by_role("region", name="Documents").locator("tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.nth(0)).to_contain_text("docs/b.txt")
    expect(rows.nth(0)).to_contain_text("100 %")
    expect(rows.nth(1)).to_contain_text("<img src=x onerror=")
    expect(rows.nth(1)).to_contain_text("15 %")
    asked = page.get_by_role("region", name="Searches and patterns").locator("tbody tr")
    expect(asked).to_have_count(2)
    assert "\u202e" not in page.locator("main").inner_text()
    assert page.title() != "pwned"
    assert page.locator("main img").count() == 0


def test_data_requests_are_rows_of_the_step(visit: Visits, corpus: str) -> None:
    page = visit(f"{corpus}/step/1")
    rows = page.locator("details.operator")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("ctx.read")
    rows.nth(1).locator("summary").click()
    expect(rows.nth(1).locator(".call-row")).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("docs/b.txt (1.00 kB of 1.00 kB read)")


def test_the_context_page_explains_a_context_of_data(visit: Visits, corpus: str) -> None:
    page = visit(f"{corpus}/context")
    expect(page.locator(".context-page")).to_contain_text(
        "data that stays where it is: a corpus of"
    )
    page.get_by_role("link", name="What was read").click()
    expect(page.locator(".coverage-head .big")).to_have_text("0.1 %")


def test_statements_on_tables_are_listed(visit: Visits, tables: str) -> None:
    page = visit(f"{tables}/coverage")
    expect(page.locator(".coverage-head")).to_contain_text("41 requests for data")
    rows = page.get_by_role("region", name="Statements").locator("tbody tr")
    expect(rows.nth(0)).to_contain_text("select * from orders where id = ?")
    expect(rows.nth(0)).to_contain_text("39 rows")
    expect(rows.nth(1)).to_contain_text("<img src=x")
