"""Draw the pictures of resumed runs: `python docs/images/make_journal.py`.

As in make.py, each is what a real terminal shows. The run in them is really killed, with SIGKILL.
"""

import io
import os
import re
import signal
import sys
import threading
import time
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from docs.images.make import FINISHED, SECONDS, Terminal, draw, terminal
from tests.endpoint import endpoint, texts

REPORTS = 40
SUPPLIERS = ("Brandt", "Okafor", "Lindqvist", "Moreau", "Sato")
QUERY = "Which suppliers come up most?"
FIRST = """reports = context.split('\\n\\n')
print(len(reports), 'reports')"""
SECOND = """asked = [f'Who? {report}' for report in reports]
named = llm_query_batched(asked)
print(named[:4])"""
THIRD = """from collections import Counter
FINAL(', '.join(f'{n} ({c})' for n, c in Counter(named).most_common(2)))"""
STEPS = (FIRST, SECOND, THIRD)
EDITED = "from collections import Counter\nFINAL(dict(Counter(named)))"


class Model:
    """A fake model that holds back half of the replies until the run was killed once."""

    def __init__(self) -> None:
        self.answered = 0
        self.resumed = threading.Event()

    def answer(self, body: dict[str, Any]) -> str:
        said = texts(body)
        if "You are a sub-LLM" in said or "Who? Report" in said:
            self.answered += 1
            if self.answered > REPORTS // 2:
                self.resumed.wait(SECONDS)
            return next(name for name in SUPPLIERS if name in said)
        steps = sum(message["role"] == "assistant" for message in body["messages"])
        return f"```repl\n{STEPS[min(steps, len(STEPS) - 1)]}\n```"


def typed(shell: Terminal, command: str, until: re.Pattern[str] = FINISHED) -> str:
    """Type a line, wait until it is shown, then until it is done."""
    shell.tmux("send-keys", "-t", "p", "-l", command)
    shell.wait_for(re.compile(re.escape(command[-30:]) + r"\s*$"))
    shell.tmux("send-keys", "-t", "p", "Enter")
    shell.wait_for(until)
    return shell.shows("-e")


def kill_what_runs(shell: Terminal) -> None:
    """Send SIGKILL to the command that the shell is waiting for."""
    pane = shell.tmux("display-message", "-p", "-t", "p", "#{pane_pid}").strip()
    children = Path(f"/proc/{pane}/task/{pane}/children").read_text("ascii").split()
    os.kill(int(children[0]), signal.SIGKILL)


def cleared(shell: Terminal) -> None:
    shell.tmux("send-keys", "-t", "p", "C-l")
    shell.wait_for(re.compile(r"^\$ *$"))


def pictures(shell: Terminal, model: Model) -> None:
    ask = f'rlm ask "{QUERY}" -f reports.txt -m openai-compatible/demo --price 0.25,2'
    typed(shell, ask, re.compile(rf"\b{REPORTS // 2} of {REPORTS} calls"))
    time.sleep(0.5)
    kill_what_runs(shell)
    shell.wait_for(FINISHED)
    model.resumed.set()
    typed(shell, "rlm runs")
    draw("cli-resume", typed(shell, "rlm resume last"))
    cleared(shell)
    typed(shell, "cat other.py")
    draw("cli-fork", typed(shell, "rlm fork last --step 3 --edit other.py"))
    cleared(shell)
    typed(shell, "rlm ask 'How many reports are there?' -f other.txt --quiet --max-steps 1")
    cleared(shell)
    draw("cli-runs", typed(shell, "rlm runs"))
    cleared(shell)
    typed(shell, "rlm rm last --yes && rlm replay last")
    draw("cli-replay", typed(shell, "rlm replay last -f other.txt"))


def main() -> None:
    """Draw the pictures, without the server's messages about connections that the kill broke."""
    model = Model()
    with (
        redirect_stderr(io.StringIO()),
        endpoint(model.answer) as server,
        terminal(LLM_BASE_URL=server.url) as shell,
    ):
        named = [f"Report {n}: {SUPPLIERS[n * n % 5]}." for n in range(REPORTS)]
        (shell.folder / "reports.txt").write_text("\n\n".join(named), "utf-8")
        (shell.folder / "other.txt").write_text("\n\n".join(named[:30]), "utf-8")
        (shell.folder / "other.py").write_text(f"{EDITED}\n", "utf-8")
        pictures(shell, model)


if __name__ == "__main__":
    main()
