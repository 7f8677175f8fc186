"""Forking from the page, on the server that users run, which forks for nobody else."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rlm import RLM
from rlm.results import RunResult
from rlm.testing.fake_server import FakeServer
from tests.browser.driving import Page, Visits, expect, wait_until
from tests.browser.models import MODEL, Part, cell
from tests.browser.viewers import Process, elsewhere, rlm_view

pytestmark = pytest.mark.heavy
QUERY = "Which answer?"
STEPS = [
    cell("word = 'first'\nprint(word)", "I choose a word."),
    cell("number = 1"),
    cell("FINAL(f'the {word} answer, number {number}')"),
]
ANSWER = "the first answer, number 1"


class Setting(NamedTuple):
    """A model server, a run that was answered, and a viewer that can go on with it."""

    model: FakeServer
    run: RunResult
    viewer: Process

    def runs(self, page: Page) -> list[dict[str, Any]]:
        found = page.request.get(f"{self.viewer.base}api/runs").json()["runs"]
        return list(found)


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    with FakeServer([Part({QUERY: STEPS})], loop=True) as model:

        def ask() -> RunResult:
            state = tmp_path / "state"
            with RLM(MODEL, journal=state, variables=model.variables) as rlm:
                return rlm.ask(QUERY, "some text")

        run = elsewhere(ask)
        assert run.answer == ANSWER
        variables = {**model.variables, "RLM_STATE_DIR": str(tmp_path / "state")}
        with rlm_view(**variables) as viewer:
            yield Setting(model, run, viewer)


def posts(visit: Visits) -> list[str]:
    return [url for method, url in visit.asked if method == "POST"]


def at_step(visit: Visits, setting: Setting, step: int) -> Page:
    page = visit(f"{setting.viewer.url}#/run/{setting.run.run_id}/step/{step}")
    expect(page.get_by_role("button", name="Fork from here")).to_be_enabled()
    return page


def answered(page: Page, setting: Setting, answer: str) -> None:
    """Wait until a new run is on the page and has ended with this answer."""
    wait_until(page, "id => !location.hash.includes(id)", setting.run.run_id)
    expect(page.locator(".run-facts .status")).to_contain_text("answer")
    page.keyboard.press("Escape")
    expect(page.locator(".answer")).to_contain_text(answer)


def test_an_edited_reply_starts_a_new_run(visit: Visits, setting: Setting) -> None:
    page = at_step(visit, setting, 1)
    asked = setting.model.count
    page.get_by_role("button", name="Fork from here").click()
    text = page.get_by_role("textbox", name="Text of the reply of step 1")
    expect(text).to_have_value(STEPS[0])
    text.fill(STEPS[0].replace("first", "edited"))
    assert posts(visit) == []
    page.get_by_role("button", name="Fork and continue").click()
    answered(page, setting, "the edited answer, number 1")
    assert len(posts(visit)) == 1
    assert setting.model.count == asked + 2, "only what came after the edited reply was asked for"
    page.get_by_role("link", name="rlm: list of runs").click()
    expect(page.locator(".run-row .query")).to_have_count(2)


def test_an_edited_cell_starts_a_new_run(visit: Visits, setting: Setting) -> None:
    page = at_step(visit, setting, 2)
    page.get_by_role("button", name="Edit and fork").click()
    text = page.get_by_role("textbox", name="Text of cell 1 of step 2")
    expect(text).to_have_value("number = 1")
    text.fill("number = 7")
    page.keyboard.press("Control+Enter")
    answered(page, setting, "the first answer, number 7")


def test_a_run_can_be_repeated_from_a_step_without_an_edit(visit: Visits, setting: Setting) -> None:
    page = at_step(visit, setting, 2)
    page.get_by_role("button", name="Fork from here").click()
    page.get_by_role("button", name="Run again from here").click()
    answered(page, setting, ANSWER)


def test_cancelling_the_dialog_does_nothing(visit: Visits, setting: Setting) -> None:
    page = at_step(visit, setting, 1)
    page.get_by_role("button", name="Fork from here").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Fork from here").click()
    expect(page.get_by_role("textbox", name="Text of the reply")).to_be_enabled()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert posts(visit) == []
    assert len(setting.runs(page)) == 1


def test_a_failed_fork_is_explained_in_the_dialog(visit: Visits, setting: Setting) -> None:
    visit.forgive("400")
    page = at_step(visit, setting, 1)
    page.route(
        "**/api/fork",
        lambda route: route.fulfill(status=400, json={"error": "<b>no</b> \u202ekey"}),
    )
    page.get_by_role("button", name="Fork from here").click()
    page.get_by_role("button", name="Run again from here").click()
    expect(page.get_by_role("alert")).to_have_text("<b>no</b> ⟨U+202E⟩key")
    expect(page.get_by_role("button", name="Run again from here")).to_be_enabled()


# -- who may not ----------------------------------------------------------------------------------

SEND = """async ([address, order, headers]) => {
  const options = {method: 'POST', headers, body: JSON.stringify(order)}
  try {
    const response = await fetch(address, options)
    return [response.status, (await response.json()).error]
  } catch (error) {
    return [0, String(error)]
  }
}"""


def test_a_request_without_the_token_is_refused(visit: Visits, setting: Setting) -> None:
    visit.forgive("403")
    page = at_step(visit, setting, 1)
    address = f"{setting.viewer.base}api/fork"
    order = {"run_id": setting.run.run_id, "step": 1, "edited": None}
    json_only = {"Content-Type": "application/json"}
    for headers in (json_only, {**json_only, "X-RLM-Token": "guessed"}):
        status, error = page.evaluate(SEND, [address, order, headers])
        assert status == 403
        assert "reload it" in error
    token = page.locator("meta[name=rlm-token]").get_attribute("content")
    assert len(token) > 20
    refused = [
        page.request.post(address, data=order, headers={"X-RLM-Token": token}),
        page.request.post(
            address, data=order, headers={"X-RLM-Token": token, "Origin": "http://evil.example"}
        ),
        page.request.post(address, data=order, headers={"Origin": setting.viewer.base[:-1]}),
    ]
    assert [each.status for each in refused] == [403, 403, 403]
    assert len(setting.runs(page)) == 1


class Stranger(BaseHTTPRequestHandler):
    """A page of another website."""

    def do_GET(self) -> None:
        body = b"<!doctype html><title>elsewhere</title><link rel=icon href='data:,'>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def stranger() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://localhost:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


def test_another_website_can_neither_fork_nor_read(
    visit: Visits, setting: Setting, stranger: str
) -> None:
    visit.forgive("CORS policy|403|ERR_FAILED|ERR_BLOCKED|frame-ancestors|X-Frame-Options|refused")
    own = at_step(visit, setting, 1)
    token = own.locator("meta[name=rlm-token]").get_attribute("content")
    page = visit(stranger)
    base = setting.viewer.base
    order = {"run_id": setting.run.run_id, "step": 1, "edited": None}
    for headers in ({}, {"Content-Type": "text/plain"}, {"X-RLM-Token": token}):
        status, _ = page.evaluate(SEND, [f"{base}api/fork", order, headers])
        assert status == 0, "the browser must not give the answer to that page"
    read = page.evaluate(
        "address => fetch(address).then((r) => r.text(), (error) => String(error))",
        f"{base}api/runs",
    )
    assert read == "TypeError: Failed to fetch"
    page.evaluate(
        """address => new Promise((done) => {
          const frame = document.createElement('iframe')
          frame.onload = done
          frame.src = address
          document.body.append(frame)
        })""",
        base,
    )
    framed = page.frames[-1]
    assert framed.locator("#app").count() == 0, "the viewer must not be shown inside other pages"
    assert len(setting.runs(own)) == 1
