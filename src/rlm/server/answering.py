"""Answer a request, with a run or directly, within budgets, and cut where the client says."""

import json
import time
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from rlm._util.text import sendable
from rlm.citations import Citation
from rlm.limits import Limits
from rlm.messages import ToolCall, Usage
from rlm.protocols import Recorder
from rlm.results import RunResult
from rlm.server.errors import ApiError, bad_request, too_many
from rlm.server.ledger import Grant, Ledger
from rlm.server.metrics import Metrics
from rlm.server.planning import Plan
from rlm.server.progress import Meter, Outbox, ProgressRecorder
from rlm.server.tokens import Token
from rlm.web.responses import without_paths

__all__ = ["BYTES_A_TOKEN", "Answerer", "Facts", "Outcome", "Stopper", "cut_to_tokens", "facts_of"]

BYTES_A_TOKEN = 4
"""For estimating tokens without a tokenizer."""


class Stopper:
    """Passes text on up to the first stop sequence, even if that is split between pieces.

    What may be the beginning of a stop sequence is held back until more arrives.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.stopped = False

    def feed(self, piece: str) -> str:
        """Add a piece, and return what can be passed on."""
        if self.stopped:
            return ""
        text = self._held + piece
        found = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        if found:
            # A longer stop sequence that begins before this one may still be incomplete.
            at = min(found)
            pending = self._pending(text)
            if pending is None or pending >= at:
                self.stopped, self._held = True, ""
                return text[:at]
        pending = self._pending(text)
        cut = len(text) if pending is None else pending
        self._held = text[cut:]
        return text[:cut]

    def end(self) -> str:
        """Return the text that was held back, which was no stop sequence after all."""
        if self.stopped:
            return ""
        text, self._held = self._held, ""
        found = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        self.stopped = bool(found)
        return text[: min(found)] if found else text

    def _pending(self, text: str) -> int | None:
        """Return where the text's end may begin a stop sequence, or None."""
        starts = [
            len(text) - size
            for stop in self._stops
            for size in range(min(len(stop) - 1, len(text)), 0, -1)
            if text.endswith(stop[:size])
        ]
        return min(starts, default=None)


def cut_to_tokens(text: str, most_tokens: int | None) -> tuple[str, bool]:
    """Cut a text to a number of tokens; return it and whether anything was cut."""
    if most_tokens is None:
        return text, False
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= most_tokens * BYTES_A_TOKEN:
        return text, False
    return data[: most_tokens * BYTES_A_TOKEN].decode("utf-8", "ignore"), True


Finish = Literal["stop", "length", "tool_calls", "content_filter"]
FINISH: dict[str, Finish] = {
    "length": "length",
    "tool_calls": "tool_calls",
    "refusal": "content_filter",
}


class Facts(Struct, frozen=True, kw_only=True):
    """What a reply reports about its run, in its field `rlm`."""

    run_id: str
    route: Literal["rlm", "direct"]
    stop_reason: str
    answer_source: str
    steps: int
    calls: int
    cost_usd: float | None
    seconds: float
    limit: str | None = None
    detail: str = ""
    citations: tuple[Citation, ...] = ()
    unsupported_quotes: int = 0
    omitted_citations: int = 0


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of a request. `text` is the answer up to a stop sequence."""

    text: str
    finish: Finish
    usage: Usage
    facts: Facts
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    refused: bool = False
    result: RunResult | None = field(default=None)


class Answerer:
    """Carries out plans. The token's budget is settled whatever happens."""

    def __init__(self, ledger: Ledger, metrics: Metrics) -> None:
        self._ledger = ledger
        self._metrics = metrics

    def hold(
        self,
        plan: Plan,
        run_id: str | None,
        *,
        background: bool = False,
        continues: bool = False,
    ) -> Grant | None:
        """Reserve what the plan wants of its token's budget; raise ApiError if nothing is left."""
        return self._ledger.hold(
            plan.token, run_id, plan.wanted, background=background, continues=continues
        )

    def release(self, grant: Grant | None) -> None:
        """Release what was reserved for a run that never started, unless it was settled."""
        if grant is not None:
            self._ledger.release(grant)

    def abandon(self, token: Token, run_id: str) -> None:
        """Count what an earlier server reserved for a run that is not continued."""
        self._ledger.abandon(token.name, run_id)

    async def answer(self, plan: Plan, outbox: Outbox, grant: Grant | None) -> Outcome:
        """Answer one request of a waiting client."""
        meter, started = Meter(), time.monotonic()
        try:
            if plan.route == "direct":
                return await self._direct(plan, outbox, meter, grant)
            return await self._run(plan, outbox, meter, grant)
        finally:
            self.settle(plan, meter, grant, time.monotonic() - started)

    def settle(self, plan: Plan, meter: Meter, grant: Grant | None, seconds: float) -> None:
        if grant is not None:
            self._ledger.settle(grant, meter.used)
        self._metrics.run_ended(plan.route, meter.ended, seconds)

    # -- the two routes ----------------------------------------------------------------------

    async def _direct(
        self, plan: Plan, outbox: Outbox, meter: Meter, grant: Grant | None
    ) -> Outcome:
        assert plan.relayed is not None
        stopper = Stopper(plan.request.stops)
        relayed = replace(plan.relayed, on_text=lambda piece: outbox.content(stopper.feed(piece)))
        result, reply = await plan.engine.runner.relay(
            plan.task, relayed, (meter,), narrowed(plan.limits, grant), meter.watch
        )
        outbox.content(stopper.end())
        _check_begun(result, grant)
        assert reply is not None
        whole = Stopper(plan.request.stops)
        text = whole.feed(sendable(reply.text)) + whole.end()
        finish = "stop" if whole.stopped else FINISH.get(reply.finish_reason, "stop")
        return replace(
            _outcome(plan, result, text, finish),
            reasoning=sendable(reply.reasoning),
            tool_calls=() if whole.stopped else reply.tool_calls,
            refused=reply.finish_reason == "refusal",
        )

    async def _run(self, plan: Plan, outbox: Outbox, meter: Meter, grant: Grant | None) -> Outcome:
        ahead: list[str] = []
        typed = plan.request.schema is not None
        stopper = Stopper(plan.request.stops)

        def stream(text: str) -> None:
            ahead.append(text)
            outbox.content(stopper.feed(sendable(text)))

        plain = not typed and plan.request.max_output_tokens is None
        progress = ProgressRecorder(outbox.progress, stream if plain else None)
        result = await self.run(plan, meter, progress, plan.request.rlm.run_id, grant)
        _check_begun(result, grant)
        answer = answer_text(result, typed=typed)
        streamed = sendable("".join(ahead))
        rest = _rest(streamed, answer)
        shown, cut = cut_to_tokens(sendable(rest), plan.request.max_output_tokens)
        outbox.content(stopper.feed(shown) + stopper.end())
        whole = Stopper(plan.request.stops)
        text = whole.feed(streamed + shown) + whole.end()
        at_limit = result.stop_reason in {"steps", "limit", "cancelled"}
        finish: Finish = "length" if (cut or at_limit) and not whole.stopped else "stop"
        return _outcome(plan, result, text, finish)

    async def run(
        self,
        plan: Plan,
        meter: Meter,
        listener: Recorder,
        run_id: str | None,
        grant: Grant | None,
    ) -> RunResult:
        """Run with a REPL; a run with an id is journaled, and continues where it was."""
        config = replace(plan.config, limits=narrowed(plan.limits, grant))
        return await plan.engine.runner.answer(
            plan.task,
            response_model=plan.request.schema,
            recorders=(meter, listener),
            run_id=run_id,
            config=config,
            journaled=run_id is not None,
            on_budget=meter.watch,
        )


def narrowed(limits: Limits, grant: Grant | None) -> Limits:
    """Return the limits of a run, lowered to its grant."""
    if grant is None:
        return limits
    tokens, money = grant.max_tokens, grant.max_cost_usd
    if tokens is not None:
        most = tokens if limits.max_tokens is None else min(tokens, limits.max_tokens)
        limits = replace(limits, max_tokens=max(1, most))
    if money:
        cost = money if limits.max_cost_usd is None else min(money, limits.max_cost_usd)
        limits = replace(limits, max_cost_usd=cost)
    return limits


def _rest(streamed: str, answer: str) -> str:
    """Return the rest of a partly streamed answer; both together are the answer.

    Most models submit all of it, some only what they said last; others continue where they were.
    """
    if answer.startswith(streamed):
        return answer[len(streamed) :]
    return "" if streamed.endswith(answer) else answer


def _check_begun(result: RunResult, grant: Grant | None) -> None:
    """Refuse a request that is too large for its limits, instead of returning an empty answer."""
    if result.stop_reason != "limit" or result.usage.total.requests:
        return
    if grant is not None:
        raise too_many(
            f"the rest of this token's budget is too small: {result.detail}",
            "insufficient_quota",
            60,
            "insufficient_quota",
        )
    raise bad_request(
        f"the limits are too low to ask the model even once: {result.detail}",
        "rlm.limits",
        "limit_too_low",
    )


def answer_text(result: RunResult, *, typed: bool) -> str:
    """Return the answer as text; if `typed`, as JSON.

    Raise ApiError if there is no answer of that type.
    """
    if not typed:
        return "" if result.answer is None else str(result.answer)
    if not result.has_answer:
        detail = result.detail or "the run ended without one"
        raise ApiError(
            502,
            f"no answer of the wanted type was found (run {result.run_id}): {detail}",
            code="no_valid_answer",
        )
    return json.dumps(result.answer, ensure_ascii=False, separators=(",", ":"))


def facts_of(route: Literal["rlm", "direct"], result: RunResult) -> Facts:
    return Facts(
        run_id=result.run_id,
        route=route,
        stop_reason=result.stop_reason,
        answer_source=result.answer_source,
        steps=result.steps,
        calls=result.calls,
        cost_usd=result.cost_usd,
        seconds=round(result.seconds, 3),
        limit=result.limit,
        detail=without_paths(sendable(result.detail)),
        citations=tuple(map(_sendable_citation, result.citations)),
        unsupported_quotes=result.unsupported_quotes,
        omitted_citations=result.omitted_citations,
    )


def _sendable_citation(citation: Citation) -> Citation:
    file = None if citation.file is None else sendable(citation.file)
    return replace(citation, file=file, text=sendable(citation.text))


def _outcome(plan: Plan, result: RunResult, text: str, finish: Finish) -> Outcome:
    return Outcome(
        text=sendable(text),
        finish=finish,
        usage=result.usage.total,
        facts=facts_of(plan.route, result),
        result=result,
    )
