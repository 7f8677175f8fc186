"""Journals one run and gets killed: `python tests/records/journal/crashing.py PLAN.json`.

It asks the model server of the plan with a real sandbox, two tools and a journal, and prints how
the run ended. If the plan says so it kills itself at a moment that nobody outside can aim at.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from rlm import RLM, Limits
from rlm.records.journal import Journal
from rlm.results import RunResult

MODEL = "openai/scripted"
PLACES = 12
"""How many calls may be on their way at once."""

CONTEXT = " ".join(f"word{number:02}" for number in range(24))
QUERY = "What do the words weigh together?"


class Death(Struct, frozen=True):
    """When the program kills itself: after a number of journal writes or recalled replies."""

    moment: Literal["before write", "after write", "recall"]
    number: int


class Plan(Struct, frozen=True):
    """The settings of the program. `tool_log` gets a line for each real call of a tool."""

    folder: str
    run_id: str
    variables: dict[str, str]
    tool_log: str
    death: Death | None = None


def tools(log: Path) -> list[Callable[..., Any]]:
    """Host functions that leave a trace outside the journal each time they really run."""

    def note(line: str) -> None:
        with log.open("a") as file:
            file.write(line + "\n")

    def weigh(word: str) -> list[Any]:
        """A word and its weight."""
        note(word)
        return [word, len(word)]

    def refuse(word: str) -> str:
        """Say no."""
        raise ValueError(f"{word} is refused")

    return [weigh, refuse]


def arrange(death: Death) -> None:
    """Let this process kill itself; no line of it runs after that."""
    left = [death.number]

    def count_down() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    if death.moment == "recall":
        _before(Journal, "get", count_down)
        return
    for write in ("_write", "_save"):
        if death.moment == "before write":
            _around(Journal, write, count_down, lambda: None)
        else:
            _around(Journal, write, lambda: None, count_down)


def _before(owner: Any, name: str, first: Callable[[], None]) -> None:
    original: Callable[..., Awaitable[Any]] = getattr(owner, name)

    async def method(*given: Any) -> Any:
        first()
        return await original(*given)

    setattr(owner, name, method)


def _around(
    owner: Any, name: str, first: Callable[[], None], afterwards: Callable[[], None]
) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    def method(*given: Any) -> Any:
        first()
        result = original(*given)
        afterwards()
        return result

    setattr(owner, name, method)


def main() -> None:
    plan = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan)
    if plan.death is not None:
        arrange(plan.death)
    limits = Limits(max_depth=2, max_concurrent_calls=PLACES)
    with RLM(
        MODEL,
        limits=limits,
        journal=plan.folder,
        tools=tools(Path(plan.tool_log)),
        prices={MODEL: (1.0, 3.0)},
        variables={**os.environ, **plan.variables},
    ) as rlm:
        result = rlm.ask(QUERY, CONTEXT, run_id=plan.run_id)
    print(msgspec.json.encode(told(result)).decode())


def told(result: RunResult) -> dict[str, Any]:
    """How it ended; sums of money up to a picodollar, since replies are added as they come."""
    usage = {"all": result.usage.total, **{str(k): v for k, v in result.usage.by_depth.items()}}
    rounded = {
        name: msgspec.structs.replace(each, cost_usd=round(each.cost_usd or 0, 12))
        for name, each in usage.items()
    }
    return {
        "answer": result.answer,
        "stop_reason": result.stop_reason,
        "steps": result.steps,
        "usage": rounded,
        "cost_usd": round(result.cost_usd or 0, 12),
    }


if __name__ == "__main__":
    main()
