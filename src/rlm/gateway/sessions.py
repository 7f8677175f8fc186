"""A client's session: its handles, and how much it may still use.

A handle is a random name for a file, valid only in its session and for its principal.
"""

import math
import secrets
import time
from collections.abc import Callable, Sequence

from msgspec import Struct, structs

from rlm._util.text import all_used
from rlm.gateway.errors import BudgetSpent, Refused
from rlm.gateway.paths import Root

__all__ = ["Ceilings", "GatewaySession", "Handle", "Sessions"]

MAX_SESSIONS = 1_000
MAX_SESSIONS_EACH = 100
MAX_HANDLES = 200_000
_ID_BYTES = 16
_HANDLE_BYTES = 9


class Ceilings(Struct, frozen=True, kw_only=True):
    """What one session may use; the operator sets it, and a client can only lower it.

    `run_files` and `run_bytes` limit what one run, or one piece of code, may work on.
    """

    calls: int = 5_000
    bytes: int = 20_000_000
    seconds: float = 8 * 3_600.0
    idle_seconds: float = 3_600.0
    runs: int = 50
    cost_usd: float | None = None
    run_files: int = 1_000
    run_bytes: int = 50_000_000

    def narrowed(self, wanted: dict[str, float]) -> "Ceilings":
        """Return these ceilings, lowered where the client wants less."""
        changes = {}
        for name, value in wanted.items():
            ceiling = getattr(self, name, None)
            if name not in self.__struct_fields__ or value is None:
                raise Refused(
                    f"there is no limit {name!r}; choose one of {', '.join(self.__struct_fields__)}"
                )
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise Refused(f"the limit {name!r} must be a number, not {value!r}")
            if ceiling is None or value < ceiling:
                changes[name] = int(value) if isinstance(ceiling, int) else value
        return structs.replace(self, **changes)


class Handle(Struct, frozen=True):
    """A file by its path below a root, whatever its current content."""

    id: str
    root: Root
    parts: tuple[str, ...]


class GatewaySession:
    """One client's work. Everything is counted here before it is delivered."""

    def __init__(
        self, principal: str, roots: Sequence[Root], ceilings: Ceilings, now: float
    ) -> None:
        self.id = f"s_{secrets.token_urlsafe(_ID_BYTES)}"
        self.principal = principal
        self.roots = {root.name: root for root in roots}
        self.ceilings = ceilings
        self.started = self.used_at = now
        self.calls = self.bytes = self.runs = 0
        self.cost_usd = self.held_usd = 0.0
        self.is_closed = False
        self._handles: dict[str, Handle] = {}
        self._ids: dict[tuple[str, tuple[str, ...]], str] = {}

    def handle_for(self, root: Root, parts: tuple[str, ...]) -> str:
        """Return the handle of a file; the same file always gets the same handle."""
        known = self._ids.get((root.name, parts))
        if known is None:
            if len(self._ids) >= MAX_HANDLES:
                raise Refused("this session has too many handles; close it and open another")
            known = f"h_{secrets.token_urlsafe(_HANDLE_BYTES)}"
            self._ids[root.name, parts] = known
            self._handles[known] = Handle(known, root, parts)
        return known

    def handle(self, handle_id: str) -> Handle:
        found = self._handles.get(handle_id)
        if found is None:
            raise Refused("this session has no such handle; get one with rlm_list or rlm_open")
        return found

    def count_call(self, now: float) -> None:
        """Count a request; raise BudgetSpent if it is one too many, or too late."""
        if now - self.started >= self.ceilings.seconds:
            raise BudgetSpent("the time of this session is up; open another")
        if self.calls >= self.ceilings.calls:
            raise BudgetSpent(f"{all_used(self.ceilings.calls, 'call')} in this session")
        self.calls += 1
        self.used_at = now

    def count_bytes(self, number: int) -> None:
        """Count bytes of files before they are shown."""
        if self.bytes + number > self.ceilings.bytes:
            raise BudgetSpent(f"this session has {self.bytes_left:,} bytes left, not {number:,}")
        self.bytes += number

    def count_run(self) -> None:
        if self.runs >= self.ceilings.runs:
            raise BudgetSpent(f"{all_used(self.ceilings.runs, 'run')} in this session")
        self.runs += 1

    def hold_money(self) -> float | None:
        """Reserve all remaining money for a run; return None if there is no limit."""
        if self.ceilings.cost_usd is None:
            return None
        left = self.ceilings.cost_usd - self.cost_usd - self.held_usd
        if left <= 0:
            raise BudgetSpent(
                "the budget of this session is spent, or reserved by a run in progress"
            )
        self.held_usd += left
        return left

    def settle_money(self, held: float | None, spent: float) -> None:
        """Release what a run did not spend; `spent` includes what may have been billed."""
        self.held_usd = max(0.0, self.held_usd - (held or 0.0))
        self.cost_usd += spent

    @property
    def bytes_left(self) -> int:
        return self.ceilings.bytes - self.bytes

    def left(self, now: float) -> dict[str, float | None]:
        """Return what is left, for the answer to every request."""
        limit = self.ceilings.cost_usd
        return {
            "calls": self.ceilings.calls - self.calls,
            "bytes": self.bytes_left,
            "seconds": max(0, math.ceil(self.ceilings.seconds - (now - self.started))),
            "runs": self.ceilings.runs - self.runs,
            "cost_usd": None if limit is None else max(0.0, limit - self.cost_usd),
        }

    def is_over(self, now: float) -> bool:
        idle = now - self.used_at >= self.ceilings.idle_seconds
        return idle or now - self.started >= self.ceilings.seconds


class Sessions:
    """All sessions of a gateway. Idle sessions end on their own."""

    def __init__(
        self,
        roots: Sequence[Root],
        ceilings: Ceilings,
        clock: Callable[[], float] = time.monotonic,
        on_end: "Callable[[GatewaySession], None]" = lambda _session: None,
    ) -> None:
        self._roots = {root.name: root for root in roots}
        self._ceilings = ceilings
        self.clock = clock
        self._on_end = on_end
        self._sessions: dict[str, GatewaySession] = {}

    def open(
        self, principal: str, roots: Sequence[str] | None, limits: dict[str, float]
    ) -> GatewaySession:
        """Open a session over some of the roots, or all; `limits` can only lower ours."""
        self.end_old()
        own = sum(each.principal == principal for each in self._sessions.values())
        if len(self._sessions) >= MAX_SESSIONS or own >= MAX_SESSIONS_EACH:
            raise Refused("too many sessions are open; close one, or try again later")
        chosen = [self._root(name) for name in (self._roots if roots is None else roots)]
        session = GatewaySession(principal, chosen, self._ceilings.narrowed(limits), self.clock())
        self._sessions[session.id] = session
        return session

    def get(self, session_id: str, principal: str) -> GatewaySession:
        """Return one of a principal's own sessions; to it, the sessions of others do not exist."""
        self.end_old()
        found = self._sessions.get(session_id)
        if found is None or found.principal != principal:
            raise Refused("this session is unknown, or has ended; open one with rlm_session_create")
        return found

    def close(self, session: GatewaySession) -> None:
        if self._sessions.pop(session.id, None) is not None:
            session.is_closed = True
            self._on_end(session)

    def _root(self, name: str) -> Root:
        if name not in self._roots:
            raise Refused(f"there is no root {name!r}; roots: {', '.join(self._roots)}")
        return self._roots[name]

    def end_old(self) -> None:
        """Close the sessions that are too old or have been idle too long."""
        now = self.clock()
        for session in [each for each in self._sessions.values() if each.is_over(now)]:
            self.close(session)
