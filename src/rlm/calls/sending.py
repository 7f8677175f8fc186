"""One request on its way to a server and back, or two that race for one reply.

Whatever happens to a flight, its place is freed. Its reservation is ended by who sent it: settled
if there is a reply, released if nothing was billed, kept if something may have been.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterable
from contextlib import aclosing, nullcontext

import msgspec
from msgspec import Struct

from rlm.calls.pacing import TimeLimit
from rlm.calls.scheduler import Place, Scheduler
from rlm.errors import CallRefused, ConfigError, ModelError
from rlm.limits import Reservation
from rlm.messages import ModelInfo, Reply, Request
from rlm.protocols import Client

__all__ = ["Flight", "Route", "Telling", "first_reply"]

MAX_ATTEMPTS = 5


class Route(Struct, frozen=True):
    """The way to one model: its client, its name on the wire, and what is known about it.

    `identity` tells this server from every other one, also in later processes; None if that can't
    be said. `names` are those under which a rate limit may be given. `max_attempts` is how often
    a request is tried at most.
    """

    client: Client
    wire_name: str
    info: ModelInfo
    identity: str | None = None
    names: tuple[str, ...] = ()
    max_attempts: int = MAX_ATTEMPTS

    @property
    def lane(self) -> Hashable:
        """Models of one server share a lane; a client that nobody knows has one of its own."""
        return self.identity or id(self.client)


class Telling:
    """Pieces of a reply for somebody who wants to hear it while it comes.

    What was told can't be taken back: a try that fails after its first piece is the last one. The
    pieces together are the text of the reply, unless a server sends a text that is not its stream.
    """

    def __init__(self, hear: Callable[[str], None]) -> None:
        self._hear = hear
        self._told: list[str] = []

    @property
    def has_begun(self) -> bool:
        return bool(self._told)

    def tell(self, piece: str) -> None:
        if piece:
            self._told.append(piece)
            self._hear(piece)

    def finish(self, text: str) -> None:
        """What is left of the whole: all of it, if it comes from a store."""
        told = "".join(self._told)
        if text.startswith(told):
            self.tell(text[len(told) :])


class Flight(Struct, gc=False):
    """One try on the wire.

    `patient`: it has all of `call_seconds`, so a time-out means that the server has trouble.
    """

    scheduler: Scheduler
    route: Route
    request: Request
    reservation: Reservation
    deadline: float
    patient: bool
    place: Place | None = None
    telling: Telling | None = None

    def has_place(self) -> bool:
        """Take a place, if one is free."""
        route, tokens = self.route, self.reservation.amount.tokens
        self.place = self.scheduler.free_place(route.lane, names=route.names, tokens=tokens)
        return self.place is not None

    def boarding(self) -> Awaitable[Place]:
        """Wait for a place."""
        return self.scheduler.place(
            self.route.lane,
            self.request.model,
            names=self.route.names,
            tokens=self.reservation.amount.tokens,
            deadline=self.deadline,
        )

    async def fly(self) -> Reply:
        """Send the request, once there is a place, and tell the scheduler what came of it."""
        if self.place is None and not self.has_place():
            self.place = await self.boarding()
        place = self.place
        assert place is not None
        self.reservation.sent = True
        try:
            reply = await self._send()
        except ModelError as error:
            place.failed(error)
            raise
        except BaseException:
            place.abandoned()
            raise
        place.succeeded(None if reply.usage is None else reply.usage.total_tokens)
        return reply

    async def _send(self) -> Reply:
        """One attempt on the wire. Whatever a client raises leaves here as a ModelError."""
        route, model = self.route, self.request.model
        seconds = self.deadline - self.scheduler.clock()
        if seconds <= 0:
            raise ModelError(f"no time is left to ask {model} (call_seconds, max_seconds)")
        wire_request = msgspec.structs.replace(self.request, model=route.wire_name)
        try:
            with TimeLimit(self.scheduler.deadlines, self.deadline):
                reply = await self._answer(wire_request, seconds)
            if not isinstance(reply, Reply):
                raise TypeError(f"it returned {type(reply).__name__}, not a Reply")
            return reply
        except ModelError as error:
            error.timed_out = error.timed_out and self.patient
            raise
        except ConfigError:
            raise
        except TimeoutError as error:
            raise ModelError(
                f"{model} did not answer within {seconds:.0f} s (call_seconds, max_seconds)",
                ambiguous=True,
                timed_out=self.patient,
            ) from error
        except Exception as error:  # the plugin border: clients are replaceable
            raise ModelError(
                f"the client of {model} failed: {type(error).__name__}: {error}", ambiguous=True
            ) from error

    async def _answer(self, request: Request, seconds: float) -> Reply:
        """The whole reply; where somebody listens, its text is told while it comes."""
        client, telling = self.route.client, self.telling
        if telling is None:
            return await client.complete(request, timeout_seconds=seconds)
        whole: Reply | None = None
        stream = client.stream(request, timeout_seconds=seconds)
        async with aclosing(stream) if isinstance(stream, AsyncGenerator) else nullcontext():
            async for part in stream:
                if isinstance(part, Reply):
                    whole = part
                else:
                    telling.tell(part)
        if whole is None:
            raise TypeError("its stream ended without a Reply")
        return whole


def give_back(reservation: Reservation, error: BaseException) -> None:
    """End the reservation of a request that came to nothing: kept if it may have been billed.

    Once on the wire, the provider may bill what was cancelled.
    """
    if isinstance(error, ModelError):
        billed = error.ambiguous
    else:
        refused = isinstance(error, ConfigError | CallRefused)  # found out before it was sent
        billed = reservation.sent and not refused
    reservation.keep() if billed else reservation.release()


async def first_reply(
    first: Flight, patience_seconds: float, second: Callable[[], Flight | None]
) -> list[tuple[Flight, Reply]]:
    """Send a second flight if the first takes too long; when one lands, the other is cancelled.

    `second` is asked again and again until there is room for one. Every flight that landed is in
    the list, because all of them have to be paid.
    """
    if not first.has_place():
        first.place = await first.boarding()
    flights = {asyncio.create_task(first.fly()): first}
    try:
        while len(flights) == 1 and not (await asyncio.wait(flights, timeout=patience_seconds))[0]:
            if (spare := second()) is not None:
                flights[asyncio.create_task(spare.fly())] = spare
        await _until_one_landed(set(flights))
        await _cancel(flights)
    except BaseException:
        await _cancel(flights)
        raise
    failures = {task: _failure(task) for task in flights}
    for task, failure in failures.items():
        if failure is not None:
            give_back(flights[task].reservation, failure)
    landed = [(flight, task) for task, flight in flights.items() if failures[task] is None]
    if not landed:
        next(iter(flights)).result()  # raises what the first flight met with
    return [(flight, task.result()) for flight, task in landed]


async def _until_one_landed(flying: set[asyncio.Task[Reply]]) -> None:
    while flying:
        done, flying = await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
        if any(_failure(task) is None for task in done):
            return


async def _cancel(tasks: Iterable[asyncio.Task[Reply]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _failure(task: asyncio.Task[Reply]) -> BaseException | None:
    """What a flight that is over met with; None if it landed, or if it is not over."""
    if not task.done():
        return None
    return asyncio.CancelledError() if task.cancelled() else task.exception()
