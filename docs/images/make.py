"""Draw the pictures of the command line: `python docs/images/make.py`, from a checkout.

Name functions below to draw only those: `make.py watched`. Each picture is what a real terminal
(tmux) shows at a moment of a real run; nothing leaves this machine.
"""

import html
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.ansi import AnsiDecoder
from rich.console import Console

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from examples.haystack import make_haystack  # noqa: E402
from tests.endpoint import endpoint, texts  # noqa: E402

SECONDS: float = 60
SIZE, LARGE = (100, 24), (120, 30)
NO_WEB_FONTS = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
SOCKET = f"rlm-pictures-{os.getpid()}"
FINISHED = re.compile(r"\n\$ *$")
VARYING = re.compile(
    r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]|\b\d+(?:\.\d+)? s\b|\b\d{8}-\d{6}-[\w-]+|\b(?:child|run) [0-9a-f]{6}\b"
)
"""What is different each time: the spinner, seconds, ids of runs."""


class Terminal:
    """A shell in tmux, in its own folder and with a clean environment."""

    def __init__(self, folder: Path, size: tuple[int, int]) -> None:
        self.folder = folder
        self.size = size

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
            "HISTFILE": os.devnull,
            **variables,
        }
        known["TERM"] = "screen-256color"
        shell = ["env", "-i", *(f"{name}={value}" for name, value in known.items())]
        size = ("-x", str(self.size[0]), "-y", str(self.size[1]))
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
        """Return what the terminal shows, with its colours, once `until` is on it."""
        self.tmux("send-keys", "-t", "p", "-l", command)
        self.tmux("send-keys", "-t", "p", "Enter")
        self.wait_for(re.compile(r"\$ rlm"))
        self.wait_for(until)
        return self.shows("-e")


@contextmanager
def terminal(size: tuple[int, int] = SIZE, **variables: str) -> Generator[Terminal, None, None]:
    with tempfile.TemporaryDirectory(prefix="rlm-pictures-") as folder:
        opened = Terminal(Path(folder), size)
        opened.open(**variables)
        try:
            yield opened
        finally:
            opened.tmux("kill-server")


def draw(name: str, shown: str, size: tuple[int, int] = SIZE) -> None:
    """Write the picture, unless the existing one differs only in what always varies."""
    lines = re.sub(r"\n\$ *$", "", shown).splitlines()
    console = Console(record=True, width=size[0], file=io.StringIO())
    decoder = AnsiDecoder()  # A style lasts until it is changed, across lines.
    for line in lines:
        console.print(decoder.decode_line(line), no_wrap=True)
    svg = console.export_svg(title="rlm", code_format=NO_WEB_FONTS, unique_id=name)
    path = HERE / f"{name}.svg"
    if path.is_file() and steady(path.read_text("utf-8")) == steady(svg):
        print(f"{name}.svg: still the same")
        return
    path.write_text(svg, "utf-8")
    print(f"{name}.svg: {len(lines)} lines")


def steady(svg: str) -> str:
    """Return the words of a picture, without those that differ each time."""
    rows = ["".join(row) for row in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]
    return VARYING.sub("*", html.unescape("".join(rows)).replace("\N{NO-BREAK SPACE}", " "))


def finished_and_limited() -> None:
    """Use a fake model that searches, then cites and answers; and no model at all."""
    haystack = make_haystack(2_000_000, seed=7)
    key = haystack.question.split()[-1].rstrip("?")

    def answer(body: dict[str, Any]) -> str:
        said = texts(body)
        if "without code" in said:
            return f"The access code is {haystack.value}."
        if "1 hit" in said:
            return "```repl\ncite(hits[0])\nFINAL(hits[0].split()[-1].rstrip('.'))\n```"
        lines = f"[line for line in context.splitlines() if {key!r} in line]"
        return f"```repl\nhits = {lines}\nprint(len(hits), 'hit', hits)\n```"

    command = f'rlm ask "{haystack.question}" -f haystack.txt'
    for name, options, has_model in (
        ("cli-ask", f"{MODEL} --cite", True),
        ("cli-limit", f"{MODEL} --max-steps 1", True),
        ("cli-passages", "", False),
    ):
        with endpoint(answer) as server:
            given = {"LLM_BASE_URL": server.url} if has_model else {}
            with terminal(SIZE, **given) as shell:
                (shell.folder / "haystack.txt").write_text(haystack.text, "utf-8")
                draw(name, shell.run(f"{command} {options}"))


@contextmanager
def unanswered() -> Generator[threading.Event, None, None]:
    """Keep requests open until a picture is taken.

    The server's messages about lost connections are kept from the terminal.
    """
    taken = threading.Event()
    with redirect_stderr(io.StringIO()):
        try:
            yield taken
        finally:
            taken.set()
            time.sleep(1)


def take(name: str, shell: Terminal, command: str, until: re.Pattern[str]) -> None:
    """Take the picture of an active run, then end the run."""
    draw(name, shell.run(command, until), shell.size)
    shell.tmux("send-keys", "-t", "p", "C-c")
    shell.wait_for(FINISHED)


QUESTION = 'rlm ask "Which suppliers are named twice?" -f reports.txt --max-depth'
MODEL = "-m openai-compatible/demo --price 0.25,2"


def running() -> None:
    """Use a fake model that starts child runs, each of which makes slow calls."""
    with unanswered() as taken:

        def answer(body: dict[str, Any]) -> str:
            said = texts(body)
            if "You are a sub-LLM" in said:
                if "page 0" not in said:
                    taken.wait(SECONDS)
                return "Nothing of that kind."
            if "Read report" in said:
                pages = "[f'Suppliers on page {n}?' for n in range(6)]"
                return f"```repl\nnotes = llm_query_batched({pages})\n```"
            return (
                "```repl\ntasks = [f'Read report {n}' for n in range(9)]\n"
                "found = rlm_query_batched(tasks, contexts=['text'] * 9)\n```"
            )

        with endpoint(answer) as server, terminal(LLM_BASE_URL=server.url) as shell:
            (shell.folder / "reports.txt").write_text("text\n" * 100_000, "utf-8")
            until = re.compile(r"45 calls open · 2,090 tokens(?s:.*)slowest 3 s")
            take("cli-running", shell, f"{QUESTION} 2 {MODEL}", until)


def watched() -> None:
    """Show three levels of runs, and 64 calls without a reply until the picture is taken."""
    with unanswered() as taken:

        def answer(body: dict[str, Any]) -> str:
            said = texts(body)
            if "You are a sub-LLM" in said:
                if "line 0" not in said:
                    taken.wait(SECONDS)
                return "Nothing of that kind."
            if "Read chapter" in said:
                lines = "[f'Which supplier is named in line {n}?' for n in range(5)]"
                return f"```repl\nfound = llm_query_batched({lines})\n```"
            below, count = ("chapter", 2) if "Read volume" in said else ("volume", 8)
            return (
                f"```repl\ntasks = [f'Read {below} {{n}}' for n in range({count})]\n"
                f"found = rlm_query_batched(tasks, contexts=['text'] * {count})\n```"
            )

        with endpoint(answer) as server, terminal(LARGE, LLM_BASE_URL=server.url) as shell:
            (shell.folder / "reports.txt").write_text("text\n" * 100_000, "utf-8")
            until = re.compile(r"64 calls open · 4,510 tokens(?s:.*)slowest 4 s(?s:.*)and 2 more")
            take("live-tree", shell, f"{QUESTION} 3 {MODEL}", until)


def verbose() -> None:
    """Show what a model says, its code, a failure, and an answer in Markdown."""
    minutes = "Harbour board, April\n\nThe tide gate opens at 05:40, not at 05:10.\n"
    answer_text = (
        "The tide gate opens at **05:40**.\n\n| month | decision |\n|---|---|\n"
        "| April | half an hour later |"
    )
    search = "hits = [line for line in context.splitlines() if 'gate' in line]\nprint(hit)"
    replies = (
        f"I look for lines about the gate.\n```repl\n{search}\n```",
        "That was a typo.\n```repl\nprint(hits)\n```",
        f"```repl\nFINAL({answer_text!r})\n```",
    )

    def answer(body: dict[str, Any]) -> str:
        return replies[sum(each["role"] == "assistant" for each in body["messages"])]

    size = (100, 34)
    with endpoint(answer) as server, terminal(size, LLM_BASE_URL=server.url) as shell:
        (shell.folder / "minutes.txt").write_text(minutes, "utf-8")
        command = (
            'rlm ask "When does the gate open?" -f minutes.txt --verbose -m openai-compatible/m'
        )
        draw("cli-verbose", shell.run(command), size)


def chat() -> None:
    """Use a fake model with two answers, and some commands between them."""
    logbook = "Mon: calm\nTue: gale\nWed: gale\nThu: calm\n"
    cells = {
        "On how many days": (
            "gales = [line for line in context.splitlines() if 'gale' in line]\nFINAL(len(gales))"
        ),
        "Which was the last": "FINAL(gales[-1].split(':')[0])",
    }

    def answer(body: dict[str, Any]) -> str:
        query = str(body["messages"][1]["content"]).splitlines()[0]
        code = next(code for start, code in cells.items() if start in query)
        return f"```repl\n{code}\n```"

    with endpoint(answer) as server, terminal(LLM_BASE_URL=server.url) as shell:
        (shell.folder / "logbook.txt").write_text(logbook, "utf-8")
        prompt = re.compile(r"\nrlm> *$")
        shell.run(f"rlm chat logbook.txt {MODEL}", prompt)
        for said in ("On how many days was there a gale?", "/vars", "Which was the last of them?"):
            before = shell.shows().count("rlm>")
            shell.tmux("send-keys", "-t", "p", "-l", said)
            shell.tmux("send-keys", "-t", "p", "Enter")
            while shell.shows().count("rlm>") == before or not prompt.search(shell.shows()):
                time.sleep(0.05)
        shell.tmux("send-keys", "-t", "p", "C-d")
        shell.wait_for(FINISHED)
        draw("cli-chat", shell.shows("-e"))


def batch() -> None:
    """Run five hundred rows: press Ctrl-C once, then run the same command again."""
    rows = [{"query": f"Which berth has ship {n}?", "context": f"Berth {n}"} for n in range(500)]

    def answer(body: dict[str, Any]) -> str:
        time.sleep(0.3)
        return "```repl\nFINAL(context)\n```"

    with endpoint(answer) as server, terminal(LLM_BASE_URL=server.url) as shell:
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        (shell.folder / "tasks.jsonl").write_text(lines, "utf-8")
        command = f"rlm batch tasks.jsonl {MODEL} --budget-usd 2"
        shell.run(command, re.compile(r"[12]\d\d/500 rows"))
        shell.tmux("send-keys", "-t", "p", "C-c")
        shell.wait_for(FINISHED)
        shell.run(command, re.compile(r"(?s)\$ rlm.*\$ rlm.* 3\d\d/500 rows"))
        shown = shell.shows("-e")
        shell.tmux("send-keys", "-t", "p", "C-c")
        shell.wait_for(FINISHED)
        draw("cli-batch", shown)


if __name__ == "__main__":
    chosen = sys.argv[1:]
    for picture in (finished_and_limited, running, watched, verbose, chat, batch):
        if not chosen or picture.__name__ in chosen:
            picture()
