"""Draw the first ten minutes: `python docs/images/make_first_minutes.py`, from a checkout.

A clean shell with an empty home installs rlm from a clone into a new environment, asks without a
model, sets one up, and asks again. The terminal and the commands are real; a server on this machine
plays the model.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE)]

import make  # noqa: E402

from rlm.testing.fake_server import FakeServer  # noqa: E402

make.SECONDS = 300
SIZE = (110, 28)
CONTRACTS = {
    "harbour.txt": "Lease between the Harbour Board and Osei & Sons.\n"
    "The term is two years and renews for one year unless terminated.\n"
    "Either party may terminate with 90 days' notice.\n",
    "lamp.txt": "Maintenance of the lamp by Prado Ltd.\n"
    "This agreement ends on 31 December 2027 and is not renewed.\nNotice: 30 days.\n",
    "pilot.txt": "Pilot service, Ama Boateng.\nRenewed every spring by both parties in writing.\n",
}
QUESTION = "Which contracts renew by themselves, and with what notice?"
REPLY = """I look for the lines about renewal and notice.

```repl
for name, text in context.items():
    for line in text.splitlines():
        if "renew" in line.lower() or "notice" in line.lower():
            print(f"{name}: {line}")
```"""
ANSWER = """```repl
cite("The term is two years and renews for one year unless terminated.")
cite("Either party may terminate with 90 days' notice.")
FINAL("Only **harbour.txt**: it renews for one year, and ends with 90 days' notice.")
```"""
RULES = [
    ("harbour.txt: The term", ANSWER),
    (QUESTION, REPLY),
    ("", "ready"),
]


def show(shell: make.Terminal, name: str, *commands: str, typed: str = "") -> None:
    """Run commands on a clean screen, and draw it when the last one has ended.

    `typed` is entered where the first one asks for a key, and is not echoed.
    """
    shell.tmux("send-keys", "-t", "p", "clear; tmux clear-history 2>/dev/null; clear", "Enter")
    shell.wait_for(re.compile(r"^\$ *$"))
    for number, command in enumerate(commands, start=1):
        shell.tmux("send-keys", "-t", "p", "-l", command)
        shell.tmux("send-keys", "-t", "p", "Enter")
        if typed and number == 1:
            shell.wait_for(re.compile(r"(?i)key.*: *$"))
            shell.tmux("send-keys", "-t", "p", "-l", typed)
            shell.tmux("send-keys", "-t", "p", "Enter")
        # As many prompts as commands, and one more that waits.
        shell.wait_for(re.compile(rf"(?s)(?:^|\n)\$(?:.*\n\$){{{number}}} *$"))
    make.draw(name, shell.shows("-e"), SIZE)


def main() -> None:
    with FakeServer(rules=RULES) as server:
        kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        with make.terminal(SIZE, **kept, PIP_QUIET="2") as shell:
            clone = ["git", "clone", "-q", str(ROOT), str(shell.folder / "rlm")]
            subprocess.run(clone, check=True)  # noqa: S603
            folder = shell.folder / "rlm" / "contracts"
            folder.mkdir()
            for name, text in CONTRACTS.items():
                (folder / name).write_text(text)
            python = Path(sys.base_prefix) / "bin" / "python3"
            bare = f"cd rlm; export PATH=/usr/local/bin:/usr/bin:/bin; alias python3={python}"
            shell.tmux("send-keys", "-t", "p", f"{bare}; clear", "Enter")
            show(
                shell,
                "first-1-install",
                "python3 -m venv .venv && . .venv/bin/activate && PS1='$ '",
                "pip install .",
                "rlm doctor | head -12",
            )
            show(shell, "first-2-passages", f'rlm ask "{QUESTION}" -f contracts/', "echo $?")
            address = f"export OPENAI_BASE_URL={server.openai_url}"  # Before, no model is there.
            shell.tmux("send-keys", "-t", "p", f"{address}; clear", "Enter")
            show(
                shell,
                "first-3-setup",
                "rlm keys set openai",
                "rlm setup --yes --model openai/gpt-5-mini",
                "rlm config list",
                typed="sk-from-your-provider",
            )
            show(shell, "first-4-answer", f'rlm ask "{QUESTION}" -f contracts/ --cite --verbose')
            show(shell, "first-5-runs", "rlm runs", "rlm show last | head -18")


if __name__ == "__main__":
    main()
