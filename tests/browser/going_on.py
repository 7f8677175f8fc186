"""A real `rlm ask` in another process, whose model gives its next reply when released."""

import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlm.testing.fake_server import Answer
from tests.browser.models import Part
from tests.cli.running import command, environment
from tests.endpoint import endpoint

__all__ = ["Going", "asking"]

SECONDS = 120


class Going:
    """The run. Its model holds back replies but those to `free` prompts; `release` lets some go."""

    def __init__(self, part: Part, free: Callable[[str], bool]) -> None:
        self._part = part
        self._free = free
        self._gate = threading.Semaphore(0)
        self.process: subprocess.Popen[str] | None = None

    def release(self, replies: int = 1) -> None:
        self._gate.release(replies)

    def answer(self, body: dict[str, Any]) -> str:
        said = self._part.of_body(body)
        if not self._free(str(body["messages"][-1]["content"])):
            assert self._gate.acquire(timeout=SECONDS), "nobody let the model speak"
        return said.reply if isinstance(said, Answer) else said

    def finish(self) -> str:
        """Return what the command printed."""
        assert self.process is not None
        out, err = self.process.communicate(timeout=SECONDS)
        assert self.process.returncode == 0, err
        return out


@contextmanager
def asking(
    state: Path,
    query: str,
    part: Part,
    context: str = "some text",
    free: Callable[[str], bool] = lambda prompt: False,
) -> Generator[Going, None, None]:
    """It is journaled in `state`."""
    going = Going(part, free)
    state.mkdir(parents=True, exist_ok=True)
    file = state.parent / "context.txt"
    file.write_text(context, "utf-8")
    with endpoint(going.answer) as model:
        variables = {
            "RLM_STATE_DIR": str(state),
            "LLM_BASE_URL": model.url,
            "LLM_API_KEY": "k",
        }
        with subprocess.Popen(
            command("ask", query, "-f", str(file), "-m", "openai-compatible/m", "--price", "1,4"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(variables),
        ) as process:
            going.process = process
            try:
                yield going
            finally:
                going.release(1_000)
                process.kill()
