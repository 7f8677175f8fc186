"""The reference engine's technique: `exec` in the host's interpreter, with captured output.

Only the technique, in a few lines: nothing is isolated, nothing can be stopped, and a context is
written to a file and read back by a cell of each session. `llm_query` is a function call here.
"""

import contextlib
import io
import tempfile
from pathlib import Path
from typing import Any

from rlm.context import StoredContext
from rlm.protocols import ContextSource, Host
from rlm.results import CellResult

__all__ = ["InProcessEnvironment"]


class InProcessSession:
    """Implements `rlm.protocols.Session` as far as the benchmarks need it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="rlm-benchmark-")
        self._names: dict[str, Any] = {
            "__name__": "__main__",
            "llm_query": lambda prompt: prompt,
            "llm_query_batched": lambda prompts: list(prompts),
        }

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(self._names)

    async def load(self, name: str, context: ContextSource) -> None:
        assert isinstance(context, StoredContext)
        path = Path(self._folder.name) / f"{name}.txt"
        path.write_text(context.text(), "utf-8")
        await self.execute(
            f"with open({str(path)!r}, encoding='utf-8') as file: {name} = file.read()",
            timeout_seconds=0,
        )

    async def execute(self, code: str, *, timeout_seconds: float) -> CellResult:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, self._names)  # noqa: S102 - this is the technique
        return CellResult(stdout=output.getvalue())

    async def fetch(self, name: str) -> str | None:
        return str(self._names[name]) if name in self._names else None

    async def interrupt(self) -> None:
        """Do nothing: a cell can't be interrupted."""

    async def close(self) -> None:
        self._names.clear()
        self._folder.cleanup()


class InProcessEnvironment:
    """Opens sessions that are mere dictionaries."""

    name = "in-process"

    async def open(self, host: Host, options: dict[str, Any]) -> InProcessSession:
        return InProcessSession()

    async def close(self) -> None:
        """Do nothing: callers close their sessions."""
