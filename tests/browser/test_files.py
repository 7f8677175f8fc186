"""Files that are dropped on the page, and the page of the development server."""

import http.client
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from rlm.viewer import opened
from tests.browser.driving import Page, Visits, expect
from tests.browser.story import Story
from tests.browser.viewers import viewing
from tests.cli.running import environment
from tests.records.trajectories.samples import REFERENCE_LOG
from tests.shape.tree import ROOT

pytestmark = pytest.mark.heavy
VISUALIZER = ROOT / "visualizer"

DROP = """([name, text]) => {
  const transfer = new DataTransfer()
  transfer.items.add(new File([text], name, {type: 'text/plain'}))
  for (const kind of ['dragenter', 'dragover', 'drop']) {
    const options = {bubbles: true, cancelable: true, dataTransfer: transfer}
    document.querySelector('#app').dispatchEvent(new DragEvent(kind, options))
  }
}"""


class Dev(NamedTuple):
    url: str
    link: str


@pytest.fixture(scope="module")
def dev(story: Story) -> Iterator[Dev]:
    """What `npm run dev` starts, on a free port, with the runs of the story behind it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    vite = VISUALIZER / "node_modules" / "vite" / "bin" / "vite.js"
    assert vite.is_file(), "run `npm ci` in visualizer/ first; `make test-browser` does"
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(
        ["node", str(vite), "--port", str(port), "--host", "127.0.0.1"],
        cwd=VISUALIZER,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment({"NO_COLOR": "1", "RLM_STATE_DIR": str(story.state), "PATH": programs}),
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "With your runs:" in line or "did not start" in line:
                break
        try:
            assert any("With your runs:" in line for line in lines), "".join(lines)
            yield Dev(f"http://127.0.0.1:{port}/", lines[-1].split()[-1])
        finally:
            process.terminate()
            process.wait(60)


def shows_the_reference_run(page: Page) -> None:
    """Its log has two runs; the older one has four steps, four calls and a child run."""
    row = page.locator(".run-row", has_text="What is the answer?")
    assert row.get_by_role("cell").all_inner_texts()[5:8] == ["4", "4", "1"]
    row.get_by_role("link").click()
    expect(page.locator(".run-facts .status")).to_contain_text("answer")
    expect(page.get_by_role("treeitem")).to_have_count(2)
    page.locator(".step-row", has_text="step 1").click()
    expect(page.locator(".cell .python").first).to_be_visible()
    expect(page.get_by_role("region", name="Reply").first).to_be_visible()


def test_the_server_opens_a_log_of_the_reference_engine(visit: Visits) -> None:
    with viewing(REFERENCE_LOG) as url:
        page = visit(url)
        expect(page.locator(".run-row .query a")).to_have_count(2)
        shows_the_reference_run(page)


def drop(page: Page, name: str, text: str) -> None:
    page.evaluate(DROP, [name, text])


def test_a_log_of_the_reference_engine_can_be_dropped(visit: Visits, story_url: str) -> None:
    page = visit(story_url)
    expect(page.locator(".list-page")).to_be_visible()
    drop(page, REFERENCE_LOG.name, REFERENCE_LOG.read_text("utf-8"))
    expect(page.locator(".run-row .query a")).to_have_count(2)
    expect(page.locator(".where")).to_have_text(REFERENCE_LOG.name)
    expect(page.locator(".opening")).to_have_count(0)
    shows_the_reference_run(page)
    expect(page.get_by_role("button", name="Fork from here")).to_be_disabled()
    page.reload()
    expect(page.get_by_role("button", name="Fork from here")).to_be_disabled()
    page.get_by_role("button", name="Close file").click()
    expect(page.locator(".where")).to_have_text("all runs")
    expect(page.get_by_role("button", name="Close file")).to_have_count(0)
    methods = [method for method, url in visit.asked if "/api/opened" in url]
    assert (methods.count("POST"), methods.count("DELETE")) == (1, 1)


def test_a_second_dropped_file_replaces_the_first(visit: Visits, story_url: str) -> None:
    page = visit(story_url)
    expect(page.locator(".list-page")).to_be_visible()

    def is_delete(response: Any) -> bool:
        return bool(response.request.method == "DELETE")

    drop(page, "one.jsonl", REFERENCE_LOG.read_text("utf-8"))
    expect(page.locator(".where")).to_have_text("one.jsonl")
    with page.expect_response(is_delete) as first:
        drop(page, "two.jsonl", REFERENCE_LOG.read_text("utf-8"))
    expect(page.locator(".where")).to_have_text("two.jsonl")
    with page.expect_response(is_delete) as second:
        page.get_by_role("button", name="Close file").click()
    assert (first.value.status, second.value.status) == (200, 200)
    methods = [method for method, url in visit.asked if "/api/opened" in url]
    assert (methods.count("POST"), methods.count("DELETE")) == (2, 2)


def test_a_file_removed_in_the_meantime_is_reported(visit: Visits, story_url: str) -> None:
    visit.forgive("404")
    page = visit(story_url)
    expect(page.locator(".list-page")).to_be_visible()
    drop(page, "one.jsonl", REFERENCE_LOG.read_text("utf-8"))
    expect(page.locator(".run-row .query a")).to_have_count(2)
    page.evaluate(
        """async () => {
          const token = document.querySelector('meta[name="rlm-token"]').content
          const place = `/api/opened/${sessionStorage.getItem('rlm-opened')}`
          await fetch(place, {method: 'DELETE', headers: {'X-RLM-Token': token}})
        }"""
    )
    page.locator(".run-row .query a").first.click()
    expect(page.get_by_role("alert")).to_contain_text("no longer open")
    page.reload()
    expect(page.locator(".where")).to_have_text("all runs")


def test_an_oversized_file_is_not_uploaded(
    visit: Visits, story_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlm.viewer.application.MAX_FILE_BYTES", 1_000)
    monkeypatch.setattr(opened, "MAX_FILE_BYTES", 1_000)
    page = visit(story_url)
    expect(page.locator(".list-page")).to_be_visible()
    drop(page, "large.jsonl", " " * 1_001)
    expect(page.get_by_role("alert")).to_contain_text("1.00 kB can be opened here")
    expect(page.get_by_role("alert")).to_contain_text("rlm view FILE")
    assert [method for method, _ in visit.asked if method == "POST"] == []


def test_a_dropped_log_shows_what_the_server_shows(
    visit: Visits, story: Story, story_url: str, tmp_path: Path
) -> None:
    from rlm.records.journal import Archive, Places, events_of

    run = Archive(Places(story.state)).places.find(story.main.run_id)
    log = tmp_path / "story.jsonl"
    log.write_bytes(b"\n".join(line.strip() for line in events_of(run.path)) + b"\n")
    recorded, dropped = visit(f"{story_url}#/run/{story.main.run_id}"), visit(story_url)
    expect(dropped.locator(".list-page")).to_be_visible()
    dropped.locator("input[type=file]").first.set_input_files(log)
    texts = []
    for page in (recorded, dropped):
        expect(page.locator(".answer")).to_contain_text("34 tickets")
        facts = page.locator(".run-facts").inner_text()
        steps = page.locator(".step-row").all_inner_texts()
        page.locator(".step-row", has_text="step 2").click()
        expect(page.locator(".calls-head")).to_be_visible()
        calls = page.locator(".calls-head").inner_text()
        page.get_by_role("link", name="Tokens and cost").click()
        expect(page.locator(".usage-chart .total").first).to_be_visible()
        texts.append((facts, steps, calls, page.locator(".usage-chart .total").all_inner_texts()))
    assert texts[0] == texts[1]
    expect(dropped.locator(".where")).to_have_text("story.jsonl")


@pytest.mark.parametrize("text", ["", "not a log\n\x00", '{"a": 1}\n', "[" * 100_000])
def test_a_dropped_file_that_is_not_a_log_is_reported(
    visit: Visits, story_url: str, text: str
) -> None:
    page = visit(story_url)
    expect(page.locator(".list-page")).to_be_visible()
    drop(page, "<img src=x>.jsonl", text)
    expect(page.get_by_role("alert")).to_contain_text("<img src=x>.jsonl contains no runs")
    expect(page.get_by_text("This file contains no runs.")).to_be_visible()


# -- the development server -----------------------------------------------------------------------


def test_the_development_page_shows_recorded_runs_at_its_printed_address(
    visit: Visits, story: Story, dev: Dev
) -> None:
    page = visit(f"{dev.link}#/run/{story.main.run_id}")
    expect(page.locator(".run-facts .status")).to_contain_text("answer")
    assert page.url == f"{dev.url}#/run/{story.main.run_id}"
    page.reload()
    expect(page.locator(".run-facts .status")).to_contain_text("answer")
    other = visit(dev.url)
    assert other.request.get(f"{dev.url}api/runs").status == 403


def test_the_development_page_opens_a_dropped_log(visit: Visits, dev: Dev) -> None:
    """At its plain address, without a token: files are opened, runs are not shown."""
    page = visit(dev.url)
    expect(page.get_by_role("heading", name="Open a log")).to_be_visible()
    drop(page, REFERENCE_LOG.name, REFERENCE_LOG.read_text("utf-8"))
    expect(page.locator(".run-row .query a")).to_have_count(2)
    expect(page.locator(".opening")).to_have_count(0)
    shows_the_reference_run(page)
    page.reload()
    expect(page.locator(".run-facts .status")).to_contain_text("answer")
    assert page.context.cookies() == []
    page.get_by_role("button", name="Close file").click()
    expect(page.get_by_role("heading", name="Open a log")).to_be_visible()
    assert {url.partition("/api/")[2][:6] for _, url in visit.asked if "/api/" in url} == {"opened"}


def test_the_development_page_opens_a_log_of_ours_beside_the_runs(
    visit: Visits, story: Story, dev: Dev, tmp_path: Path
) -> None:
    from tests.records.trajectories.samples import one_run, written

    page = visit(dev.link)
    expect(page.locator(".list-page")).to_be_visible()
    log = written(tmp_path / "own.jsonl", one_run("own-run"))
    page.locator("input[type=file]").first.set_input_files(log)
    expect(page.locator(".run-facts .status")).to_contain_text("answer")
    expect(page.get_by_role("heading", name="query of own-run")).to_be_visible()
    page.get_by_role("button", name="Close file").click()
    expect(page.locator(f"[id='row-{story.main.run_id}']")).to_be_visible()


def test_the_development_server_gives_other_pages_only_files_they_opened(dev: Dev) -> None:
    """Neither runs, nor stored contexts, nor a way to open files from pages of other sites."""
    address = urlsplit(dev.url)
    own = {"Origin": f"http://{address.netloc}"}

    def status(method: str, path: str, headers: dict[str, str] | None = None) -> int:
        connection = http.client.HTTPConnection(address.netloc, timeout=60)
        try:
            connection.request(method, path, b"{}" if method == "POST" else None, headers or {})
            response = connection.getresponse()
            assert response.getheader("Set-Cookie") is None
            return response.status
        finally:
            connection.close()

    assert status("POST", "/api/opened?name=a", own) == 200
    assert status("POST", "/api/opened?name=a", {"Origin": "http://localhost:1"}) == 403
    assert status("POST", "/api/opened?name=a") == 403
    assert status("POST", "/api/opened?name=a", {"Host": "evil.example", **own}) == 403
    crossing = {**own, "Sec-Fetch-Site": "cross-site"}
    assert status("POST", "/api/opened?name=a", crossing) == 403
    assert status("POST", "/api/fork", own) == 403
    for path in ("/api/runs", "/api/viewer", "/api/live", "/api/openedx", "/api/runs/r"):
        assert status("GET", path, own) == 403
    for path in ("../runs", "%2e%2e/runs", "x/../../runs", "x/runs/%2E./.%2e/../../viewer"):
        assert status("GET", f"/api/opened/{path}", own) == 403
    for path in ("x/runs", "x/viewer", "x/runs/r/calls", "/api/runs"):
        assert status("GET", f"/api/opened/{path}", own) in {403, 404}
    for name in ("context", "coverage"):
        assert status("GET", f"/api/opened/x/runs/r/{name}", own) == 403
        assert status("GET", f"/api/opened/x/runs/r/{name}?start=0", own) == 403
