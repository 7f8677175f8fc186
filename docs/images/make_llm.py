"""Draw `llm -m rlm/…` and its entry in llm's logs: `python docs/images/make_llm.py`.

Run it from a checkout with llm and the plugin installed (as `make test-llm-plugin` does). The
command is the real one, in a terminal; a local server plays the model.
"""

import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from docs.images.make import draw  # noqa: E402
from rlm.testing.fake_server import FakeServer  # noqa: E402

SIZE = (100, 48)
LINES = 60_000
ASK = 'llm -m rlm/my-model -f rlm:server.log "Which account was attacked, and did it hold?"'
COUNT = """I count failed logins first.
```repl
import re
from collections import Counter
failed = re.findall(r"login failed user=(\\w+)", context)
print(len(context), Counter(failed).most_common(2))
```"""
READ = """One account stands out: I have the lines around its last failure read.
```repl
end = context.rindex("login failed user=carol")
said = llm_query("Did the attacker get in?\\n" + context[end - 2000:end + 2000])
FINAL(f"carol: {len([u for u in failed if u == 'carol'])} failed logins; {said}")
```"""


def log_text() -> str:
    """Return a log of 60,000 lines, with an attack in it."""
    rows = []
    for number in range(LINES):
        attacked = 40_000 <= number < 40_300
        event = "login failed user=carol" if attacked else f"GET /item/{number % 997} 200"
        if number % 5_000 == 7 and not attacked:
            event = "login failed user=bob"
        if number == 40_300:
            event = "account locked user=carol"
        rows.append(f"2026-11-{1 + number // 2_500:02} {number:06} {event}")
    return "\n".join(rows)


def shown(command: str, folder: Path) -> str:
    """Return what a terminal shows of a command."""
    here = Path(sys.executable).parent
    variables = {
        "PATH": f"{here}:{os.environ['PATH']}",
        "HOME": str(folder),
        "LLM_USER_PATH": str(folder / "llm"),
        "TERM": "xterm-256color",
    }
    ours, theirs = pty.openpty()
    process = subprocess.Popen(  # noqa: S602 - these are the commands above
        command, shell=True, cwd=folder, env=variables, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    pieces = []
    try:
        while data := os.read(ours, 65_536):
            pieces.append(data)
    except OSError:  # Linux's way to tell the end of a terminal.
        pass
    os.close(ours)
    text = b"".join(pieces).decode().replace("\r\n", "\n")
    if process.wait() != 0:
        sys.exit(f"{command} failed:\n{text}")
    return f"$ {command}\n{text.strip()}\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "llm").mkdir()
        (folder / "server.log").write_text(log_text(), "utf-8")
        reply = "no: after 300 attempts the account was locked."
        with FakeServer([COUNT, READ], rules=[("Did the attacker get in?", reply)]) as server:
            (folder / "llm" / "extra-openai-models.yaml").write_text(
                f"- model_id: my-model\n  model_name: m\n  api_base: {server.openai_url}\n", "utf-8"
            )
            asked = re.sub(r".*not in the model table.*\n", "", shown(ASK, folder))
            logged = shown("llm logs -n 1 -u", folder).replace(f"{folder}/", "")
    wrapped = re.sub(r"(.{96})(?=.)", r"\1\n", logged)
    draw("llm-plugin", re.sub(r"\n{2,}", "\n", f"{asked}{wrapped}"), SIZE)


if __name__ == "__main__":
    main()
