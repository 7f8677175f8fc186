"""The REPL in monty: cells run, names hold, and every cell can be undone.

After each cell the worker's state is kept, off the critical path. It is what a session goes back to
when a cell has to be killed, or turns out to need full Python.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from rlm.environments.monty.cell import Cell
from rlm.environments.monty.interpreter import Crashed, Interpreter
from rlm.environments.monty.reports import Ending, Row, read_report
from rlm.environments.monty.running import Running
from rlm.environments.monty.tracebacks import Raised
from rlm.worker.capture import BoundedStream
from rlm.worker.namespace import REPL_NAMES

__all__ = ["Here"]

_NAMING = frozenset({"SHOW_VARS", "FINAL_VAR", "SUBMIT", "submit_answer"})
_RESTORED = frozenset(entry.name for entry in REPL_NAMES if entry.restored)
_RESTORE = "{0} = _rlm_kept[{0!r}]"


class Here:
    """One session's worker, and how to get another one in the state that this one had."""

    def __init__(
        self,
        interpreter: Interpreter,
        dump: bytes | None,
        restored: frozenset[str],
        start: Callable[[], Awaitable[Interpreter]],
    ) -> None:
        self.interpreter = interpreter
        self._dump: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._dump.set_result(dump)
        self._restored = _RESTORED | restored
        self._start = start
        self._overwritten: set[str] = set()
        self._is_closed = False
        self.rows: list[Row] = []

    async def run(
        self, cell: Cell, running: Running, out: BoundedStream, err: BoundedStream
    ) -> Ending:
        """Run a cell; what its worker does not survive is undone."""
        before = await self.undo_point()
        inputs = None
        if cell.loaded & _NAMING:
            names = [*(row.name for row in self.rows), *cell.bound]
            inputs = {"_rlm_names": list(dict.fromkeys(names))}
        raised = None
        try:
            await self._restore_names(cell)
            try:
                streams = {"stdout": out, "stderr": err}
                value = await running.run(
                    cell.fed, inputs, lambda stream, text: streams[stream].write(text)
                )
            except Raised as error:
                raised = error
                value = await self._report()
        except Crashed as error:
            await self._undo(before)
            return Ending(self.rows, None, before, crashed=str(error))
        rows, answer = read_report(value)
        self.rows = rows
        self._keep(has_room=raised is None or raised.type != "MemoryError")
        return Ending(rows, answer, before, raised)

    async def _report(self) -> Any:
        """What a cell left behind; without `answer`, if even its text can't be had."""
        try:
            return await self.interpreter.value_of("_rlm_report(locals())")
        except Raised:
            return await self.interpreter.value_of("_rlm_report(locals(), False)")

    async def bind(self, name: str, value: Any) -> None:
        """Bind a context; the first one, `context`, feeds the helpers too."""
        before = await self.undo_point()
        lines = [f"{name} = _rlm_value", f"_rlm_note_ours({{{name!r}: {name}}})"]
        if name == "context":
            lines += [
                "context_0 = P = _rlm_value",
                "_rlm_view = ctx = _RlmContextView(_rlm_value)",
                "_rlm_kept['context_0'] = context_0",
                "_rlm_note_ours({'context_0': context_0, 'P': P, 'ctx': ctx})",
            ]
        try:
            await self.interpreter.value_of("\n".join(lines), {"_rlm_value": value})
        except Crashed:
            await self._undo(before)
            raise
        self._keep()

    async def text_of(self, name: str, most_chars: int) -> str | None:
        """The text of a variable, if it has one."""
        await self.undo_point()
        try:
            value = await self.interpreter.value_of(f"str(_rlm_meant_by({name}))[:{most_chars}]")
        except Raised:
            return None
        return value if isinstance(value, str) else None

    def _keep(self, *, has_room: bool = True) -> None:
        """Keep the worker's state, while nobody waits for it; a full worker would die of that."""
        self._dump = asyncio.ensure_future(_dumped(self.interpreter if has_room else None))

    async def undo_point(self) -> bytes | None:
        """The state before the next cell; None if it could not be kept."""
        return await asyncio.shield(self._dump)

    async def copy(self, dump: bytes | None) -> Interpreter:
        """Another worker, in a state that was kept."""
        if dump is None:
            raise Crashed("its state was too large to be kept")
        interpreter = await self._start()
        await interpreter.load(dump)
        return interpreter

    async def _undo(self, before: bytes | None) -> None:
        await self.interpreter.close()
        if self._is_closed:
            raise Crashed("the session was closed")
        self.interpreter = await self.copy(before)

    async def close(self) -> None:
        """End the worker."""
        self._is_closed = True
        self._dump.cancel()
        await self.interpreter.close()

    async def _restore_names(self, cell: Cell) -> None:
        if self._overwritten:
            code = "\n".join(_RESTORE.format(name) for name in sorted(self._overwritten))
            await self.interpreter.value_of(code)
        self._overwritten = set(cell.bound) & self._restored
        if cell.loaded & {"exec", "eval"}:
            self._overwritten = set(self._restored)


async def _dumped(interpreter: Interpreter | None) -> bytes | None:
    try:
        return None if interpreter is None else await interpreter.dump()
    except (Crashed, Raised):  # It is too large; or the worker is gone, which shows later.
        return None
