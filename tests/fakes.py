"""A session that interprets plans instead of code, so that thousands of runs need no process.

A cell is a JSON list of orders: ["llm", n], ["batch", n, chars], ["rlm", n], ["print", text],
["dots", n], ["set", name, text], ["final", text], ["fail"], ["die"], ["restore", lost name],
["sleep"]. All the rest is the real engine.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from rlm.errors import SessionDied, SessionRestored
from rlm.protocols import ContextSource, Host
from rlm.results import CellError, CellResult, Submission


class PlanSession:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._variables: dict[str, str] = {}
        self._interrupted = asyncio.Event()
        self.closed = False

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(self._variables)

    async def load(self, name: str, context: ContextSource) -> None:
        self.context = b"".join(context.chunks(1 << 20))

    async def execute(self, code: str, *, timeout_seconds: float) -> CellResult:
        try:
            orders = json.loads(code)
        except ValueError as error:
            return CellResult(error=CellError("SyntaxError", str(error), f"SyntaxError: {error}"))
        result = CellResult()
        for order in orders if isinstance(orders, list) else []:
            result = await self._carry_out(order, result)
            if result.error is not None:
                break
        return replace(result, stdout_chars=len(result.stdout))

    async def _carry_out(self, order: list[Any], so_far: CellResult) -> CellResult:
        kind, argument = order[0], order[1] if len(order) > 1 else ""
        if kind in {"llm", "batch", "rlm"}:
            lines = await self._ask(kind, int(argument), *order[2:])
            text = so_far.stdout + "".join(f"{line}\n" for line in lines)
            return replace(so_far, stdout=text, calls=so_far.calls + int(argument))
        if kind == "print":
            return replace(so_far, stdout=f"{so_far.stdout}{argument}\n")
        if kind == "dots":
            return replace(so_far, stdout=f"{so_far.stdout}{'.' * int(argument)}\n")
        if kind == "final":
            return replace(so_far, submission=Submission(str(argument), "FINAL"))
        if kind == "fail":
            failure = CellError("ValueError", "told to fail", "ValueError: told to fail")
            return replace(so_far, error=failure)
        if kind == "die":
            raise SessionDied("told to die")
        if kind == "restore":
            raise SessionRestored("told to die", lost_variables=(argument,) if argument else ())
        if kind == "sleep":
            await self._interrupted.wait()
        elif kind == "set":
            self._variables[argument] = order[2]
        return so_far

    async def _ask(self, kind: str, count: int, chars: int = 0) -> list[str]:
        prompts = [f"piece {number}".ljust(chars, ".") for number in range(count)]
        arguments: dict[str, Any] = {"model": None, "batched": kind != "llm"}
        if kind == "rlm":
            arguments["contexts"] = [None] * count
        wire_kind = "rlm" if kind == "rlm" else "llm"
        meta, parts = await self._host.answer(wire_kind, arguments, prompts)
        failed = meta["failed"]
        return [
            f"[call failed: {failed[str(i)]}]" if str(i) in failed else part
            for i, part in enumerate(parts)
        ]

    async def fetch(self, name: str) -> str | None:
        return self._variables.get(name)

    async def interrupt(self) -> None:
        self._interrupted.set()

    async def close(self) -> None:
        self.closed = True


class PlanEnvironment:
    name = "plan"

    def __init__(self) -> None:
        self.sessions: list[PlanSession] = []

    async def open(self, host: Host, options: dict[str, Any]) -> PlanSession:
        session = PlanSession(host)
        self.sessions.append(session)
        return session

    async def close(self) -> None:
        pass


def cell(*orders: Sequence[Any]) -> str:
    """A reply with one cell that carries out the orders."""
    return f"```repl\n{json.dumps(list(orders))}\n```"
