"""`environment="monty"`: cells in Pydantic's own interpreter, and in `local` where they need it.

monty is an interpreter for a part of Python, written in Rust. It has no way to files, processes or
the network, and runs in a process of its own. A cell that needs more of Python than it has moves
the session to `environment="local"`, with its contexts and its variables.
"""

import asyncio
import importlib
import importlib.util
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rlm.environments.local import LocalEnvironment
from rlm.environments.monty.here import Here
from rlm.environments.monty.inside import prelude
from rlm.environments.monty.interpreter import Interpreter
from rlm.environments.monty.lacking import LACKS, LACKS_WITH_LOCAL
from rlm.environments.monty.loading import MOST_BYTES
from rlm.environments.monty.moving import Mover
from rlm.environments.monty.questions import Questions
from rlm.environments.monty.repl import Repl
from rlm.environments.monty.session import MontySession
from rlm.environments.monty.starting import KEPT, stubs, worker_settings
from rlm.environments.monty.survey import Survey
from rlm.errors import ConfigError
from rlm.protocols import Host

__all__ = ["MontyEnvironment"]

_MOST_WORKERS = 1_000
_DEFAULTS: dict[str, Any] = {"kept_output_chars": 1_000_000, "max_submission_chars": 10_000_000}
_MISSING = ["the kernel does not hold a monty process back: a bug in monty is a hole"]
_survey = Survey()


class MontyEnvironment:
    """Opens sessions in monty workers.

    `promote`: whether a cell that needs more than monty has moves the session to `local`; if not,
    it ends in an error. `local`: options of that environment. `max_context_bytes`: contexts that
    are larger go to `local` at once, which shares them instead of copying them; without promotion
    the limit is what monty takes. `warm_workers`: how many are kept ready.
    """

    name = "monty"

    def __init__(
        self,
        *,
        promote: bool = True,
        local: Mapping[str, Any] | None = None,
        max_context_bytes: int = 4 << 20,
        warm_workers: int = 2,
    ) -> None:
        self.lacks: dict[str, str] = dict(LACKS_WITH_LOCAL if promote else LACKS)
        self._local = LocalEnvironment(**(local or {})) if promote else None
        self._most_context_bytes = min(max_context_bytes, MOST_BYTES) if promote else MOST_BYTES
        self._warm_workers = warm_workers
        self._starting = asyncio.Lock()
        self._pool: Any = None
        self._threads: ThreadPoolExecutor | None = None
        self._bases: dict[str, bytes] = {}
        self._sessions: set[MontySession] = set()

    @classmethod
    def problem(cls) -> str | None:
        """Why it can't be used here."""
        if importlib.util.find_spec("pydantic_monty") is None:
            return "pydantic-monty is not installed: pip install 'rlm-engine[monty]'"
        return None

    async def open(self, host: Host, options: dict[str, Any]) -> MontySession:
        """Take a worker and give it the REPL's names."""
        if (problem := self.problem()) is not None:
            raise ConfigError(problem)
        options = {**_DEFAULTS, **options}
        questions = Questions(host, options.get("tools", []))
        here = await self._here(questions, options)
        repl = Repl(here, questions, _survey, options, self._most_context_bytes)
        session = MontySession(repl, Mover(self._local, host, options))
        self._sessions.add(session)
        session.when_closed(self._sessions.discard)
        return session

    async def describe(self) -> dict[str, Any]:
        """What protects this machine from the code, as plain facts."""
        if (problem := self.problem()) is not None:
            raise ConfigError(problem)
        return {
            "isolation": "an interpreter without files, processes or network, in a process of its "
            "own; no system-call filter around that process",
            "version": str(importlib.import_module("pydantic_monty").__version__),
            "promotes_to": None if self._local is None else "local",
            "missing": _MISSING + ([] if self._local else sorted(set(LACKS.values()))),
        }

    async def close(self) -> None:
        """Close every session that is still open, and the pool of workers."""
        await asyncio.gather(*(session.close() for session in list(self._sessions)))
        if self._local is not None:
            await self._local.close()
        pool, self._pool = self._pool, None
        threads, self._threads = self._threads, None
        if pool is not None and threads is not None:
            await asyncio.get_running_loop().run_in_executor(
                threads, pool.__exit__, None, None, None
            )
            threads.shutdown(wait=False)

    async def _here(self, questions: Questions, options: dict[str, Any]) -> Here:
        settings = worker_settings(options)
        key = repr((settings, options["max_submission_chars"], questions.functions()))

        async def start() -> Interpreter:
            pool, threads = await self._workers()
            return await Interpreter.start(pool, threads, settings)

        interpreter = await start()
        base = self._bases.get(key)
        if base is not None:
            await interpreter.load(base)
        else:
            given = {**stubs(questions), "_rlm_max_chars": options["max_submission_chars"]}
            await interpreter.value_of(f"{prelude()}\n{KEPT}", given)
            base = self._bases[key] = await interpreter.dump()
        return Here(interpreter, base, questions.tools, start)

    async def _workers(self) -> tuple[Any, ThreadPoolExecutor]:
        """The pool, started when first needed."""
        async with self._starting:
            if self._threads is None:
                threads = ThreadPoolExecutor(_MOST_WORKERS, "rlm-monty")
                self._pool = await _started(threads, self._warm_workers)
                self._threads = threads
            return self._pool, self._threads


async def _started(threads: ThreadPoolExecutor, warm_workers: int) -> Any:
    monty = importlib.import_module("pydantic_monty")
    pool = monty.Monty(
        min_processes=warm_workers, max_processes=_MOST_WORKERS, max_checkouts_per_worker=1
    )
    loop = asyncio.get_running_loop()
    try:
        return await loop.run_in_executor(threads, pool.__enter__)
    except FileNotFoundError as error:
        threads.shutdown(wait=False)
        raise ConfigError(f"monty can't be started: {error}") from None
