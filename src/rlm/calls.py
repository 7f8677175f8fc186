"""The one paid-call path. Root steps, sub-calls, compaction, repair and map/reduce all pass here:

    reserve budget → look up the ReplyStore → schedule → send → commit to the store → settle

Nothing is sent whose worst case does not fit, and no reply is used before it is committed.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from rlm.errors import CallRefused, ConfigError, ModelError, UnknownPriceError
from rlm.events import CallEnded, CallStarted, ModelAsked, ModelReplied
from rlm.limits import Amount, Limits, Reservation, bound_tokens, picodollars
from rlm.messages import PICODOLLARS, Message, ModelInfo, Reply, Request, Usage
from rlm.protocols import Client, ReplyStore
from rlm.scheduler import Scheduler
from rlm.scope import Scope
from rlm.text import sendable

__all__ = ["Calls", "MemoryStore", "Route", "Router"]

MAX_ATTEMPTS = 5
SMALLEST_OUTPUT_TOKENS = 256
"""A request whose output cap had to be cut below this is not worth its input."""


class Route(Struct, frozen=True):
    """The way to one model: its client, its name on the wire, and what is known about it."""

    client: Client
    wire_name: str
    info: ModelInfo


Router = Callable[[str], Route]


class MemoryStore:
    """A ReplyStore that lives as long as the process."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {}

    async def get(self, key: str, request: Request) -> Reply | None:
        return self.replies.get(key)

    async def put(self, key: str, request: Request, reply: Reply) -> None:
        self.replies[key] = reply


class _Outcome(Struct, frozen=True):
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
    """The only way to a model. One per engine and event loop."""

    def __init__(
        self, router: Router, scheduler: Scheduler, store: ReplyStore | None = None
    ) -> None:
        self.router = router
        self.scheduler = scheduler
        self.store = store

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
        outcome = await self._settled(scope, request, held)
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
        scope.emit(CallStarted, **about, prompt=str(request.messages[-1].content))
        outcome = await self._settled(scope, request)
        text = outcome.reply.text if outcome.reply else ""
        scope.emit(CallEnded, **about, reply=text, **outcome.facts())
        return outcome.unwrap()

    # -- the path ----------------------------------------------------------------------------

    async def _settled(
        self, scope: Scope, request: Request, held: Reservation | None = None
    ) -> _Outcome:
        """Follow one request to its end, through as many tries as it takes."""
        started = time.monotonic()
        budget = scope.budget
        give_up = started + budget.limits.call_seconds
        give_up = min(give_up, budget.work_deadline if held is None else budget.deadline)
        request = _cleaned(request)
        key = self._key(scope, request)
        attempt, failure = 0, None
        while True:
            try:
                outcome = await self._attempt(scope, request, held, key, give_up)
            except CallRefused as refusal:
                # No budget for another try: what went wrong is the first failure, not the refusal.
                reason = failure or refusal
                return _Outcome(None, reason, None, time.monotonic() - started, attempt)
            except ModelError as error:
                failure = error
                attempt += 1
                wait = self.scheduler.wait_before_retry(attempt, error)
                may_retry = error.retryable and attempt < MAX_ATTEMPTS
                if not may_retry or time.monotonic() + wait >= give_up:
                    return _Outcome(None, error, None, time.monotonic() - started, attempt - 1)
                held = None
                await asyncio.sleep(wait)
            else:
                seconds = time.monotonic() - started
                return msgspec.structs.replace(outcome, seconds=seconds, retries=attempt)

    async def _attempt(
        self,
        scope: Scope,
        request: Request,
        held: Reservation | None,
        key: str,
        give_up: float,
    ) -> _Outcome:
        """One try: whatever happens, its reservation ends settled, kept or released."""
        route = self.router(request.model)
        request, reservation = await self._reserve(scope, request, held, route.info)
        try:
            reply, stored = await self._obtain(request, key, route, reservation, give_up)
            usage, used = _bill(request, reply, route.info)
        except ModelError as error:
            reservation.keep() if error.ambiguous else reservation.release()
            raise
        except ConfigError:  # found out before anything was sent
            reservation.release()
            raise
        except BaseException:  # cancelled: once on the wire, the provider may bill it
            reservation.keep() if reservation.sent else reservation.release()
            raise
        reservation.settle(used)
        scope.budget.note_usage(request.model, scope.depth, usage)
        return _Outcome(reply, None, usage, stored=stored)

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

    async def _obtain(
        self, request: Request, key: str, route: Route, reservation: Reservation, give_up: float
    ) -> tuple[Reply, bool]:
        """The stored reply, or one from the wire that is committed before anyone sees it."""
        if self.store is not None:
            known = await self.store.get(key, request)
            if known is not None:
                return known, True
        async with self.scheduler.place():
            reservation.sent = True
            reply = await _send(request, route, give_up - time.monotonic())
        if self.store is not None:
            await asyncio.shield(asyncio.ensure_future(self.store.put(key, request, reply)))
        return reply, False

    def _key(self, scope: Scope, request: Request) -> str:
        """Run path + request hash + number among equals: the same on every execution of a run."""
        if self.store is None:
            return ""
        digest = hashlib.sha256(msgspec.json.encode(request)).hexdigest()
        return f"{scope.path}/{digest}/{scope.occurrence(digest)}"


async def _send(request: Request, route: Route, seconds: float) -> Reply:
    """One attempt on the wire. Whatever a client raises leaves here as a ModelError."""
    if seconds <= 0:
        raise ModelError(f"no time is left to ask {request.model} (call_seconds, max_seconds)")
    wire_request = msgspec.structs.replace(request, model=route.wire_name)
    try:
        async with asyncio.timeout(seconds):
            reply = await route.client.complete(wire_request, timeout_seconds=seconds)
        if not isinstance(reply, Reply):
            raise TypeError(f"it returned {type(reply).__name__}, not a Reply")
        return reply
    except (ModelError, ConfigError):
        raise
    except TimeoutError as error:
        raise ModelError(
            f"{request.model} did not answer within {seconds:.0f} s (call_seconds, max_seconds)",
            ambiguous=True,
        ) from error
    except Exception as error:  # the plugin border: clients are replaceable
        raise ModelError(
            f"the client of {request.model} failed: {type(error).__name__}: {error}", ambiguous=True
        ) from error


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
    messages = tuple(_cleaned_message(message) for message in request.messages)
    return msgspec.structs.replace(request, messages=messages)


def _cleaned_message(message: Message) -> Message:
    if not isinstance(message.content, str):
        return message
    content = sendable(message.content)
    if content is message.content:
        return message
    return msgspec.structs.replace(message, content=content)
