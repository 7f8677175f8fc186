"""The real `llm` command in its own process, and its logs."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

from rlm.testing.fake_server import FakeServer

__all__ = ["Cli", "Done"]

SECONDS = 300
KEPT_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR")


class Done:
    """The result of a command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


class Cli:
    """The real `llm` command in its own process, whose model `mine` is a fake server."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.home = home
        self.folder = folder
        self.path = Path(sys.executable).with_name("llm")

    def use(self, server: FakeServer) -> None:
        """Set up the model `mine` in a file, as llm's documentation says."""
        (self.home / "extra-openai-models.yaml").write_text(
            f"- model_id: mine\n  model_name: m\n  api_base: {server.url}/v1\n"
            "  supports_schema: true\n  supports_tools: true\n"
        )

    @property
    def variables(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        return {**kept, "LLM_USER_PATH": str(self.home)}

    def __call__(self, *arguments: str, stdin: str = "", **variables: str) -> Done:
        done = subprocess.run(
            [str(self.path), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            cwd=self.folder,
            env={**self.variables, **variables},
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments: str, stdin: str = "", **variables: str) -> str:
        """Run a command that must succeed; return what it prints."""
        done = self(*arguments, stdin=stdin, **variables)
        assert done.code == 0, f"llm {arguments}\n{done.out}\n{done.err}"
        return done.out

    def stored(self) -> str:
        """Return everything in the logs database as one text."""
        with sqlite3.connect(self.home / "logs.db") as database:
            text = "\n".join(database.iterdump())
        database.close()
        return text

    def last_log(self) -> dict[str, object]:
        rows: list[dict[str, object]] = json.loads(self.ok("logs", "-n", "1", "--json"))
        return rows[0]
