"""Draws the pictures of the command line again: `python docs/images/make.py`, from a checkout.

Each is what a real terminal (tmux) shows, at a moment of a real run; nothing leaves this machine.
"""

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from examples.haystack import make_haystack  # noqa: E402
from tests.endpoint import endpoint, texts  # noqa: E402

WIDTH, HEIGHT, SECONDS = 100, 24, 60
NO_WEB_FONTS = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
SOCKET = f"rlm-pictures-{os.getpid()}"
FINISHED = re.compile(r"\n\$ *$")


class Terminal:
    """A shell in tmux, in a folder of its own, with nothing of this machine in its environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def tmux(self, *arguments: str) -> str:
        command = [shutil.which("tmux") or "tmux", "-L", SOCKET, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603

    def open(self, **variables: str) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        known = {
            "PATH": path,
            "HOME": str(self.folder),
            "PS1": "$ ",
            "LANG": "C.UTF-8",
            **variables,
        }
        known["TERM"] = "screen-256color"
        shell = ["env", "-i", *(f"{name}={value}" for name, value in known.items())]
        size = ("-x", str(WIDTH), "-y", str(HEIGHT))
        shell += ["bash", "--norc", "--noprofile"]
        self.tmux("new-session", "-d", "-s", "p", *size, "-c", str(self.folder), *shell)
        self.wait_for(re.compile(r"\$"))

    def shows(self, *options: str) -> str:
        return self.tmux("capture-pane", "-p", *options, "-t", "p").rstrip("\n")

    def wait_for(self, sight: re.Pattern[str]) -> None:
        give_up = time.monotonic() + SECONDS
        while not sight.search(self.shows()):
            if time.monotonic() > give_up:
                sys.exit(f"{sight.pattern!r} never came; the terminal shows:\n{self.shows()}")
            time.sleep(0.05)

    def run(self, command: str, until: re.Pattern[str] = FINISHED) -> str:
        """What the terminal shows, with its colours, once `until` is on it."""
        self.tmux("send-keys", "-t", "p", "-l", command)
        self.tmux("send-keys", "-t", "p", "Enter")
        self.wait_for(re.compile(r"\$ rlm"))
        self.wait_for(until)
        return self.shows("-e")


@contextmanager
def terminal(**variables: str) -> Generator[Terminal, None, None]:
    with tempfile.TemporaryDirectory(prefix="rlm-pictures-") as folder:
        opened = Terminal(Path(folder))
        opened.open(**variables)
        try:
            yield opened
        finally:
            opened.tmux("kill-server")


def draw(name: str, shown: str) -> None:
    lines = re.sub(r"\n\$ *$", "", shown).splitlines()
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    for line in lines:
        console.print(Text.from_ansi(line), no_wrap=True)
    svg = console.export_svg(title="rlm", code_format=NO_WEB_FONTS, unique_id=name)
    (HERE / f"{name}.svg").write_text(svg, "utf-8")
    print(f"{name}.svg: {len(lines)} lines")


def finished_and_limited() -> None:
    haystack = make_haystack(2_000_000, seed=7)
    question = f'rlm ask "{haystack.question}" -f haystack.txt'
    for name, option in (("cli-ask", ""), ("cli-limit", " --max-steps 1")):
        with terminal() as shell:
            (shell.folder / "haystack.txt").write_text(haystack.text, "utf-8")
            draw(name, shell.run(question + option))


def running() -> None:
    """A made-up model that starts child runs, each of which makes calls that take a while."""

    def answer(body: dict[str, Any]) -> str:
        said = texts(body)
        if "You are a sub-LLM" in said:
            time.sleep(0.5 + 3 * (len(said) % 7))
            return "Nothing of that kind."
        if "Read report" in said:
            return "```repl\nnotes = llm_query_batched(['x' * n for n in range(16)])\n```"
        return (
            "```repl\ntasks = [f'Read report {n}' for n in range(9)]\n"
            "found = rlm_query_batched(tasks, contexts=['text'] * 9)\n```"
        )

    with endpoint(answer) as server, terminal(LLM_BASE_URL=server.url) as shell:
        (shell.folder / "reports.txt").write_text("text\n" * 100_000, "utf-8")
        question = 'rlm ask "Which suppliers are named twice?" -f reports.txt --max-depth 2'
        until = re.compile(r"child \w+ · step 1 · cell 1 · [1-9]\d* of 16 calls")
        command = f"{question} -m openai-compatible/demo --price 0.25,2"
        draw("cli-running", shell.run(command, until))


if __name__ == "__main__":
    finished_and_limited()
    running()
