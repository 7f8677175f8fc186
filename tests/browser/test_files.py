"""Logs that need no server, and logs of the reference engine."""

import functools
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rlm.viewer.assets import STATIC
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


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def static_page() -> Iterator[str]:
    """The built page on a server that knows nothing of runs."""
    handler = functools.partial(Quiet, directory=str(STATIC))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


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
    with subprocess.Popen(
        ["node", str(vite), "--port", str(port), "--host", "127.0.0.1"],
        cwd=VISUALIZER,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment({"NO_COLOR": "1", "RLM_STATE_DIR": str(story.state)}),
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "With your runs:" in line:
                break
        else:
            raise AssertionError("".join(lines))
        try:
            yield Dev(f"http://127.0.0.1:{port}/", line.split()[-1])
        finally:
            process.terminate()
            process.wait(60)


def shows_the_reference_run(page: Page) -> None:
    """Its log has two runs; the older one has four steps, four calls and a child run."""
    row = page.locator(".run-row", has_text="What is the answer?")
    assert row.get_by_role("cell").all_inner_texts()[5:8] == ["4", "4", "1"]
    row.get_by_role("link").click()
    expect(page.locator(".run-facts .status")).to_contain_text("answered")
    expect(page.get_by_role("treeitem")).to_have_count(2)
    page.locator(".step-row", has_text="step 1").click()
    expect(page.locator(".cell .python").first).to_be_visible()
    expect(page.get_by_role("region", name="Reply").first).to_be_visible()


def test_the_server_opens_a_log_of_the_reference_engine(visit: Visits) -> None:
    with viewing(REFERENCE_LOG) as url:
        page = visit(url)
        expect(page.locator(".run-row .query a")).to_have_count(2)
        shows_the_reference_run(page)


def test_a_log_of_the_reference_engine_is_dropped_on_a_page_without_a_server(
    visit: Visits, static_page: str
) -> None:
    visit.forgive("404")
    page = visit(static_page)
    expect(page.get_by_role("heading", name="Open a log")).to_be_visible()
    page.evaluate(DROP, [REFERENCE_LOG.name, REFERENCE_LOG.read_text("utf-8")])
    expect(page.locator(".run-row .query a")).to_have_count(2)
    expect(page.locator(".opening")).to_have_count(0)
    shows_the_reference_run(page)
    expect(page.get_by_role("button", name="Fork from here")).to_be_disabled()


def test_the_development_page_shows_kept_runs_to_who_has_its_link(
    visit: Visits, story: Story, dev: Dev
) -> None:
    page = visit(f"{dev.link}#/run/{story.main.run_id}")
    expect(page.locator(".run-facts .status")).to_contain_text("answered")
    assert page.url == f"{dev.url}#/run/{story.main.run_id}"
    page.reload()
    expect(page.locator(".run-facts .status")).to_contain_text("answered")
    other = visit(dev.url)
    assert other.request.get(f"{dev.url}api/runs").status == 403


def test_the_development_page_opens_a_dropped_log(visit: Visits, dev: Dev) -> None:
    page = visit(dev.url)
    expect(page.get_by_role("heading", name="Open a log")).to_be_visible()
    page.evaluate(DROP, [REFERENCE_LOG.name, REFERENCE_LOG.read_text("utf-8")])
    expect(page.locator(".run-row .query a")).to_have_count(2)
    expect(page.locator(".opening")).to_have_count(0)
    shows_the_reference_run(page)
    assert [url for _, url in visit.asked if "/api/" in url] == []


def test_a_dropped_log_shows_what_the_server_shows(
    visit: Visits, story: Story, story_url: str, static_page: str, tmp_path: Path
) -> None:
    """The same events in both: a page that reads a file counts as the server does."""
    from rlm.records.journal import Archive, Places, events_of

    run = Archive(Places(story.state)).places.find(story.main.run_id)
    log = tmp_path / "story.jsonl"
    log.write_bytes(b"\n".join(line.strip() for line in events_of(run.path)) + b"\n")
    visit.forgive("404")
    served, dropped = visit(f"{story_url}#/run/{story.main.run_id}"), visit(static_page)
    dropped.locator("input[type=file]").first.set_input_files(log)
    texts = []
    for page in (served, dropped):
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


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "holds no run"), ("not a log\n\x00", "holds no run"), ('{"a": 1}\n', "holds no run")],
)
def test_what_is_no_log_is_said_in_a_sentence(
    visit: Visits, static_page: str, text: str, words: str
) -> None:
    visit.forgive("404")
    page = visit(static_page)
    expect(page.get_by_role("heading", name="Open a log")).to_be_visible()
    page.evaluate(DROP, ["<img src=x>.jsonl", text])
    expect(page.get_by_role("alert")).to_contain_text(words)
    expect(page.get_by_role("alert")).to_contain_text("<img src=x>")
