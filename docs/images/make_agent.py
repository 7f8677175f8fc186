"""Record the agent of the overview: `python docs/images/make_agent.py`, from a checkout.

The example runs in a terminal, as a notebook would run it, against a local server that plays the
model. The output, with its timing, becomes an animated picture.
"""

import html
import os
import pty
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.endpoint import endpoint  # noqa: E402
from tests.seeds.reading import code_of  # noqa: E402
from tests.seeds.running import AS_IN_A_NOTEBOOK  # noqa: E402

COLUMNS, CHAR, LINE, MARGIN = 76, 8.4, 20, 16
PAUSE_SECONDS = 3.0
COMMAND = "python agent.py"
TITLE = "The answer of an agent appears piece by piece"
CELL = """```repl
import time
user = context_data["user_info"]["name"]
for piece in (f"One moment, {user}. ", "Your document is empty, ", "so I ask the web.\\n"):
    stream_output(piece)
    time.sleep(0.7)
stream_output(search_web("recursive language models") + "\\n")
time.sleep(0.7)
FINAL("There is plenty to read: send me what you would like to know more about.\\n")
```"""

Recording = list[tuple[float, str]]


def record(folder: Path) -> Recording:
    """Run the document's own example, with a model that answers at once."""

    def model(_: dict[str, Any]) -> str:
        return CELL

    with endpoint(model) as server:
        variables = {"OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": server.url}
        command = [sys.executable, "-u", "-c", AS_IN_A_NOTEBOOK, code_of("004/2")]
        return recorded(command, folder, variables)


def recorded(command: list[str], folder: Path, variables: dict[str, str]) -> Recording:
    """Run a program in a pseudo-terminal; return what it wrote, and after how many seconds."""
    ours, theirs = pty.openpty()
    keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    started = time.monotonic()
    process = subprocess.Popen(  # noqa: S603
        command,
        cwd=folder,
        env={**keep, **variables},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen: Recording = []
    try:
        while data := os.read(ours, 65_536):
            seen.append((time.monotonic() - started, data.decode().replace("\r\n", "\n")))
    except OSError:  # Linux's way to tell the end of a terminal.
        pass
    finally:
        os.close(ours)
    if process.wait() != 0:
        sys.exit("the example failed:\n" + "".join(text for _, text in seen))
    return seen


def drawn(recording: Recording, command: str = COMMAND, title: str = TITLE) -> str:
    """Draw an animated picture of a terminal; without animation, it shows the end."""
    start, total = recording[0][0], recording[-1][0] - recording[0][0] + PAUSE_SECONDS
    marks, styles = [_line(0, 0, f"$ {command}", "p")], []
    row, column = 1, 0
    for number, (moment, text) in enumerate(recording):
        after = 100 * (moment - start) / total
        styles.append(f"@keyframes c{number}{{0%{{opacity:0}}{after:.2f}%,100%{{opacity:1}}}}")
        styles.append(f".c{number}{{animation:c{number} {total:.2f}s step-end infinite}}")
        for at, part in enumerate(text.split("\n")):
            if at:
                row, column = row + 1, 0
            while part:
                fits, part = part[: COLUMNS - column], part[COLUMNS - column :]
                marks.append(_line(row, column, fits, f"c{number}"))
                column += len(fits)
                if column == COLUMNS:
                    row, column = row + 1, 0
    width, height = 2 * MARGIN + COLUMNS * CHAR, 2 * MARGIN + (row + 1) * LINE
    look = "text{font:14px monospace;fill:#d8dee9;white-space:pre}.p{fill:#88c0d0}"
    look += "".join(styles)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img">'
        f"<title>{html.escape(title)}</title>"
        f"<style>{look}@media (prefers-reduced-motion:reduce){{text{{animation:none!important}}}}"
        f'</style><rect width="100%" height="100%" rx="8" fill="#2e3440"/>{"".join(marks)}</svg>\n'
    )


def _line(row: int, column: int, text: str, kind: str) -> str:
    x, y = MARGIN + column * CHAR, MARGIN + (row + 0.75) * LINE
    length = f'textLength="{len(text) * CHAR:.1f}"' if text else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" {length}>{html.escape(text)}</text>'


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        recording = record(Path(folder))
    for moment, text in recording:
        print(f"{moment - recording[0][0]:6.2f} s  {text!r}")
    (HERE / "agent-stream.svg").write_text(drawn(recording), "utf-8")


if __name__ == "__main__":
    main()
