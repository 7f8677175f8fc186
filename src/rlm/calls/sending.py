"""Send one request to a server and wait for its reply, or let two attempts race for one reply.

Whatever happens to an attempt, its slot is freed. The caller ends its reservation: it is settled if
there is a reply, released if nothing was billed, and kept if something may have been billed.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterable
from contextlib import aclosing, nullcontext

import msgspec
from msgspec import Struct

from rlm._util.own_exits import is_failure, named
from rlm.calls.billing import checked_usage, stated_tokens
from rlm.calls.scheduler import Scheduler, Slot, TimeLimit
from rlm.errors import CallRefused, ConfigError, ModelError
from rlm.limits import Reservation
from rlm.messages import ModelInfo, Reply, ReplyKey, Request
from rlm.protocols import CALL_KEY, MAX_ATTEMPTS, Client

__all__ = ["ReplyStream", "Route", "WireAttempt", "end_reservation", "first_reply"]


class Route(Struct, frozen=True):
    """The way to one model: its client, its name on the wire, and what is known about it.

    `identity` distinguishes this server from all others, also in later processes; None if that is
    impossible. Rate limits may be given under any of `names`. A request is sent at most
    `max_attempts` times, and each reply is awaited for at most `timeout_seconds`.
    """

    client: Client
    wire_name: str
    info: ModelInfo
    identity: str | None = None
    names: tuple[str, ...] = ()
    max_attempts: int = MAX_ATTEMPTS
    timeout_seconds: float | None = None

    def goes_by(self, name: str) -> bool:
        """Whether a name means this model: in full, or without its provider."""
        full = (self.wire_name, *(each for each in self.names if "/" in each))
        return any(each == name or each.endswith(f"/{name}") for each in full)

    @property
    def lane(self) -> Hashable:
        """Models of one server share a lane; a client without an identity has its own."""
        return self.identity or id(self.client)


class ReplyStream:
    """A stream that passes on the text of a reply piece by piece while it arrives.

    A piece can't be taken back, so an attempt that fails after its first piece is not repeated.
    The pieces together are the text of the reply, unless a server sends a text that
    differs from its stream.
    """

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        self._sent: list[str] = []

    @property
    def has_begun(self) -> bool:
        return bool(self._sent)

    def restart(self) -> None:
        """Note that the request is sent again, because it failed before the first piece."""

    def send(self, piece: str) -> None:
        if piece:
            self._sent.append(piece)
            self._on_text(piece)

    def finish(self, text: str) -> None:
        """Send the rest of the whole text: all of it, if the reply comes from a store."""
        sent = "".join(self._sent)
        if text.startswith(sent):
            self.send(text[len(sent) :])


class WireAttempt(Struct, gc=False):
    """One attempt to get a reply from a server.

    `patient`: it has all of `call_seconds`, so a timeout means trouble on the server. Clients can
    see the `key` as `current_call()`.
    """

    scheduler: Scheduler
    route: Route
    request: Request
    reservation: Reservation
    deadline: float
    patient: bool
    slot: Slot | None = None
    stream: ReplyStream | None = None
    key: ReplyKey | None = None

    def take_slot(self) -> bool:
        """Take a slot if one is free; return whether there was one."""
        route, tokens = self.route, self.reservation.amount.tokens
        self.slot = self.scheduler.free_slot(route.lane, names=route.names, tokens=tokens)
        return self.slot is not None

    def wait_for_slot(self) -> Awaitable[Slot]:
        return self.scheduler.slot(
            self.route.lane,
            self.request.model,
            names=self.route.names,
            tokens=self.reservation.amount.tokens,
            deadline=self.deadline,
        )

    async def send(self) -> Reply:
        """Wait for a slot, send the request, and report the outcome to the scheduler."""
        if self.slot is None and not self.take_slot():
            self.slot = await self.wait_for_slot()
        slot = self.slot
        assert slot is not None
        self.reservation.sent = True
        try:
            reply = await self._exchange()
        except ModelError as error:
            slot.failed(error)
            raise
        except BaseException:
            slot.abandoned()
            raise
        slot.succeeded(stated_tokens(self.request, reply) if slot.charges else None)
        return reply

    async def _exchange(self) -> Reply:
        """Ask the client. Whatever it raises becomes a ModelError."""
        route, model = self.route, self.request.model
        now, patience = self.scheduler.clock(), route.timeout_seconds
        if self.deadline <= now:
            raise ModelError(f"no time left to ask {model} (call_seconds, max_seconds)")
        own = patience is not None and now + patience < self.deadline
        deadline = now + patience if patience is not None and own else self.deadline
        seconds = deadline - now
        wire_request, task = self.request, asyncio.current_task()
        if wire_request.model != route.wire_name:
            wire_request = msgspec.structs.replace(wire_request, model=route.wire_name)
        try:
            with TimeLimit(self.scheduler.deadlines, deadline):
                token = CALL_KEY.set(self.key)
                try:
                    reply = await self._reply(wire_request, seconds)
                finally:
                    CALL_KEY.reset(token)
            return _checked(reply)
        except ModelError as error:
            error.timed_out = error.timed_out and (self.patient or own)
            raise
        except ConfigError:
            raise
        except TimeoutError as error:
            why = "its client's timeout" if own else "call_seconds, max_seconds"
            raise ModelError(
                f"{model} did not answer within {seconds:.3g} s ({why})",
                retryable=own,
                ambiguous=True,
                timed_out=self.patient or own,
            ) from error
        except BaseException as error:  # the plugin boundary: clients are replaceable
            if not is_failure(error, task):
                raise
            why = f"the client of {model} failed: {named(error)}"
            raise ModelError(why, ambiguous=True) from error

    async def _reply(self, request: Request, seconds: float) -> Reply:
        """Return the whole reply; with a stream, pass on its text while it arrives."""
        client, listener = self.route.client, self.stream
        if listener is None:
            return await client.complete(request, timeout_seconds=seconds)
        whole: Reply | None = None
        stream = client.stream(request, timeout_seconds=seconds)
        async with aclosing(stream) if isinstance(stream, AsyncGenerator) else nullcontext():
            async for part in stream:
                if isinstance(part, Reply):
                    whole = part
                else:
                    listener.send(part)
        if whole is None:
            raise TypeError("its stream ended without a Reply")
        return whole


def _checked(reply: object) -> Reply:
    """Return what a client returned; clients are plugins, so it may be anything."""
    if not isinstance(reply, Reply):
        raise TypeError(f"it returned {type(reply).__name__}, not a Reply")
    if not isinstance(reply.text, str):
        raise TypeError(f"the text of its Reply is {type(reply.text).__name__}, not str")
    if (usage := checked_usage(reply.usage)) is not reply.usage:
        return msgspec.structs.replace(reply, usage=usage)
    return reply


def end_reservation(reservation: Reservation, error: BaseException) -> None:
    """End the reservation of a request that failed: keep it if the request may be billed.

    A provider may bill a request that was cancelled on the wire.
    """
    if isinstance(error, ModelError):
        billed = error.ambiguous
    else:
        refused = isinstance(error, ConfigError | CallRefused)  # raised before it was sent
        billed = reservation.sent and not refused
    reservation.keep() if billed else reservation.release()


async def first_reply(
    first: WireAttempt, patience_seconds: float, second: Callable[[], WireAttempt | None]
) -> list[tuple[WireAttempt, Reply]]:
    """Send a second attempt if the first takes too long; when one succeeds, cancel the other.

    `second` is called every `patience_seconds` until it returns an attempt. The list holds every
    attempt that got a reply, because all of them must be paid for.
    """
    if not first.take_slot():
        first.slot = await first.wait_for_slot()
    attempts = {asyncio.create_task(first.send()): first}
    try:
        while (
            len(attempts) == 1 and not (await asyncio.wait(attempts, timeout=patience_seconds))[0]
        ):
            if (another := second()) is not None:
                attempts[asyncio.create_task(another.send())] = another
        await _until_one_succeeds(set(attempts))
        await _cancel(attempts)
    except BaseException:
        await _cancel(attempts)
        raise
    failures = {task: _failure(task) for task in attempts}
    for task, failure in failures.items():
        if failure is not None:
            end_reservation(attempts[task].reservation, failure)
    succeeded = [task for task in attempts if failures[task] is None]
    if not succeeded:
        next(iter(attempts)).result()  # raises the failure of the first attempt
    return [(attempts[task], task.result()) for task in succeeded]


async def _until_one_succeeds(pending: set[asyncio.Task[Reply]]) -> None:
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if any(_failure(task) is None for task in done):
            return


async def _cancel(tasks: Iterable[asyncio.Task[Reply]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _failure(task: asyncio.Task[Reply]) -> BaseException | None:
    """The error that ended a task; None if it succeeded or is still running."""
    if not task.done():
        return None
    return asyncio.CancelledError() if task.cancelled() else task.exception()
