"""The one paid-call path. Root steps, sub-calls, compaction, repair and map/reduce all pass here:

    reserve budget → look up (ReplyStore, cache) → schedule → send → commit → settle

Nothing is sent whose worst case does not fit, and no reply is used before it is committed. Places
and pauses are the scheduler's, the wire is in flights.py.
"""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from rlm.caching import ReplyCache
from rlm.errors import CallRefused, ModelError, UnknownPriceError
from rlm.events import CallEnded, CallRetried, CallStarted, ModelAsked, ModelReplied
from rlm.flights import Flight, Route, first_reply, give_back
from rlm.images import shown
from rlm.limits import NOTHING, Amount, Limits, Reservation, bound_tokens, picodollars
from rlm.messages import PICODOLLARS, Message, ModelInfo, Reply, Request, Usage
from rlm.protocols import ReplyStore
from rlm.scheduler import Scheduler
from rlm.scope import Scope
from rlm.text import sendable

__all__ = ["Calls", "MemoryStore", "Route", "Router"]

MAX_ATTEMPTS = 5
SMALLEST_OUTPUT_TOKENS = 256
"""A request whose output cap had to be cut below this is not worth its input."""

FREE = Usage(cost_usd=0.0)
"""What a reply from the cache used: nothing, and no request was made."""

Router = Callable[[str], Route]
Landed = list[tuple[Reservation, Reply]]
"""Replies and what was reserved for each. The first is used; all are paid."""


class MemoryStore:
    """A ReplyStore that lives as long as the process."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {}

    async def get(self, key: str, request: Request) -> Reply | None:
        return self.replies.get(key)

    async def put(self, key: str, request: Request, reply: Reply) -> None:
        self.replies[key] = reply


class _Wanted(Struct, gc=False):
    """A request with everything that stays the same through all its tries.

    `digest` and `number` name it among the requests of its run. `patient`: it may take all of
    `call_seconds`. `call_id` is None for the engine's own requests.
    """

    scope: Scope
    request: Request
    call_id: str | None
    deadline: float
    patient: bool
    digest: str = ""
    number: int = 0

    @property
    def key(self) -> str:
        """Run path + request hash + number among equals: the same on every execution of a run."""
        return f"{self.scope.path}/{self.digest}/{self.number}"


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
        store: ReplyStore | None = None,
        *,
        cache: ReplyCache | None = None,
        hedge_after_seconds: float | None = None,
    ) -> None:
        self.router = router
        self.scheduler = scheduler
        self.store = store
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
    ) -> Reply:
        """A request of the engine's own: a step, a final answer, a compaction, a repair."""
        fresh = request.messages if new_messages is None else request.messages[-new_messages:]
        scope.emit(
            ModelAsked,
            purpose=purpose,
            model=request.model,
            new_messages=fresh,
            message_count=len(request.messages),
            max_output_tokens=request.max_output_tokens,
        )
        outcome = await self._settled(scope, request, None, held)
        reply = outcome.reply or Reply(text="")
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
        call_id = scope.next_call_id()
        about = {"call_id": call_id, "kind": "llm", "model": request.model}
        scope.emit(CallStarted, **about, prompt=shown(request.messages[-1].content))
        outcome = await self._settled(scope, request, call_id)
        text = outcome.reply.text if outcome.reply else ""
        scope.emit(CallEnded, **about, reply=text, **outcome.facts())
        return outcome.unwrap()

    # -- the path ----------------------------------------------------------------------------

    async def _settled(
        self, scope: Scope, request: Request, call_id: str | None, held: Reservation | None = None
    ) -> _Outcome:
        """Follow one request to its end, through as many tries as it takes."""
        now = self.scheduler.clock
        started = now()
        wanted = self._wanted(scope, request, call_id, started, is_last=held is not None)
        attempt, failure = 0, None
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
                may_retry = error.retryable and attempt < MAX_ATTEMPTS
                if not may_retry or now() + wait >= wanted.deadline:
                    return _Outcome(None, error, None, now() - started, attempt - 1)
                held = None
                self._tell_retry(wanted, attempt, wait, error)
                await asyncio.sleep(wait)
            else:
                outcome.seconds, outcome.retries = now() - started, attempt
                return outcome

    def _wanted(
        self, scope: Scope, request: Request, call_id: str | None, now: float, *, is_last: bool
    ) -> _Wanted:
        """Clean a request, name it, and say until when it is worth waiting for."""
        budget = scope.budget
        patience = now + budget.limits.call_seconds
        deadline = budget.deadline if is_last else budget.work_deadline
        wanted = _Wanted(
            scope, _cleaned(request), call_id, min(patience, deadline), patience <= deadline
        )
        if self.store is not None or (self.cache is not None and self.cache.wants(request)):
            digest = hashlib.sha256(msgspec.json.encode(wanted.request)).hexdigest()
            wanted.digest, wanted.number = digest, scope.occurrence(digest)
        return wanted

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
            bills = [_bill(request, reply, route.info) for _, reply in landed]
        except BaseException as error:
            for each in this.reservations:
                give_back(each, error)
            raise
        for (each, _), (usage, used) in zip(landed, bills, strict=True):
            each.settle(used)
            scope.budget.note_usage(request.model, scope.depth, usage)
        total = bills[0][0]
        for usage, _ in bills[1:]:
            total += usage
        return _Outcome(landed[0][1], None, total, stored=stored)

    async def _reserve(
        self, scope: Scope, request: Request, held: Reservation | None, info: ModelInfo
    ) -> tuple[Request, Reservation]:
        """Reserve the worst case; if it can't fit, with as large an output cap as does fit."""
        while True:
            amount = worst_case(request, info)
            try:
                if held is not None:
                    return request, scope.budget.exchange(held, amount)
                return request, await scope.budget.reserve(amount)
            except CallRefused:
                smaller = _with_smaller_cap(request, info, scope.budget.room())
                if smaller is None:
                    raise
                request, held = smaller, None

    async def _obtain(self, this: _Try) -> tuple[Landed, bool]:
        """The stored reply, a cached one, or one from the wire; and whether it was there already.

        All but the first are committed to the store before anyone sees them.
        """
        if self.store is not None:
            known = await self.store.get(this.wanted.key, this.request)
            if known is not None:
                return [(this.reservations[0], known)], True
        key = None if self.cache is None else self._cache_key(this)
        if key is None:
            return await self._sent(this), False
        known = await self._known(this, key)
        if known is None:
            return await self._sent_for_all(this, key), False
        reply = msgspec.structs.replace(known, usage=FREE)
        await self._commit(this, reply)
        return [(this.reservations[0], reply)], True

    async def _sent(self, this: _Try) -> Landed:
        """Send a request, twice if the first takes too long; what came back is committed."""
        first = self._flight(this, this.reservations[0])
        if self.hedge_after_seconds is None or this.wanted.call_id is None:
            landed = [(first.reservation, await first.fly())]
        else:
            both = await first_reply(first, self.hedge_after_seconds, lambda: self._second(this))
            landed = [(flight.reservation, reply) for flight, reply in both]
        if self.store is not None:
            await self._commit(this, landed[0][1])
        return landed

    def _flight(self, this: _Try, reservation: Reservation) -> Flight:
        wanted = this.wanted
        return Flight(
            self.scheduler, this.route, this.request, reservation, wanted.deadline, wanted.patient
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

    async def _commit(self, this: _Try, reply: Reply) -> None:
        if self.store is not None:
            put = self.store.put(this.wanted.key, this.request, reply)
            await asyncio.shield(asyncio.ensure_future(put))

    # -- replies that serve twice ------------------------------------------------------------

    def _cache_key(self, this: _Try) -> bytes | None:
        if self.cache is None or this.route.identity is None or not self.cache.wants(this.request):
            return None
        on_the_wire = msgspec.structs.replace(this.request, model=this.route.wire_name)
        return self.cache.key(this.route.identity, on_the_wire, this.wanted.number)

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


def worst_case(request: Request, info: ModelInfo) -> Amount:
    """The most this request can cost."""
    input_tokens = bound_tokens(request.messages)
    input_tokens += sum(len(msgspec.json.encode(tool)) for tool in request.tools)
    output_tokens = request.max_output_tokens
    money = info.price.bound(input_tokens, output_tokens) if info.price else 0
    return Amount(tokens=input_tokens + output_tokens, picodollars=money)


def _with_smaller_cap(request: Request, info: ModelInfo, room: Amount) -> Request | None:
    """The same request with the largest output cap there is room for, if that is worth sending."""
    fixed = worst_case(msgspec.structs.replace(request, max_output_tokens=0), info)
    cap = room.tokens - fixed.tokens
    if info.price is not None:
        per_token = info.price.bound(fixed.tokens, 1) - info.price.bound(fixed.tokens, 0)
        left = room.picodollars - fixed.picodollars
        cap = min(cap, left // per_token if per_token else (cap if left >= 0 else 0))
    if not SMALLEST_OUTPUT_TOKENS <= cap < request.max_output_tokens:
        return None
    return msgspec.structs.replace(request, max_output_tokens=cap)


def _bill(request: Request, reply: Reply, info: ModelInfo) -> tuple[Usage, Amount]:
    """What a reply used. A provider that does not say is billed at the bound, never at nothing."""
    if reply.usage == FREE:
        return FREE, NOTHING
    usage = reply.usage or Usage(
        input_tokens=bound_tokens(request.messages),
        output_tokens=min(len(reply.text.encode()), request.max_output_tokens),
    )
    money = None if usage.cost_usd is None else picodollars(usage.cost_usd)
    if money is None and info.price is not None:
        money = info.price.cost(usage)
    cost_usd = None if money is None else money / PICODOLLARS
    usage = msgspec.structs.replace(usage, cost_usd=cost_usd, requests=1)
    return usage, Amount(tokens=usage.total_tokens, picodollars=money or 0)


def _cleaned(request: Request) -> Request:
    """The same request with text that can be sent; nearly always the very same."""
    for message in request.messages:
        if not (isinstance(message.content, str) and message.content.isascii()):
            messages = tuple(map(_cleaned_message, request.messages))
            return msgspec.structs.replace(request, messages=messages)
    return request


def _cleaned_message(message: Message) -> Message:
    if isinstance(message.content, str):
        return msgspec.structs.replace(message, content=sendable(message.content))
    parts = [
        {**part, "text": sendable(part["text"])} if isinstance(part.get("text"), str) else part
        for part in message.content
    ]
    return msgspec.structs.replace(message, content=parts)
