"""`rlm_complete` and `rlm_continue`: whole runs over chosen files, with checked citations.

The model is the operator's, or the client's own by sampling. With neither, the client learns how to
do the work with the other tools.
"""

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from typing import NamedTuple

from rlm._util.text import sendable
from rlm.errors import ModelError, RLMError
from rlm.gateway.callers import Caller, RepliesNeeded, SamplingClient
from rlm.gateway.citations import CitedFiles, claims_of, read_answer, with_instructions
from rlm.gateway.errors import Refused
from rlm.gateway.files import MAX_BYTES, Loaded, Loading, chosen_files, load_files
from rlm.gateway.ledger import Answer, Ledger
from rlm.gateway.models import Models
from rlm.gateway.paths import parts_of
from rlm.gateway.provenance import digest
from rlm.gateway.runs import GatewayRun, Runs, Waiter
from rlm.gateway.sessions import GatewaySession
from rlm.gateway.tasks import BackgroundTasks, Threads
from rlm.messages import PICODOLLARS, Request
from rlm.results import RunResult

__all__ = ["Completer"]

MAX_ANSWER_BYTES = 32_768
HOST_INSTRUCTION = (
    "This gateway has no model, and your client offers none (sampling). Do it yourself: find lines "
    "with rlm_search, read them with rlm_read, work over whole files in Python with rlm_exec "
    "(its variables stay), then answer with handles and lines."
)
_log = logging.getLogger(__name__)


class Completer:
    """Starts runs, and waits at most `seconds` for them in one request."""

    def __init__(
        self,
        ledger: Ledger,
        models: Models | None,
        threads: Threads,
        *,
        samples: bool,
        seconds: float,
        shows_ignored: bool,
    ) -> None:
        self._ledger = ledger
        self._models = models or Models()
        self._threads = threads
        self._samples = samples
        self._shows_ignored = shows_ignored
        self._runs = Runs()
        self._tasks = BackgroundTasks()
        self._waiter = Waiter(ledger, self._tasks, seconds)

    async def complete(
        self,
        caller: Caller,
        session: GatewaySession,
        query: str,
        handles: Sequence[str],
        root: str | None,
        path: str | None,
    ) -> Answer | RepliesNeeded:
        """Start a run, or continue the one that the caller's state names."""
        if caller.state is not None:
            return await self._waiter.wait(caller, self._runs.get(session, caller.state))
        asked = {"query": query, "handles": list(handles), "root": root, "path": path}
        is_own = self._models.model is not None
        if not is_own and not (self._samples and caller.sampling != "none"):
            self._ledger.record(session, "rlm_complete", asked, way="host")
            return {
                "status": "host",
                "instruction": HOST_INSTRUCTION,
                "left": self._ledger.left(session),
            }
        self._runs.check_room(session)
        chosen = self._ledger.root(session, root)
        parts = None if path is None else parts_of(path)

        def load() -> tuple[Loading, list[list[str]]]:
            named = chosen_files(session, handles, chosen, parts, ignored=self._shows_ignored)
            loading = load_files(named, session.ceilings.run_bytes)
            hashes = [[f.handle.id, hashlib.sha256(f.data).hexdigest()] for f in loading.files]
            return loading, hashes

        loading, hashes = await self._threads.run(session.principal, load)
        run = self._begin(session, query, asked, loading, hashes, samples=not is_own)
        return await self._waiter.wait(caller, run)

    async def continue_run(
        self, caller: Caller, session: GatewaySession, run_id: str
    ) -> Answer | RepliesNeeded:
        """Wait for a run that was started earlier, and return its answer if it has ended."""
        run = self._runs.get(session, run_id)
        if caller.state is None:
            run.rounds = 0
        self._ledger.record(session, "rlm_continue", {"run_id": run_id}, run=run.id)
        return await self._waiter.wait(caller, run)

    def end(self, session: GatewaySession) -> None:
        self._runs.end(session)

    async def close(self) -> None:
        await self._tasks.close()

    # -- one run -----------------------------------------------------------------------------

    def _begin(
        self,
        session: GatewaySession,
        query: str,
        asked: Answer,
        loading: Loading,
        hashes: list[list[str]],
        *,
        samples: bool,
    ) -> GatewayRun:
        if session.is_closed:
            raise Refused("this session has ended")
        self._runs.check_room(session)
        session.count_run()
        held = None if samples else session.hold_money()

        def show(request: Request) -> None:
            self._show(session, run, request)

        run = GatewayRun(session, show, samples=samples, max_cost_usd=held)
        files = self._labelled(loading.files)
        self._ledger.record(
            session,
            "rlm_complete",
            asked,
            run=run.id,
            files=hashes,
        )
        work = self._tasks.start(self._work(run, query, files))
        run.start(work, lambda: self._settle(run, held, loading.skipped))
        self._runs.add(run)
        return run

    def _settle(self, run: GatewayRun, held: float | None, skipped: int) -> None:
        """Release the money of a run that has ended, and record what it showed.

        The budget also knows what requests without a reply may have cost; the counter does not.
        """
        run.session.settle_money(held, run.budget.used.picodollars / PICODOLLARS)
        answer = run.answer
        if skipped and answer:
            answer["skipped_files"] = skipped
        spans = [
            [each["handle"], each["start_line"], each["end_line"], each["sha256"]]
            for each in answer.get("citations", ())
        ]
        self._ledger.record(
            run.session,
            "rlm_complete",
            {},
            run=run.id,
            ended=answer.get("stop_reason", "error" if answer else "cancelled"),
            usage=run.counter.facts(is_sampled=run.requests is not None),
            answer=digest(answer.get("answer")),
            spans=spans,
        )

    def _labelled(self, files: Sequence[Loaded]) -> dict[str, Loaded]:
        """Name the files as the run will see them.

        They are named by path if clients may see paths, else by handle.
        """
        labelled: dict[str, Loaded] = {}
        for file in files:
            name = self._ledger.name(file.handle.parts).get("name", file.handle.id)
            labelled[file.handle.id if name in labelled else name] = file
        return labelled

    async def _work(self, run: GatewayRun, query: str, files: dict[str, Loaded]) -> Answer:
        """Execute the run, and return its answer for the client, or the problem."""
        try:
            result = await self._result(run, query, files)
        except RLMError as error:
            _log.warning("a run failed: %s", error)
            return {"problem": _problem(error, is_sampled=run.requests is not None)}
        checked = await asyncio.to_thread(_check, result, CitedFiles(files))
        return self._answer(result, checked, run.session)

    async def _result(self, run: GatewayRun, query: str, files: dict[str, Loaded]) -> RunResult:
        seconds = self._ledger.left(run.session)["seconds"]
        sampler = None if run.requests is None else SamplingClient(run.requests)
        engine = self._models.for_run(sampler, seconds)
        try:
            context = {name: file.text for name, file in files.items()}
            return await engine.aask(
                with_instructions(query), context, recorders=(run.counter,), budget=run.budget
            )
        finally:
            await engine.aclose()

    def _answer(self, result: RunResult, checked: "_Checked", session: GatewaySession) -> Answer:
        citations, dropped = checked.citations, checked.dropped
        for each in citations:
            each |= self._ledger.name(session.handle(each["handle"]).parts)
        data = sendable(checked.answer).encode()
        text = data[:MAX_ANSWER_BYTES].decode("utf-8", "ignore")
        return {
            "answer": text,
            "citations": citations,
            "dropped_citations": dropped,
            "cited": bool(citations),
            "stop_reason": result.stop_reason,
            **({"answer_cut": True} if len(data) > MAX_ANSWER_BYTES else {}),
        }

    def _show(self, session: GatewaySession, run: GatewayRun, request: Request) -> None:
        """Count and record what is sent to a client's own model: the client sees it."""
        texts = [str(message.content) for message in request.messages]
        size = sum(len(text.encode("utf-8", "replace")) for text in texts)
        try:
            session.count_bytes(size)
        except Refused as refusal:
            raise ModelError(str(refusal)) from None
        self._ledger.record(session, "sampling", {"messages": texts}, run=run.id, bytes=size)


class _Checked(NamedTuple):
    """The answer of a run with the citations that are true."""

    answer: str
    citations: list[Answer]
    dropped: int


def _check(result: RunResult, library: CitedFiles) -> _Checked:
    """Read an answer and look up what it cites; in a thread, as both may be large."""
    cited = read_answer(str(result.answer or ""), result.answer_json)
    _, dropped = library.checked(cited.citations, MAX_BYTES)
    found = [*cited.citations, *claims_of(result.citations)]
    citations, _ = library.checked(found, MAX_BYTES)
    return _Checked(cited.answer, citations, dropped)


def _problem(error: RLMError, *, is_sampled: bool) -> str:
    """Return what a client may know about a failed run: nothing about the operator's models."""
    if is_sampled and isinstance(error, ModelError):
        return f"the run failed: {error}"
    return "the run failed; the operator's log says why"
