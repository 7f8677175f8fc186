"""The one paid-call path. Root steps, sub-calls, compaction, repair and map/reduce all pass here:

    recall (ReplyStore) → reserve budget → look up (cache) → schedule → send → commit → settle

What an earlier execution of the run has paid for is counted and used. Nothing is sent whose worst
case does not fit, and no reply is used before it is committed. Places and pauses are the
scheduler's, the wire is in flights.py.
"""

import asyncio
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct

from rlm._util.text import sendable
from rlm.calls.billing import FREE, bill, with_smaller_cap, worst_case
from rlm.calls.cache import ReplyCache
from rlm.calls.failures import error_of, failed
from rlm.calls.scheduler import Scheduler
from rlm.calls.scope import Scope
from rlm.calls.sending import Flight, Route, Telling, first_reply, give_back
from rlm.errors import CallRefused, ModelError, UnknownPriceError
from rlm.events import (
    MOST_PROMPT_CHARS,
    CallEnded,
    CallRetried,
    CallStarted,
    ModelAsked,
    ModelReplied,
)
from rlm.images import shown
from rlm.limits import NOTHING, Amount, Limits, Reservation, picodollars
from rlm.messages import Message, ModelInfo, Reply, ReplyKey, Request, Usage
from rlm.prompts.observation import cut

__all__ = ["Calls", "Route", "Router"]

_IS_SENDABLE = attrgetter("is_sendable")
Router = Callable[[str], Route]
Landed = list[tuple[Reservation, Reply]]
"""Replies and what was reserved for each. The first is used; all are paid."""


class _Wanted(Struct, gc=False):
    """A request with everything that stays the same through all its tries.

    `patient`: it may take all of `call_seconds`. `call_id` is None for the engine's own requests.
    `telling`: somebody hears the reply while it comes.
    """

    scope: Scope
    request: Request
    key: ReplyKey
    call_id: str | None
    deadline: float
    patient: bool
    telling: Telling | None = None

    @property
    def has_told(self) -> bool:
        """Whether a part of a reply was heard already: then there is no other try."""
        return self.telling is not None and self.telling.has_begun


class _Try(Struct, gc=False):
    """One of its tries: the request with the output cap there was room for, and what it holds."""

    wanted: _Wanted
    request: Request
    route: Route
    reservations: list[Reservation]


class _Outcome(Struct, gc=False):
    """How one request ended, with what an event says about it."""

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
    """The only way to a model. One per engine and event loop.

    `hedge_after_seconds`: a call that takes longer is sent a second time, and the first reply wins.
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
        self._asked: dict[bytes, asyncio.Future[Reply | None]] = {}

    def info(self, model: str) -> ModelInfo:
        return self.router(model).info

    def check_prices(self, models: tuple[str, ...], limits: Limits) -> None:
        """A money limit that can't be kept is an error at the start, not a surprise at the end."""
        if limits.max_cost_usd is None:
            return
        for model in models:
            if self.info(model).price is None:
                raise UnknownPriceError(
                    f"max_cost_usd is set, but the price of {model!r} is unknown: "
                    f"pass prices={{{model!r}: (input, output)}} in US dollars per million tokens, "
                    "or limit with max_tokens"
                )

    async def ask(
        self,
        scope: Scope,
        request: Request,
        *,
        purpose: str,
        new_messages: int | None = None,
        held: Reservation | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """A request of the engine's own: a step, a final answer, a compaction, a repair.

        `on_text` hears the reply while it comes, each piece once; see `Telling` about retries.
        """
        count = len(request.messages)
        fresh = request.messages[0 if new_messages is None else count - new_messages :]
        wanted = self._wanted(scope, request, purpose, is_last=held is not None)
        wanted.telling = None if on_text is None else Telling(on_text)
        scope.emit(
            ModelAsked,
            purpose=purpose,
            model=request.model,
            new_messages=fresh,
            message_count=count,
            max_output_tokens=request.max_output_tokens,
            digest=wanted.key.digest,
        )
        outcome = await self._settled(wanted, held)
        reply = outcome.reply or Reply(text="")
        if wanted.telling is not None:
            wanted.telling.finish(reply.text)
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

    async def call(self, scope: Scope, request: Request) -> Reply:
        """A call made by model-written code, or by map/reduce on its behalf.

        It is counted before anything else, so that code that goes on calling comes to an end.
        """
        scope.budget.count_call()
        wanted = self._wanted(scope, request, "llm")
        wanted.call_id = scope.call_id(wanted.key)
        about = {"call_id": wanted.call_id, "kind": "llm", "model": request.model}
        prompt = cut(shown(request.messages[-1].content), MOST_PROMPT_CHARS)
        scope.emit(CallStarted, **about, prompt=prompt)
        outcome = await self._settled(wanted)
        if outcome.error is not None and not outcome.stored:
            await scope.remember(wanted.key, failed(outcome.error))
        text = outcome.reply.text if outcome.reply else ""
        scope.emit(CallEnded, **about, reply=text, **outcome.facts())
        return outcome.unwrap()

    # -- the path ----------------------------------------------------------------------------

    async def _settled(self, wanted: _Wanted, held: Reservation | None = None) -> _Outcome:
        """Follow one request to its end, through as many tries as it takes."""
        if (known := await wanted.scope.recall(wanted.key, wanted.request)) is not None:
            return _recalled(wanted, known)
        if (salvaged := wanted.scope.salvage(wanted.key)) is not None:
            return await _served_again(wanted, salvaged)
        now = self.scheduler.clock
        started = now()
        attempt, failure = 0, None
        attempts = self.router(wanted.request.model).max_attempts
        while True:
            try:
                outcome = await self._attempt(wanted, held)
            except CallRefused as refusal:
                # No budget for another try: what went wrong is the first failure, not the refusal.
                return _Outcome(None, failure or refusal, None, now() - started, attempt)
            except ModelError as error:
                failure = error
                attempt += 1
                wait = self.scheduler.wait_before_retry(attempt, error)
                may_retry = error.retryable and attempt < attempts and not wanted.has_told
                if not may_retry or now() + wait >= wanted.deadline:
                    return _Outcome(None, error, None, now() - started, attempt - 1)
                held = None
                self._tell_retry(wanted, attempt, wait, error)
                await asyncio.sleep(wait)
            else:
                outcome.seconds, outcome.retries = now() - started, attempt
                return outcome

    def _wanted(
        self, scope: Scope, request: Request, kind: str, *, is_last: bool = False
    ) -> _Wanted:
        """Clean a request, name it, and say until when it is worth waiting for."""
        budget = scope.budget
        patience = self.scheduler.clock() + budget.limits.call_seconds
        deadline = budget.deadline if is_last else budget.work_deadline
        request = _cleaned(request)
        key = scope.key(kind, request.digest())
        return _Wanted(scope, request, key, None, min(patience, deadline), patience <= deadline)

    def _tell_retry(self, wanted: _Wanted, attempt: int, wait: float, error: ModelError) -> None:
        wanted.scope.emit(
            CallRetried,
            model=wanted.request.model,
            attempt=attempt,
            wait_seconds=wait,
            error=str(error),
            call_id=wanted.call_id,
        )

    async def _attempt(self, wanted: _Wanted, held: Reservation | None) -> _Outcome:
        """One try: whatever happens, its reservations end settled, kept or released."""
        scope, route = wanted.scope, self.router(wanted.request.model)
        request, reservation = await self._reserve(scope, wanted.request, held, route.info)
        this = _Try(wanted, request, route, [reservation])
        try:
            landed, stored = await self._obtain(this)
            bills = [bill(request, reply, route.info, each.amount) for each, reply in landed]
            total = bills[0][0]
            for usage, _ in bills[1:]:
                total += usage
            if scope.tree.store is not None:
                # With what it cost, so that a later execution counts what was really paid.
                reply = msgspec.structs.replace(landed[0][1], usage=total)
                await scope.remember(wanted.key, reply)
        except BaseException as error:
            for each in this.reservations:
                give_back(each, error)
            raise
        for (each, _), (usage, used) in zip(landed, bills, strict=True):
            each.settle(used)
            scope.budget.note_usage(request.model, scope.depth, usage)
        if wanted.call_id is None and not stored:
            scope.reported.note(request, landed[0][1].usage)
        scope.note(wanted.key, landed[0][1])
        return _Outcome(landed[0][1], None, total, stored=stored)

    async def _reserve(
        self, scope: Scope, request: Request, held: Reservation | None, info: ModelInfo
    ) -> tuple[Request, Reservation]:
        """Reserve the worst case; if it can't fit, with as large an output cap as does fit."""
        while True:
            amount = worst_case(request, info, scope.reported)
            try:
                if held is not None:
                    return request, scope.budget.exchange(held, amount)
                free = scope.budget.reserve_at_once(amount)
                return request, free or await scope.budget.reserve(amount)
            except CallRefused:
                room = scope.budget.room() + (NOTHING if held is None else held.amount)
                smaller = with_smaller_cap(request, info, room, scope.reported)
                if smaller is None:
                    raise
                request = smaller

    async def _obtain(self, this: _Try) -> tuple[Landed, bool]:
        """A cached reply, or one from the wire; and whether it was there already."""
        key = None if self.cache is None else self._cache_key(this)
        if key is None:
            return await self._sent(this), False
        known = await self._known(this, key)
        if known is None:
            return await self._sent_for_all(this, key), False
        reply = msgspec.structs.replace(known, usage=FREE)
        return [(this.reservations[0], reply)], True

    async def _sent(self, this: _Try) -> Landed:
        """Send a request, twice if the first takes too long."""
        first = self._flight(this, this.reservations[0])
        if self.hedge_after_seconds is None or this.wanted.call_id is None:
            return [(first.reservation, await first.fly())]
        both = await first_reply(first, self.hedge_after_seconds, lambda: self._second(this))
        return [(flight.reservation, reply) for flight, reply in both]

    def _flight(self, this: _Try, reservation: Reservation) -> Flight:
        wanted = this.wanted
        return Flight(
            self.scheduler,
            this.route,
            this.request,
            reservation,
            wanted.deadline,
            wanted.patient,
            telling=wanted.telling,
        )

    def _second(self, this: _Try) -> Flight | None:
        """The same request once more, if its whole worst case fits and a place is free."""
        budget, amount = this.wanted.scope.budget, this.reservations[0].amount
        try:
            reservation = budget.exchange(budget.hold(amount), amount)
        except CallRefused:
            return None
        flight = self._flight(this, reservation)
        if not flight.has_place():
            reservation.release()
            return None
        this.reservations.append(reservation)
        return flight

    # -- replies that serve twice ------------------------------------------------------------

    def _cache_key(self, this: _Try) -> bytes | None:
        if self.cache is None or this.route.identity is None:
            return None
        if not self.cache.wants(this.request, is_call=this.wanted.call_id is not None):
            return None
        on_the_wire = msgspec.structs.replace(this.request, model=this.route.wire_name)
        return self.cache.key(this.route.identity, on_the_wire, this.wanted.key.number)

    async def _known(self, this: _Try, key: bytes) -> Reply | None:
        """From the cache, or from an equal request of another run that is on its way."""
        assert self.cache is not None
        while (known := await self.cache.get(key)) is None and key in self._asked:
            seconds = this.wanted.deadline - self.scheduler.clock()
            done, _ = await asyncio.wait([self._asked[key]], timeout=max(0.0, seconds))
            if not done:
                raise ModelError(
                    f"{this.request.model}: an equal request of another run got no reply within "
                    "the time of this one (call_seconds, max_seconds)"
                )
            if (known := done.pop().result()) is not None:
                break
        return known

    async def _sent_for_all(self, this: _Try, key: bytes) -> Landed:
        """Send a request that others may wait for. If it fails, one of them takes over."""
        assert self.cache is not None
        self._asked[key] = asyncio.get_running_loop().create_future()
        reply = None
        try:
            landed = await self._sent(this)
            reply = landed[0][1]
            await self.cache.put(key, reply)
        finally:
            self._asked.pop(key).set_result(reply)
        return landed


def _recalled(wanted: _Wanted, known: Reply) -> _Outcome:
    """How it ended the first time; what was paid then is counted, and nothing is paid now."""
    if known.finish_reason == "failed":
        return _Outcome(None, error_of(known), stored=True)
    usage = known.usage or FREE
    wanted.scope.note(wanted.key, known)
    if wanted.call_id is None:
        wanted.scope.reported.note(wanted.request, known.usage)
    paid = Amount(tokens=usage.total_tokens, picodollars=picodollars(usage.cost_usd or 0))
    wanted.scope.budget.charge(paid)
    wanted.scope.budget.note_usage(wanted.request.model, wanted.scope.depth, usage)
    return _Outcome(known, None, usage, stored=True)


async def _served_again(wanted: _Wanted, reply: Reply) -> _Outcome:
    """What a lost cell was told; that was paid for, and counted, when it came."""
    reply = msgspec.structs.replace(reply, usage=FREE)
    wanted.scope.note(wanted.key, reply)
    await wanted.scope.remember(wanted.key, reply)
    return _Outcome(reply, None, FREE, stored=True)


def _cleaned(request: Request) -> Request:
    """The same request with text that can be sent; nearly always the very same."""
    if all(map(_IS_SENDABLE, request.messages)):
        return request
    messages = tuple(map(_cleaned_message, request.messages))
    return msgspec.structs.replace(request, messages=messages)


def _cleaned_message(message: Message) -> Message:
    if isinstance(message.content, str):
        return msgspec.structs.replace(message, content=sendable(message.content))
    parts = [
        {**part, "text": sendable(part["text"])} if isinstance(part.get("text"), str) else part
        for part in message.content
    ]
    return msgspec.structs.replace(message, content=parts)
