"""Run a command while a fake model server answers it: `python fake_model.py COMMAND …`.

The model writes one cell that finds all numbers of seven digits, and asks a model to repeat them:
that is a right answer for `s-niah/single`. The server is FAKE_BASE_URL, its key FAKE_API_KEY.
"""

import os
import subprocess
import sys

from rlm.testing.fake_server import Asked, FakeServer

CODE = r"""```repl
import re
found = re.findall(r"\b\d{7}\b", context)
FINAL(llm_query("Repeat the numbers: " + ", ".join(found)))
```"""
REQUEST = "Repeat the numbers: "


def repeat(asked: Asked) -> str:
    """Answer the call that the cell makes."""
    return asked.text.rpartition(REQUEST)[2]


def main(command: list[str]) -> int:
    with FakeServer(rules=[(REQUEST, repeat), ("", CODE)]) as server:
        here = {"FAKE_BASE_URL": server.openai_url, "FAKE_API_KEY": "fake"}
        filled = [part.replace("$FAKE_BASE_URL", server.openai_url) for part in command]
        return subprocess.run(filled, env={**os.environ, **here}).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
