"""A real `rlm ask` that is killed in the middle of a batch, and what its server was asked since."""

import json
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlm.testing.fake_server import FakeServer
from rlm.testing.fake_server.script import Answer
from tests.cli.running import command, environment, rlm

CONTEXT = "alpha beta gamma"
QUERY = "Which words are there?"
SECONDS = 60
STEPS = (
    "words = context.split()\nprint(len(words), 'words')",
    "notes = llm_query_batched([f'Describe {word}.' for word in words])\nprint(notes)",
    "FINAL(' / '.join(notes))",
)
ANSWER = "first / second / third"


def as_reply(code: str) -> str:
    return f"```repl\n{code}\n```"


class Story:
    """A server that holds back what it is asked about gamma, and a folder for journals."""

    def __init__(self, folder: Path, held_back: int) -> None:
        never = Answer(behaviour="never", when="Describe gamma", times=held_back)
        self.server = FakeServer(
            [
                *map(as_reply, STEPS),
                as_reply("FINAL('asked again')"),
                Answer(reply="first", when="Describe alpha"),
                Answer(reply="second", when="Describe beta"),
                *([never] if held_back else []),
                Answer(reply="third", when="Describe gamma"),
            ]
        )
        self.folder = folder
        self.seen = 0

    def variables(self) -> dict[str, str]:
        state = {"RLM_STATE_DIR": str(self.folder / "state")}
        return {**state, "LLM_BASE_URL": self.server.openai_url, "LLM_API_KEY": "k"}

    def rlm(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return rlm(*arguments, cwd=self.folder, **{**self.variables(), **more})

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=environment(self.variables()),
        )

    def ask(self, *options: str) -> "subprocess.Popen[str]":
        (self.folder / "words.txt").write_text(CONTEXT)
        given = ("-f", "words.txt", "-m", "openai-compatible/m", "--price", "1,1")
        return self.start("ask", QUERY, *given, *options)

    def runs(self) -> list[dict[str, Any]]:
        done = self.rlm("runs", "--json", "--all")
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    def wait_for_replies(self, count: int) -> dict[str, Any]:
        """Wait until the only journal holds this number of replies."""
        give_up = time.monotonic() + SECONDS
        while time.monotonic() < give_up:
            found = self.runs() if (self.folder / "state").exists() else []
            if found and found[0]["requests"] >= count and self.server.in_flight:
                return found[0]
            time.sleep(0.05)
        raise AssertionError("the run did not get that far")

    def asked(self) -> list[str]:
        """Return the last message of each request since the previous call."""
        requests = self.server.requests[self.seen :]
        self.seen += len(requests)
        return [_last(each.asked.body) if each.asked else "?" for each in requests]


def _last(body: Any) -> str:
    return str(body["messages"][-1]["content"])


@contextmanager
def story(folder: Path, held_back: int = 1) -> Generator[Story, None, None]:
    told = Story(folder, held_back)
    with told.server:
        yield told


@contextmanager
def killed(folder: Path, held_back: int = 1) -> Generator[tuple[Story, str], None, None]:
    """Kill a run with SIGKILL when one of three replies is pending; yield its id."""
    with story(folder, held_back) as told:
        process = told.ask()
        run = told.wait_for_replies(4)
        process.send_signal(signal.SIGKILL)
        out, _ = process.communicate(timeout=SECONDS)
        assert (process.returncode, out) == (-signal.SIGKILL, "")
        first = told.asked()
        assert len(first) == 5, first
        yield told, run["run_id"]
