"""The card of a notebook in a browser. `UPDATE_SCREENSHOTS=1` takes the pictures again."""

import importlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.driving import Page, chromium
from tests.shape.tree import ROOT

pytestmark = pytest.mark.heavy
IMAGES = ROOT / "docs" / "images"
COLOURS = 128
MAX_BYTES = 120_000

STORY = '''
from rlm import RLM, ScriptedClient
from rlm.messages import Price

minutes = {
    "minutes/march.txt": "Harbour board, March\\n\\nThe lamp of the lighthouse was replaced.\\n",
    "minutes/april.txt": "Harbour board, April\\n\\nThe tide gate opens at 05:40, not at 05:10.\\n",
}
script = [
    """I look for lines about the tide gate.
```repl
hits = [line for text in context.values() for line in text.splitlines() if "gate" in line]
print(hit)
```""",
    """That was a typo.
```repl
notes = llm_query_batched([f"What does the board decide here? {text}" for text in context.values()])
print(hits, notes)
```""",
    """```repl
cite("The tide gate opens at 05:40, not at 05:10.")
FINAL("""  + '"""' + """The tide gate opens at **05:40**. The board changed it in April:

| month | decision |
|---|---|
| March | a new lamp for the lighthouse |
| April | the gate opens half an hour later |""" + '"""' + """)
```""",
]
model = ScriptedClient(script, price=Price(1.25, 10), delay_seconds=0.3)
calls = ScriptedClient(["a new lamp", "a later time"], price=Price(0.25, 2), delay_seconds=0.4)
rlm = RLM(model, sub_model=calls, journal=True, verbose=True)
'''
ASK = 'rlm.ask("When does the tide gate open?", minutes)'

HOSTILE = """
from rlm import RLM, ScriptedClient
bad = ("<script>window.__pwned = 1</script><img src=https://x.example/a onerror='__pwned=2'>"
       "![p](https://x.example/b.png) [click](javascript:__pwned=3) "
       "<style>body{display:none}</style><iframe src=https://x.example/c></iframe> "
       "</div></div><svg onload='__pwned=4'>")
one = RLM(ScriptedClient([bad + "\\n```repl\\nraise ValueError(" + repr(bad) + ")\\n```",
                          "Final Answer: It is so. " + bad]), verbose=True)
one.ask(bad, {bad: bad})
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as made:
        yield made


def notebook_page(path: Path, *cells: str, theme: str = "light") -> tuple[str, Any]:
    """Execute a notebook, and write it as a page."""
    nbformat = importlib.import_module("nbformat.v4")
    client = importlib.import_module("nbclient").NotebookClient
    exporter = importlib.import_module("nbconvert").HTMLExporter(
        template_name="lab", theme=theme, exclude_input_prompt=True, exclude_output_prompt=True
    )
    made = nbformat.new_notebook(cells=[nbformat.new_code_cell(cell) for cell in cells])
    client(
        made, timeout=60, kernel_name="python3", resources={"metadata": {"path": ROOT}}
    ).execute()
    page = path / "notebook.html"
    page.write_text(exporter.from_notebook_node(made)[0], "utf-8")
    return page.as_uri(), made


def opened(browser: Any, address: str) -> tuple[Page, list[str]]:
    """Open a page without a network; what it asks for besides nbconvert's own is listed."""
    asked: list[str] = []
    page = browser.new_page(viewport={"width": 900, "height": 900}, device_scale_factor=1.5)

    def refuse(route: Any) -> None:
        asked.append(route.request.url)
        route.abort()

    page.route(lambda url: not url.startswith("file:"), refuse)
    page.goto(address)
    return page, [url for url in asked if "x.example" in url]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_card_in_a_notebook(browser: Any, tmp_path: Path, theme: str) -> None:
    address, made = notebook_page(tmp_path, STORY, ASK, theme=theme)
    live, value = made.cells[1].outputs
    assert live.data["text/html"] == "<div></div>"
    assert value.output_type == "execute_result"
    page, _ = opened(browser, address)
    card = page.locator(".rlm-card")
    assert card.count() == 1
    assert card.locator(".rlm-answer strong").inner_text() == "05:40"
    assert card.locator(".rlm-cites code").inner_text() == "minutes/april.txt:3"
    assert card.locator(".rlm-lane").count() == 3
    assert "rlm show" in card.locator(".rlm-facts code").inner_text()
    assert not card.locator(".rlm-step").first.is_visible()
    card.locator("summary").click()
    assert card.locator(".rlm-error").inner_text() == "NameError: name 'hit' is not defined"
    card.locator("summary").click()
    take(card, theme)


def take(card: Any, theme: str) -> None:
    """Take the picture if asked to; look at the one that exists."""
    path = IMAGES / f"notebook-card-{theme}.png"
    if os.environ.get("UPDATE_SCREENSHOTS"):
        image = importlib.import_module("PIL.Image")
        taken = image.open(io.BytesIO(card.screenshot())).convert("RGB")
        taken.quantize(COLOURS, dither=image.Dither.NONE).save(path, optimize=True)
    assert 5_000 < path.stat().st_size < MAX_BYTES
    assert path.read_bytes().startswith(b"\x89PNG")


def test_hostile_text_runs_nothing(browser: Any, tmp_path: Path) -> None:
    address, made = notebook_page(tmp_path, HOSTILE)
    page, asked = opened(browser, address)
    assert page.evaluate("window.__pwned") is None
    assert asked == []
    assert page.locator(".rlm-card").is_visible()
    assert page.locator(".rlm-card img, .rlm-card script, .rlm-card iframe").count() == 0
    page.locator(".rlm-card summary").click()
    assert page.evaluate("window.__pwned") is None
    markdown = made.cells[0].outputs[-1].data["text/markdown"]
    assert "<img" not in markdown
    assert "![" not in markdown


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_text_of_a_card_has_enough_contrast(browser: Any, tmp_path: Path, theme: str) -> None:
    address, _ = notebook_page(tmp_path, STORY, ASK, theme=theme)
    page, _ = opened(browser, address)
    page.locator(".rlm-card summary").click()
    for place in (".rlm-answer p", ".rlm-facts span", ".rlm-query", ".rlm-error", ".rlm-step pre"):
        ratio = page.evaluate(CONTRAST, place)
        assert ratio >= 4.5, (place, ratio)


CONTRAST = """
(place) => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true})
  canvas.canvas.width = canvas.canvas.height = 1
  const painted = (...colours) => {
    canvas.clearRect(0, 0, 1, 1)
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1) }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3)
  }
  const bright = (rgb) => rgb.map((v) => v / 255)
    .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0)
  const page = getComputedStyle(document.body).backgroundColor
  const style = getComputedStyle(document.querySelector('.rlm-card ' + place))
  const behind = painted('white', page, style.backgroundColor)
  const before = painted('white', page, style.backgroundColor, style.color)
  const [dark, light] = [bright(behind), bright(before)].sort((a, b) => a - b)
  return (light + 0.05) / (dark + 0.05)
}
"""
