"""Run a command while a fake model server answers it: `python fake_model.py COMMAND …`.

The model looks around in the container and says that it is done. The command's requests go to the
server, because OPENAI_BASE_URL and OPENAI_API_KEY are set for it.
"""

import os
import subprocess
import sys

from rlm.testing.fake_server import FakeServer

LOOK = "```repl\nprint(shell('pwd; ls -la')['stdout'])\n```"
DONE = "```repl\nFINAL('I looked around.')\n```"


def main(command: list[str]) -> int:
    with FakeServer([LOOK, DONE], loop=True) as server:
        here = {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "fake"}
        return subprocess.run(command, env={**os.environ, **here}).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
