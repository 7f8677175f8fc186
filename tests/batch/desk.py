"""A batch over the rows of a test, with its model, files and tallies."""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rlm import RLM, Limits, ScriptedClient
from rlm.batch import Batch, BatchFolder, Plan, Tally
from rlm.batch.rows import Source
from rlm.limits import Budget
from rlm.messages import Reply, Request

SMALL = Limits(step_output_tokens=500, call_output_tokens=500)


def number_of(request: Request) -> int:
    """Which row asks: its query is "row N"."""
    text = "".join(str(message.content) for message in request.messages)
    return int(text.partition("row ")[2].split()[0])


class Held(ScriptedClient):
    """A model whose requests wait until `release` allows them; `waiting` counts those that wait."""

    def __init__(self, reply: Callable[[Request], str], release: Callable[[int], bool]) -> None:
        super().__init__(rules=[("row ", reply)])
        self.release = release
        self.waiting: set[int] = set()

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        number = number_of(request)
        self.waiting.add(number)
        while not self.release(number):
            await asyncio.sleep(0.005)
        self.waiting.discard(number)
        return await super().complete(request, timeout_seconds=timeout_seconds)


class Desk:
    """Rows in a file, a model that answers them, and a file for the answers."""

    def __init__(self, folder: Path, model: ScriptedClient, *, journaled: bool = True) -> None:
        self.tasks, self.out = folder / "tasks.jsonl", folder / "answers.jsonl"
        self.model = model
        self.folder = BatchFolder(self.out)
        self.journaled = journaled
        self.limits = SMALL
        self.budget: Budget | None = None
        self.tallies: list[Tally] = []

    def write(self, rows: Sequence[Any]) -> None:
        lines = [each if isinstance(each, str) else json.dumps(each) for each in rows]
        self.tasks.write_text("".join(f"{line}\n" for line in lines))

    async def run(self, budget: dict[str, Any] | None = None, **plan: Any) -> Tally:
        """Run the batch once, as one invocation of the command does."""
        self.budget = Budget.shared(**(budget or {}))
        journal = self.folder.journals.root if self.journaled else None
        engine = RLM(self.model, limits=self.limits, journal=journal)
        try:
            with self.folder.opened() as table, self.folder.answers(table) as answers:
                batch = Batch(
                    engine,
                    Source(self.tasks),
                    table,
                    answers,
                    self.budget,
                    Plan(**plan),
                    self.folder.journals if self.journaled else None,
                    lambda tally: self.tallies.append(replace(tally)),
                )
                return await batch.run()
        finally:
            await engine.aclose()

    @property
    def answers(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.read_text().splitlines()]

    @property
    def journals(self) -> list[str]:
        return [run.run_id for run in self.folder.journals.listed()]
