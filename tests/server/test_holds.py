"""A hold on a budget belongs to one request: no other one can release it, and none is lost."""

import asyncio
import itertools
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rlm.limits import Amount
from rlm.messages import Usage
from rlm.server.errors import ApiError
from rlm.server.ledger import Grant, Ledger
from rlm.server.tokens import Token
from rlm.testing.scripted import ScriptedClient
from tests.server.serving import Answer, Client, Held, server, submits
from tests.server.test_tokens import ADA, BOB, _as, _token

BUDGET = 100_000
ALL: dict[str, Any] = {"max_tokens": BUDGET}


def _tokens() -> list[Token]:
    return [_token("ada", ADA, max_tokens=BUDGET, per="total"), _token("bob", BOB)]


def _small(*_: Any) -> Usage:
    return Usage(60, 40, requests=1)


async def _until_asked(model: Held) -> None:
    async with asyncio.timeout(15):
        while not model.waiting:
            await asyncio.sleep(0.01)


async def _ask(client: Client, run_id: str | None = None, **limits: Any) -> Answer:
    rlm = {"context": "x", "limits": limits, **({"run_id": run_id} if run_id else {})}
    return await client.chat("hi", headers=_as(ADA), rlm=rlm)


async def _start(client: Client, run_id: str, **limits: Any) -> Answer:
    return await client.run(query="hi", context="x", run_id=run_id, limits=limits, headers=_as(ADA))


async def _held(client: Client) -> int:
    """What of the budget is taken, seen from outside: what another request is refused for."""
    return client.service.ledger.used(_tokens()[0]).tokens


@pytest.mark.parametrize("second", ["waiting", "background", "other token"])
async def test_a_refused_request_does_not_release_the_budget_held_by_another(
    tmp_path: Path, second: str
) -> None:
    model = Held(rules=[("", submits("done"))], usage=_small)
    async with server(tmp_path, model, tokens=_tokens()) as client:
        first = asyncio.create_task(_ask(client, "same", **ALL))
        await _until_asked(model)
        if second == "waiting":
            refused = await _ask(client, "same", **ALL)
        elif second == "background":
            refused = await _start(client, "same", **ALL)
        else:
            rlm = {"context": "x", "run_id": "same"}
            refused = await client.chat("hi", headers=_as(BOB), rlm=rlm)
        assert refused.status == 409, refused.text
        third = await _ask(client, **ALL)
        assert (third.status, third.json["error"]["code"]) == (429, "budget_held")
        model.gate.set()
        assert (await first).status == 200
        assert await _held(client) == 100


@pytest.mark.parametrize("second", ["waiting", "background"])
async def test_a_background_run_keeps_its_held_budget(tmp_path: Path, second: str) -> None:
    model = Held(rules=[("", submits("done"))], usage=_small)
    async with server(tmp_path, model, tokens=_tokens()) as client:
        started = await asyncio.gather(*(_start(client, "same", **ALL) for _ in range(5)))
        assert sorted(answer.status for answer in started) == [202, 409, 409, 409, 409]
        await _until_asked(model)
        for _ in range(3):
            ask = _ask if second == "waiting" else _start
            assert (await ask(client, "same", **ALL)).status == 409
        third = await _ask(client, **ALL)
        assert (third.status, third.json["error"]["code"]) == (429, "budget_held")
        model.gate.set()
        async with client.stream("/v1/runs/same/events", headers=_as(ADA)) as events:
            [event async for event in events]
        assert await _held(client) == 100


async def test_a_request_whose_client_leaves_returns_its_own_budget_and_name(
    tmp_path: Path,
) -> None:
    model = Held(rules=[("", submits("done"))], usage=_small)
    async with server(tmp_path, model, tokens=_tokens(), max_concurrent_runs=1) as client:
        first = asyncio.create_task(_ask(client, "one", max_tokens=40_000))
        await _until_asked(model)
        queued = asyncio.create_task(_ask(client, "two", max_tokens=40_000))
        async with asyncio.timeout(15):
            while not client.service.admission.queued:
                await asyncio.sleep(0.01)
        queued.cancel()
        async with asyncio.timeout(15):
            while client.service.admission.queued:
                await asyncio.sleep(0.01)
        assert await _held(client) == 40_000, "only the one that runs holds something"
        model.gate.set()
        assert (await first).status == 200
        again = await _ask(client, "two", max_tokens=40_000)
        assert again.status == 200
        assert await _held(client) == 200


async def test_a_refused_name_leaves_no_trace(tmp_path: Path) -> None:
    model = Held(rules=[("", submits("done"))], usage=_small)
    async with server(tmp_path, model, tokens=_tokens()) as client:
        first = asyncio.create_task(_ask(client, None, **ALL))
        await _until_asked(model)
        assert (await _ask(client, "refused", **ALL)).status == 429
        assert (await client.get("/v1/runs/refused", headers=_as(ADA))).status == 404
        bobs = asyncio.create_task(
            client.chat("hi", headers=_as(BOB), rlm={"context": "x", "run_id": "refused"})
        )
        model.gate.set()
        assert [(await first).status, (await bobs).status] == [200, 200]


async def test_a_run_is_cancelled_by_its_own_request(tmp_path: Path) -> None:
    model = Held(rules=[("", submits("done"))], usage=_small)
    async with server(tmp_path, model, tokens=_tokens()) as client:
        first = asyncio.create_task(_ask(client, "mine", **ALL))
        await _until_asked(model)
        told = await client.get("/v1/runs/mine", headers=_as(ADA))
        assert told.json["status"] == "running"
        cancelled = await client.post("/v1/runs/mine/cancel", {}, headers=_as(ADA))
        assert cancelled.status == 409
        assert await _held(client) == BUDGET
        model.gate.set()
        assert (await first).json["rlm"]["stop_reason"] == "answer"


async def test_concurrent_resumes_hold_the_budget_once(tmp_path: Path) -> None:
    model = Held(rules=[("", submits("done"))], usage=_small)
    async with server(tmp_path, model, tokens=_tokens(), grace_seconds=0.1) as client:
        assert (await _start(client, "long", max_tokens=70_000)).status == 202
        await _until_asked(model)
    model = Held(rules=[("", submits("done"))], usage=_small)
    async with server(tmp_path, model, tokens=_tokens(), resumes=False) as client:
        assert await _held(client) == 70_000, "the stopped server left it held"
        path = "/v1/runs/long/resume"
        answers = await asyncio.gather(
            *(client.ask("POST", path, headers=_as(ADA)) for _ in range(5))
        )
        assert {answer.status for answer in answers} == {202}
        await _until_asked(model)
        assert (model.waiting, await _held(client)) == (1, 70_000)
        model.gate.set()
        async with client.stream("/v1/runs/long/events", headers=_as(ADA)) as events:
            [event async for event in events]
        assert await _held(client) < 70_000


async def test_cancelling_a_run_of_a_stopped_server_releases_its_budget(tmp_path: Path) -> None:
    model = Held(rules=[("", submits("done"))], usage=_small)
    async with server(tmp_path, model, tokens=_tokens(), grace_seconds=0.1) as client:
        assert (await _start(client, "long", max_tokens=70_000)).status == 202
        await _until_asked(model)
    large = ScriptedClient(
        rules=[("", submits("done"))], usage=lambda *_: Usage(30_000, 0, requests=1)
    )
    async with server(tmp_path, large, tokens=_tokens(), resumes=False) as client:
        cancelled = await client.ask("POST", "/v1/runs/long/cancel", headers=_as(ADA))
        assert cancelled.json["status"] == "cancelled"
        assert (await _ask(client, None, max_tokens=30_000)).status == 200
        refused = await _ask(client, None, max_tokens=30_000)
        assert refused.json["error"]["code"] == "insufficient_quota", "nothing is held any more"


async def test_a_stopped_server_holds_no_budget_for_requests_that_waited(tmp_path: Path) -> None:
    model = Held(rules=[("", submits("done"))], usage=_small)
    async with server(tmp_path, model, tokens=_tokens(), grace_seconds=0.1) as client:
        asked = [asyncio.create_task(_ask(client, None, max_tokens=30_000)) for _ in range(2)]
        async with asyncio.timeout(15):
            while model.waiting < 2:
                await asyncio.sleep(0.01)
    await asyncio.gather(*asked, return_exceptions=True)
    async with server(tmp_path, model, tokens=_tokens()) as client:
        used = await _held(client)
    assert used <= 60_000
    ledger = Ledger(tmp_path / "state" / "server" / "ledger.sqlite")
    assert not ledger._database.execute("select * from holds").fetchall()
    ledger.close()


# -- every order of events ------------------------------------------------------------------------

RUNS = st.sampled_from([None, "a", "b", "c"])


class Holds(RuleBasedStateMachine):
    """Requests in any order on one ledger, beside a plain sum of what they should leave there."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "ledger.sqlite"
        self.ledger = Ledger(self.path)
        self.token = _tokens()[0]
        self.open: dict[str, Grant] = {}
        self.left: dict[str, Grant] = {}
        self.background: set[str] = set()
        self.spent = 0
        self.counted: dict[str, int] = {}
        self.ended: list[Grant] = []

    def teardown(self) -> None:
        for grant in list(self.open.values()):
            self._count(self.open.pop(grant.identity), 0)
            self.ledger.settle(grant, Amount(tokens=0))
        self.check()
        self.ledger.close()
        self.folder.cleanup()

    @rule(run=RUNS, wanted=st.none() | st.integers(1, BUDGET), background=st.booleans())
    def hold(self, run: str | None, wanted: int | None, background: bool) -> None:
        free = BUDGET - self._taken()
        continues = run is not None and run in self.counted
        mine = [grant for grant in self.left.values() if run is not None and grant.run == run]
        free += sum(grant.tokens or 0 for grant in mine)
        try:
            grant = self.ledger.hold(
                self.token,
                run,
                None if wanted is None else Amount(tokens=wanted),
                background=background,
                continues=continues or bool(mine),
            )
        except ApiError:
            assert free <= 0
            return
        assert grant is not None
        before = self.counted.get(run or "", 0) if continues else 0
        more = free if wanted is None else max(0, wanted - before)
        assert grant.tokens == min(more, free)
        assert grant.max_tokens == grant.tokens + before
        for each in mine:
            del self.left[each.identity]
        self.open[grant.identity] = grant
        if background:
            self.background.add(grant.identity)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        grant = self.open.pop(data.draw(st.sampled_from(list(self.open))))
        before = self.counted.get(grant.run or "", 0)
        used = data.draw(st.integers(0, before + (grant.tokens or 0)))
        self._count(grant, used)
        self.ledger.settle(grant, Amount(tokens=used))
        self.ended.append(grant)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        grant = self.open.pop(data.draw(st.sampled_from(list(self.open))))
        self.ledger.release(grant)
        self.ended.append(grant)

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def release_what_has_ended(self, data: st.DataObject) -> None:
        self.ledger.release(data.draw(st.sampled_from(self.ended)))

    @rule()
    def kill_and_start_again(self) -> None:
        self.ledger.close()
        for identity, grant in self.open.items():
            if identity in self.background:
                self.left[identity] = grant
            else:
                self._count(grant, grant.tokens or 0)
        self.open.clear()
        self.ledger = Ledger(self.path)

    @rule(run=st.sampled_from("abc"))
    def abandon(self, run: str) -> None:
        for identity in [each for each, grant in self.left.items() if grant.run == run]:
            grant = self.left.pop(identity)
            self._count(grant, grant.tokens or 0)
        self.ledger.abandon(self.token.name, run)

    @invariant()
    def check(self) -> None:
        used = self.ledger.used(self.token).tokens
        assert used == self._taken()
        assert 0 <= used <= BUDGET

    def _taken(self) -> int:
        grants = itertools.chain(self.open.values(), self.left.values())
        return self.spent + sum(grant.tokens or 0 for grant in grants)

    def _count(self, grant: Grant, used: int) -> None:
        if grant.run is None:
            self.spent += used
            return
        before = self.counted.get(grant.run, 0)
        self.spent += max(0, used - before)
        self.counted[grant.run] = max(before, used)


HoldsTest = pytest.mark.hypothesis(Holds.TestCase)
HoldsTest.settings = hypothesis_settings(
    deadline=None, max_examples=max(40, hypothesis_settings().max_examples // 2)
)


async def test_a_resumed_run_gets_all_that_is_left_of_the_budget(tmp_path: Path) -> None:
    """Its limits cover what it has used already, which was counted before."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ada = _token("ada", ADA, max_tokens=60_000, max_cost_usd=1.0, per="total")
    first = ledger.hold(ada, "big", None)
    assert first is not None
    ledger.settle(first, Amount(tokens=32_000, picodollars=4 * 10**11))
    resumed = ledger.hold(ada, "big", None, continues=True)
    assert resumed is not None
    assert (resumed.tokens, resumed.max_tokens, resumed.max_cost_usd) == (28_000, 60_000, 1.0)
    ledger.release(resumed)
    wanted = Amount(tokens=40_000, picodollars=5 * 10**11)
    resumed = ledger.hold(ada, "big", wanted, continues=True)
    assert resumed is not None
    assert (resumed.tokens, resumed.max_tokens, resumed.max_cost_usd) == (8_000, 40_000, 0.5)
    ledger.settle(resumed, Amount(tokens=40_000, picodollars=5 * 10**11))
    assert ledger.used(ada).tokens == 40_000
    other = ledger.hold(ada, "new", None)
    assert other is not None
    assert (other.tokens, other.max_tokens) == (20_000, 20_000)
    ledger.close()
