"""The one paid path to a model. Steps, calls, compaction, repair and map/reduce all pass here:

    recall → reserve (then ask the cache) → schedule → send → commit → settle

Replies that an earlier execution of the run has paid for are counted and reused. No request is sent
whose worst case does not fit the budget, and no reply is used before it is committed. The scheduler
decides when a request may be sent; sending.py sends it.
"""

import asyncio
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct

from rlm._util.off_loop import LONG_CHARS, off_loop
from rlm._util.text import sendable
from rlm.calls.billing import FREE, ReportedPrefix, bill, with_smaller_cap, worst_case
from rlm.calls.cache import ReplyCache
from rlm.calls.scheduler import Scheduler
from rlm.calls.scope import Scope, error_of, failed
from rlm.calls.sending import ReplyStream, Route, WireAttempt, end_reservation, first_reply
from rlm.errors import CallRefused, ModelError, UnknownPriceError
from rlm.events import (
    MAX_PROMPT_CHARS,
    CallEnded,
    CallRetried,
    CallStarted,
    ModelAsked,
    ModelReplied,
)
from rlm.images import display_text
from rlm.limits import NOTHING, Limits, Reservation
from rlm.messages import Message, ModelInfo, Reply, ReplyKey, Request, Usage
from rlm.prompts.observation import cut

__all__ = ["Calls", "Route", "Router"]

_IS_SENDABLE = attrgetter("is_sendable")
Router = Callable[[str], Route]
Replies = list[tuple[Reservation, Reply]]
"""Replies and what was reserved for each. The first is used; all are paid for."""


class _Pending(Struct, gc=False):
    """A request with everything that stays the same through all its attempts.

    `patient`: it may take all of `call_seconds`. `call_id` is None for the engine's own requests.
    `stream`, if there is one, passes the reply on while it arrives.
    """

    scope: Scope
    request: Request
    key: ReplyKey
    call_id: str | None
    deadline: float
    patient: bool
    stream: ReplyStream | None = None

    @property
    def has_streamed(self) -> bool:
        """Whether part of a reply has been passed on; the request is then not sent again."""
        return self.stream is not None and self.stream.has_begun


class _Attempt(Struct, gc=False):
    """One attempt: the request with the output cap it has room for, and its reservations."""

    pending: _Pending
    request: Request
    route: Route
    reservations: list[Reservation]


class _Outcome(Struct, gc=False):
    """How one request ended, and what its event reports."""

    reply: Reply | None
    error: ModelError | CallRefused | None
    usage: Usage | None = None
    seconds: float = 0.0
    retries: int = 0
    stored: bool = False

    def facts(self) -> dict[str, Any]:
        return {
            "usage": self.usage,
            "seconds": self.seconds,
            "retries": self.retries,
            "stored": self.stored,
            "error": None if self.error is None else str(self.error),
            "limit": self.error.limit if isinstance(self.error, CallRefused) else None,
        }

    def unwrap(self) -> Reply:
        if self.error is not None:
            raise self.error
        assert self.reply is not None
        return self.reply


class Calls:
    """The only way to a model. There is one per `RLM` and event loop.

    A call that takes longer than `hedge_after_seconds` is sent again, and the first reply wins.
    """

    def __init__(
        self,
        router: Router,
        scheduler: Scheduler,
        *,
        cache: ReplyCache | None = None,
        hedge_after_seconds: float | None = None,
    ) -> None:
        self.router = router
        self.scheduler = scheduler
        self.cache = cache
        self.hedge_after_seconds = hedge_after_seconds
        self._in_progress: dict[bytes, asyncio.Future[Reply | None]] = {}

    def info(self, model: str) -> ModelInfo:
        return self.router(model).info

    def check_prices(self, models: tuple[str, ...], limits: Limits) -> None:
        """Raise if a money limit can't be enforced because a price is unknown."""
        if limits.max_cost_usd is None:
            return
        for model in models:
            if self.info(model).price is None:
                raise UnknownPriceError(
                    f"max_cost_usd is set, but the price of {model!r} is unknown: "
                    f"pass prices={{{model!r}: (input, output)}} in US dollars per million tokens, "
                    "or limit with max_tokens"
                )

    async def run_request(
        self,
        scope: Scope,
        request: Request,
        *,
        purpose: str,
        new_messages: int | None = None,
        held: Reservation | None = None,
        on_text: Callable[[str], None] | None = None,
        stream: ReplyStream | None = None,
    ) -> Reply:
        """Send a request of the engine itself: a step, a final answer, a compaction, a repair.

        `on_text` receives each piece of the reply as it arrives; `ReplyStream` explains retries.
        With a `stream` instead, the caller chooses what is passed on.
        """
        if scope.recorders:
            await scope.catch_up()
        count = len(request.messages)
        fresh = request.messages[0 if new_messages is None else count - new_messages :]
        request = await _prepared(request, fresh)
        pending = self._pending(scope, request, purpose, is_last=held is not None)
        pending.stream = stream if on_text is None else ReplyStream(on_text)
        scope.emit(
            ModelAsked,
            purpose=purpose,
            model=request.model,
            new_messages=fresh,
            message_count=count,
            max_output_tokens=request.max_output_tokens,
            digest=pending.key.digest,
        )
        text = ""
        try:
            outcome = await self._with_retries(pending, held)
            reply = outcome.reply or Reply(text="")
            text = reply.text
        finally:  # A run may be stopped in the middle of a reply.
            if pending.stream is not None:
                pending.stream.finish(text)
        scope.emit(
            ModelReplied,
            purpose=purpose,
            model=request.model,
            text=reply.text,
            reasoning=reply.reasoning,
            finish_reason=reply.finish_reason,
            tool_calls=reply.tool_calls,
            **outcome.facts(),
        )
        return outcome.unwrap()

    async def counted_call(
        self, scope: Scope, request: Request, operator_id: str | None = None
    ) -> Reply:
        """Make a call for model-written code, for map/reduce or for an operator.

        It is counted first, so that code which keeps calling reaches the limit.
        """
        scope.budget.count_call()
        if scope.recorders:
            await scope.catch_up()
        asked = request.messages[-1]
        request = await _prepared(request, request.messages)
        pending = self._pending(scope, request, "llm")
        pending.call_id = scope.call_id(pending.key)
        about = {"call_id": pending.call_id, "kind": "llm", "model": request.model}
        prompt = await off_loop(asked.chars, lambda: _shown(asked))
        scope.emit(CallStarted, **about, prompt=prompt, operator_id=operator_id)
        outcome = await self._with_retries(pending)
        if outcome.error is not None and not outcome.stored:
            await scope.remember(pending.key, failed(outcome.error))
        text = outcome.reply.text if outcome.reply else ""
        scope.emit(CallEnded, **about, reply=text, **outcome.facts())
        return outcome.unwrap()

    # -- the path ----------------------------------------------------------------------------

    async def _with_retries(self, pending: _Pending, held: Reservation | None = None) -> _Outcome:
        """Complete one request, in as many attempts as it takes."""
        scope, key = pending.scope, pending.key
        if scope.has_store and (known := await scope.recall(key, pending.request)) is not None:
            return _recall_outcome(pending, known)
        if (saved := scope.take_saved(key)) is not None:
            return await _reuse_saved(pending, saved)
        scope.count_unrecalled()
        now = self.scheduler.clock
        started = now()
        failures, failure = 0, None
        attempts = self.router(pending.request.model).max_attempts
        while True:
            try:
                outcome = await self._attempt(pending, held)
            except CallRefused as refusal:
                # There is no budget for another attempt: report the failure, not the refusal.
                return _Outcome(None, failure or refusal, None, now() - started, failures)
            except ModelError as error:
                failure = error
                failures += 1
                wait = self.scheduler.wait_before_retry(failures, error)
                may_retry = error.retryable and failures < attempts and not pending.has_streamed
                if not may_retry or now() + wait >= pending.deadline:
                    return _Outcome(None, error, None, now() - started, failures - 1)
                held = None
                if pending.stream is not None:
                    pending.stream.restart()
                self._report_retry(pending, failures, wait, error)
                await asyncio.sleep(wait)
            else:
                outcome.seconds, outcome.retries = now() - started, failures
                return outcome

    def _pending(
        self, scope: Scope, request: Request, kind: str, *, is_last: bool = False
    ) -> _Pending:
        """Make the key of a request, and set its deadline."""
        budget = scope.budget
        patience = self.scheduler.clock() + budget.limits.call_seconds
        deadline = budget.deadline if is_last else budget.work_deadline
        key = scope.key(kind, request.digest())
        return _Pending(scope, request, key, None, min(patience, deadline), patience <= deadline)

    def _report_retry(
        self, pending: _Pending, failures: int, wait: float, error: ModelError
    ) -> None:
        pending.scope.emit(
            CallRetried,
            model=pending.request.model,
            attempt=failures,
            wait_seconds=wait,
            error=str(error),
            call_id=pending.call_id,
        )

    async def _attempt(self, pending: _Pending, held: Reservation | None) -> _Outcome:
        """Try once; whatever happens, every reservation ends settled, kept or released."""
        scope, route = pending.scope, self.router(pending.request.model)
        known = scope.reported if pending.call_id is None else None
        request, reservation = await self._reserve(pending, held, route.info, known)
        attempt = _Attempt(pending, request, route, [reservation])
        try:
            replies, stored = await self._obtain(attempt)
            bills = [bill(request, reply, route.info, r.amount, known) for r, reply in replies]
            total = bills[0][0]
            for usage, _ in bills[1:]:
                total += usage
            if scope.tree.store is not None:
                # Stored with its cost, so that a later execution counts what was really paid.
                reply = msgspec.structs.replace(replies[0][1], usage=total)
                await scope.remember(pending.key, reply)
        except BaseException as error:
            for each in attempt.reservations:
                end_reservation(each, error)
            raise
        finally:
            scope.remember_kept(pending.key, attempt.reservations)
        for (each, _), (usage, used) in zip(replies, bills, strict=True):
            each.settle(used)
            scope.budget.note_usage(request.model, scope.depth, usage)
        if pending.call_id is None and not stored:
            scope.reported.note(request, replies[0][1].usage)
        scope.note(pending.key, replies[0][1])
        return _Outcome(replies[0][1], None, total, stored=stored)

    async def _reserve(
        self,
        pending: _Pending,
        held: Reservation | None,
        info: ModelInfo,
        known: ReportedPrefix | None,
    ) -> tuple[Request, Reservation]:
        """Reserve the worst case, with a smaller output cap if the budget requires it."""
        request, budget = pending.request, pending.scope.budget
        while True:
            amount = worst_case(request, info, known)
            try:
                if held is not None:
                    return request, budget.exchange(held, amount)
                return request, budget.reserve_at_once(amount) or await budget.reserve(amount)
            except CallRefused:
                room = budget.room() + (NOTHING if held is None else held.amount)
                smaller = with_smaller_cap(request, info, room, known)
                if smaller is None:
                    raise
                request = smaller

    async def _obtain(self, attempt: _Attempt) -> tuple[Replies, bool]:
        """Return replies from the cache or the server, and whether they were cached."""
        key = None
        if self.cache is not None:
            key = await off_loop(attempt.request.chars, lambda: self._cache_key(attempt))
        if key is None:
            return await self._send(attempt), False
        known = await self._known(attempt, key)
        if known is None:
            return await self._send_for_all(attempt, key), False
        reply = msgspec.structs.replace(known, usage=FREE)
        return [(attempt.reservations[0], reply)], True

    async def _send(self, attempt: _Attempt) -> Replies:
        """Send a request; if the reply takes too long, send it again."""
        first = self._wire_attempt(attempt, attempt.reservations[0])
        if self.hedge_after_seconds is None or attempt.pending.call_id is None:
            return [(first.reservation, await first.send())]
        both = await first_reply(first, self.hedge_after_seconds, lambda: self._second(attempt))
        return [(each.reservation, reply) for each, reply in both]

    def _wire_attempt(self, attempt: _Attempt, reservation: Reservation) -> WireAttempt:
        pending = attempt.pending
        return WireAttempt(
            self.scheduler,
            attempt.route,
            attempt.request,
            reservation,
            pending.deadline,
            pending.patient,
            stream=pending.stream,
            key=pending.key,
        )

    def _second(self, attempt: _Attempt) -> WireAttempt | None:
        """The same request again, if its whole worst case fits and a slot is free."""
        budget, amount = attempt.pending.scope.budget, attempt.reservations[0].amount
        try:
            reservation = budget.exchange(budget.hold(amount), amount)
        except CallRefused:
            return None
        second = self._wire_attempt(attempt, reservation)
        if not second.take_slot():
            reservation.release()
            return None
        attempt.reservations.append(reservation)
        return second

    # -- the cache ---------------------------------------------------------------------------

    def _cache_key(self, attempt: _Attempt) -> bytes | None:
        if self.cache is None or attempt.route.identity is None:
            return None
        if not self.cache.wants(attempt.request, is_call=attempt.pending.call_id is not None):
            return None
        on_the_wire = msgspec.structs.replace(attempt.request, model=attempt.route.wire_name)
        pending = attempt.pending
        number, sample = pending.key.number, pending.scope.sample
        return self.cache.key(attempt.route.identity, on_the_wire, number, sample)

    async def _known(self, attempt: _Attempt, key: bytes) -> Reply | None:
        """Return the reply from the cache, or from an equal request that is being sent."""
        assert self.cache is not None
        while (known := await self.cache.get(key)) is None and key in self._in_progress:
            seconds = attempt.pending.deadline - self.scheduler.clock()
            done, _ = await asyncio.wait([self._in_progress[key]], timeout=max(0.0, seconds))
            if not done:
                raise ModelError(
                    f"{attempt.request.model}: an identical request of another run got no reply "
                    "within this request's time limit (call_seconds, max_seconds)"
                )
            if (known := done.pop().result()) is not None:
                break
        return known

    async def _send_for_all(self, attempt: _Attempt, key: bytes) -> Replies:
        """Send a request that equal requests may wait for; if it fails, one of them is sent."""
        assert self.cache is not None
        self._in_progress[key] = asyncio.get_running_loop().create_future()
        reply = None
        try:
            replies = await self._send(attempt)
            reply = replies[0][1]
            await self.cache.put(key, reply)
        finally:
            self._in_progress.pop(key).set_result(reply)
        return replies


def _recall_outcome(pending: _Pending, known: Reply) -> _Outcome:
    """Return how the request ended the first time; count its cost without paying again."""
    if known.finish_reason == "failed":
        return _Outcome(None, error_of(known), stored=True)
    usage = known.usage or FREE
    pending.scope.note(pending.key, known)
    reported = pending.scope.reported
    is_bound = usage.input_tokens == reported.bound(pending.request)  # nothing was reported
    if pending.call_id is None and not is_bound:
        reported.note(pending.request, known.usage)
    pending.scope.count_recalled(pending.key, pending.request.model, usage)
    return _Outcome(known, None, usage, stored=True)


async def _reuse_saved(pending: _Pending, reply: Reply) -> _Outcome:
    """Use a reply that a lost cell has already paid for."""
    reply = msgspec.structs.replace(reply, usage=FREE)
    pending.scope.note(pending.key, reply)
    await pending.scope.remember(pending.key, reply)
    return _Outcome(reply, None, FREE, stored=True)


def _shown(message: Message) -> str:
    """Return what the event of a call shows of its prompt."""
    return cut(display_text(message.content), MAX_PROMPT_CHARS)


async def _prepared(request: Request, fresh: Sequence[Message]) -> Request:
    """Return the request as it can be sent; if its new messages are long, a thread measures it."""
    if sum(message.chars for message in fresh) <= LONG_CHARS:
        return _sendable_request(request)
    return await asyncio.to_thread(_measured, request)


def _measured(request: Request) -> Request:
    """Return the request as it can be sent; its messages know their hashes and sizes."""
    request = _sendable_request(request)
    _ = request.digest(), request.bound_tokens
    return request


def _sendable_request(request: Request) -> Request:
    """Return the request with text that can be sent; nearly always the same object."""
    if all(map(_IS_SENDABLE, request.messages)):
        return request
    messages = tuple(map(_sendable_message, request.messages))
    return msgspec.structs.replace(request, messages=messages)


def _sendable_message(message: Message) -> Message:
    if isinstance(message.content, str):
        return msgspec.structs.replace(message, content=sendable(message.content))
    parts = [
        {**part, "text": sendable(part["text"])} if isinstance(part.get("text"), str) else part
        for part in message.content
    ]
    return msgspec.structs.replace(message, content=parts)
