"""Models that play a part: their replies depend only on the requests, never on timing."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from rlm import RLM
from rlm.results import RunResult
from rlm.testing.fake_server import Answer, Asked, FakeServer
from tests.browser.viewers import elsewhere

__all__ = ["MODEL", "SMALL", "Part", "Steps", "cell", "play_once"]

MODEL, SMALL = "openai/gpt-5", "openai/gpt-5-mini"
QUERY = re.compile(r"Query: (.*?)\n\nContext:", re.DOTALL)
Steps: TypeAlias = Mapping[str, Sequence[str | Answer]]


def cell(code: str, words: str = "") -> str:
    return f"{words}\n```repl\n{code}\n```" if words else f"```repl\n{code}\n```"


def _said(body: Mapping[str, Any], role: str) -> list[str]:
    return [str(each["content"]) for each in body["messages"] if each["role"] == role]


class Part:
    """`steps` are the replies of runs by their query; `reply` answers calls."""

    def __init__(
        self, steps: Steps, reply: Callable[[str], str | Answer] = lambda _: "yes"
    ) -> None:
        self._steps = steps
        self._reply = reply

    def of_body(self, body: Mapping[str, Any]) -> str | Answer:
        users = _said(body, "user")
        query = QUERY.search(users[0])
        if query is None:
            return self._reply(users[-1])
        return self._steps[query[1]][len(_said(body, "assistant"))]

    def __call__(self, asked: Asked) -> str | Answer:
        return self.of_body(json.loads(json.dumps(asked.body)))


def play_once(
    state: Path | None, part: Part, query: str, context: Any, **options: Any
) -> RunResult:
    """One run of a real engine over real HTTP; kept in `state`."""
    known: dict[str, Any] = {"model": MODEL, "sub_model": SMALL, "journal": state, **options}

    def ask() -> RunResult:
        with (
            FakeServer([part], loop=True) as server,
            RLM(**known, variables=server.variables) as rlm,
        ):
            return rlm.ask(query, context)

    return elsewhere(ask)
