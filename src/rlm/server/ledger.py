"""What every token has used of its budget, on disk, so that a restart forgets nothing.

What a run may use is reserved before it starts, so that concurrent runs can't exceed the budget
together; afterwards, what it used is counted instead. Every hold has its own id and belongs to
one request: no other request, not even one that names the same run, can release it. What a killed
server leaves reserved counts as used, except for background runs: they continue, and are counted
when they end.
"""

import secrets
import sqlite3
import time
from pathlib import Path

from msgspec import Struct

from rlm._util.transactions import transaction
from rlm.limits import NOTHING, Amount, picodollars
from rlm.messages import PICODOLLARS
from rlm.server.errors import too_many
from rlm.server.tokens import Token

__all__ = ["Grant", "Ledger"]

DAY_SECONDS = 86_400
_TABLES = """
create table if not exists spent (token text, period text, tokens integer, money integer,
    primary key (token, period));
create table if not exists holds (id text primary key, server text, token text, run text,
    period text, tokens integer, money integer, background integer);
create index if not exists holds_of_token on holds (token, period);
create table if not exists counted (token text, run text, tokens integer, money integer,
    primary key (token, run));
"""


class Grant(Struct, frozen=True):
    """What one run may use; None if the budget sets no limit. Money is in picodollars.

    `identity` names this hold and no other. `run` is None for a run that can't be continued.
    """

    identity: str
    run: str | None
    token: str
    period: str
    tokens: int | None
    money: int | None
    counted: Amount = NOTHING
    """What a run that continues has used already: its limits cover all of it."""

    @property
    def max_tokens(self) -> int | None:
        return None if self.tokens is None else self.tokens + self.counted.tokens

    @property
    def max_cost_usd(self) -> float | None:
        if self.money is None:
            return None
        return (self.money + self.counted.picodollars) / PICODOLLARS


class Ledger:
    """One SQLite file, used by one server at a time.

    Sums are whole numbers, so they don't drift.
    """

    def __init__(self, path: Path) -> None:
        self._server = secrets.token_hex(8)
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("pragma journal_mode = wal")
        self._database.execute("pragma synchronous = normal")
        self._database.executescript(_TABLES)
        with transaction(self._database):
            self._count_left("background = 0")

    def close(self) -> None:
        self._database.close()

    def hold(
        self,
        token: Token,
        run: str | None,
        wanted: Amount | None,
        *,
        background: bool = False,
        continues: bool = False,
    ) -> Grant | None:
        """Reserve what a run wants, or as much as is left; raise ApiError if nothing is.

        Returns None for a token without a budget. `wanted=None` takes all that is left. A run that
        `continues` replaces what an earlier server held for it, and is not charged again for what
        was counted.
        """
        if run is None and not token.has_budget:
            return None
        period = _period(token)
        with transaction(self._database):
            self._forget(token.name, run, continues=continues)
            if not token.has_budget:
                return None
            used = self._used(token.name, period)
            max_money = None if token.max_cost_usd is None else picodollars(token.max_cost_usd)
            if _is_used_up(token.max_tokens, used.tokens) or _is_used_up(
                max_money, used.picodollars
            ):
                raise _exhausted(token, self._is_held(token.name))
            counted = self._counted(token.name, run)
            most = None if wanted is None else max(0, wanted.tokens - counted.tokens)
            tokens = _part(token.max_tokens, used.tokens, most)
            most = None if wanted is None else max(0, wanted.picodollars - counted.picodollars)
            money = _part(max_money, used.picodollars, most)
            grant = Grant(secrets.token_hex(16), run, token.name, period, tokens, money, counted)
            self._database.execute(
                "insert into holds values (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(grant.identity, self._server, token.name, run),
                    *(period, tokens or 0, money or 0, background),
                ),
            )
        return grant

    def settle(self, grant: Grant, used: Amount) -> None:
        """Count what was used instead of what was reserved.

        A run that continues reports its total usage: what was counted before is subtracted.
        """
        with transaction(self._database):
            self._database.execute("delete from holds where id = ?", (grant.identity,))
            self._count(grant.token, grant.run, grant.period, used.tokens, used.picodollars)

    def release(self, grant: Grant) -> None:
        """Release the grant of a run that never started, unless it was settled."""
        self._database.execute("delete from holds where id = ?", (grant.identity,))

    def abandon(self, token: str, run: str) -> None:
        """Count as used what an earlier server held for a run that will not be continued."""
        with transaction(self._database):
            self._count_left("token = ? and run = ?", token, run)

    def used(self, token: Token) -> Amount:
        """Return what is spent or reserved in the current period."""
        return self._used(token.name, _period(token))

    # -- bookkeeping -------------------------------------------------------------------------

    def _used(self, name: str, period: str) -> Amount:
        tokens, money = 0, 0
        for table in ("spent", "holds"):
            found = self._database.execute(
                f"select sum(tokens), sum(money) from {table} where token = ? and period = ?",  # noqa: S608
                (name, period),
            ).fetchone()
            tokens, money = tokens + (found[0] or 0), money + (found[1] or 0)
        return Amount(0, tokens, money)

    def _is_held(self, name: str) -> bool:
        find = "select 1 from holds where token = ? limit 1"
        return self._database.execute(find, (name,)).fetchone() is not None

    def _add(self, name: str, period: str, tokens: int, money: int) -> None:
        self._database.execute(
            "insert into spent values (?, ?, ?, ?) on conflict (token, period) do update set "
            "tokens = tokens + excluded.tokens, money = money + excluded.money",
            (name, period, tokens, money),
        )

    def _count(self, name: str, run: str | None, period: str, tokens: int, money: int) -> None:
        """Add to what is spent, minus what was already counted for this run."""
        if run is None:
            self._add(name, period, tokens, money)
            return
        before = self._counted(name, run)
        tokens, money = max(tokens, before.tokens), max(money, before.picodollars)
        self._add(name, period, tokens - before.tokens, money - before.picodollars)
        self._database.execute(
            "insert or replace into counted values (?, ?, ?, ?)", (name, run, tokens, money)
        )

    def _counted(self, name: str, run: str | None) -> Amount:
        """Return what is counted for a run already."""
        find = "select tokens, money from counted where token = ? and run = ?"
        row = self._database.execute(find, (name, run)).fetchone() or (0, 0)
        return Amount(tokens=row[0], picodollars=row[1])

    def _forget(self, name: str, run: str | None, *, continues: bool) -> None:
        """Delete an earlier server's records of a run that continues or starts from scratch."""
        if run is None:
            return
        self._database.execute(
            "delete from holds where token = ? and run = ? and server != ?",
            (name, run, self._server),
        )
        if not continues:
            self._database.execute("delete from counted where token = ? and run = ?", (name, run))

    def _count_left(self, which: str, *values: str) -> None:
        """Count holds of an earlier server as used."""
        left = f"from holds where server != ? and {which}"
        values = (self._server, *values)
        find = f"select token, run, period, tokens, money {left}"
        for name, run, period, tokens, money in self._database.execute(find, values).fetchall():
            self._count(name, run, period, tokens, money)
        self._database.execute(f"delete {left}", values)


def _is_used_up(most: int | None, used: int) -> bool:
    return most is not None and used >= most


def _part(most: int | None, used: int, wanted: int | None) -> int | None:
    """Return how much of a budget a run gets."""
    if most is None:
        return None
    return most - used if wanted is None else min(wanted, most - used)


def _period(token: Token) -> str:
    return "total" if token.per == "total" else time.strftime("%Y-%m-%d", time.gmtime())


def _exhausted(token: Token, others_run: bool) -> Exception:
    if others_run:
        return too_many(
            "the rest of this token's budget is reserved for requests in progress; wait for "
            "them, or give requests smaller limits",
            "budget_held",
            5,
        )
    until_midnight = DAY_SECONDS - int(time.time()) % DAY_SECONDS
    seconds = until_midnight if token.per == "day" else DAY_SECONDS
    text = "today's budget" if token.per == "day" else "the budget"
    return too_many(
        f"{text} of this token is used up", "insufficient_quota", seconds, "insufficient_quota"
    )
