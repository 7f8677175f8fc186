"""Debian's Chromium, headless, with pages whose messages, errors and requests are recorded.

Types of playwright are `Any` here: the checkers of this project run where it is not installed.
"""

import importlib
import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TypeAlias
from urllib.parse import urlsplit

__all__ = ["Page", "Visits", "chromium", "expect", "node_count", "wait_until"]

playwright = importlib.import_module("playwright.sync_api")
expect: Any = playwright.expect
Page: TypeAlias = Any

MILLISECONDS = 30_000
FLAGS = (
    *("--no-sandbox", "--headless", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
WATCH = """
window.__violations = []
document.addEventListener('securitypolicyviolation', (event) =>
  window.__violations.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`))
"""

expect.set_options(timeout=MILLISECONDS)


@contextmanager
def chromium() -> Generator[Any, None, None]:
    """The browser of the system: playwright's own is never fetched."""
    path = shutil.which("chromium")
    assert path, "there is no chromium here; `make test-browser` installs Debian's if it can"
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Visits:
    """The pages of one test. `check` finds what no page may do; `forgiven` is expected of them."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._contexts: list[Any] = []
        self.pages: list[Page] = []
        self.said: list[str] = []
        self.asked: list[tuple[str, str]] = []
        self._forgiven: list[re.Pattern[str]] = []

    def __call__(
        self, address: str, *, width: int = 1280, height: int = 800, scheme: str = "light"
    ) -> Page:
        context = self._browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            reduced_motion="reduce",
            locale="en-GB",
            timezone_id="UTC",
        )
        context.set_default_timeout(MILLISECONDS)
        context.add_init_script(WATCH)
        self._contexts.append(context)
        page = context.new_page()
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.said.append(f"uncaught: {error}"))
        page.on("dialog", self._dialog)
        page.on("request", self._requested)
        page.on("popup", lambda popup: self.said.append(f"opened a window: {popup.url}"))
        page.on("download", lambda download: self.said.append(f"downloads {download.url}"))
        self.pages.append(page)
        page.goto(address)
        return page

    def forgive(self, pattern: str) -> None:
        """An error that this test makes on purpose, such as that of a server which is away."""
        self._forgiven.append(re.compile(pattern))

    def _heard(self, message: Any) -> None:
        if message.type in {"error", "warning", "assert"}:
            place = message.location.get("url", "")
            self.said.append(f"console {message.type}: {message.text} {place}".rstrip())

    def _dialog(self, dialog: Any) -> None:
        self.said.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _requested(self, request: Any) -> None:
        self.asked.append((request.method, request.url))

    def problems(self) -> list[str]:
        """What pages logged or did, except for what is forgiven."""
        found = [*self.said]
        for method, url in self.asked:
            parts = urlsplit(url)
            if parts.scheme in {"http", "ws"} and parts.hostname not in {"127.0.0.1", "localhost"}:
                found.append(f"asked elsewhere: {method} {url}")
        for page in self.pages:
            found += [f"against the policy: {each}" for each in page.evaluate("__violations")]
            if (ran := page.evaluate("window.__pwned")) is not None:
                found.append(f"a log's text was run: {ran}")
        return [
            each for each in found if not any(pattern.search(each) for pattern in self._forgiven)
        ]

    def close(self) -> None:
        for context in self._contexts:
            context.close()


def node_count(page: Page) -> int:
    count: int = page.evaluate("document.querySelectorAll('*').length")
    return count


def wait_until(page: Page, condition: str, argument: Any = None) -> None:
    """Wait until an expression is true in the page."""
    page.wait_for_function(condition, arg=argument)
