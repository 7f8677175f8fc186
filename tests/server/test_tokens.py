"""Who is let in, how many at once, and budgets that hold, also at once and after a kill."""

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from rlm.errors import ConfigError
from rlm.limits import Amount
from rlm.messages import Price, Usage
from rlm.server.access import check_address
from rlm.server.admission import Admission
from rlm.server.errors import ApiError
from rlm.server.ledger import Ledger
from rlm.server.planning import Planner
from rlm.server.settings import Settings
from rlm.server.tokens import ANYBODY, Token, read_tokens
from rlm.testing.scripted import ScriptedClient
from tests.server.serving import MODEL, WITH_REPL, Held, server, submits, until_done

ADA, BOB = "ada-secret-token", "bob-secret-token"


def _token(name: str, secret: str, **more: Any) -> Token:
    return Token(name=name, digest=hashlib.sha256(secret.encode()).hexdigest(), **more)


def _as(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


async def test_without_a_valid_token_nothing_is_answered(tmp_path: Path) -> None:
    async with server(tmp_path, tokens=[_token("ada", ADA)]) as client:
        for headers in ({}, _as("wrong"), {"Authorization": ADA}, _as("x" * 5_000)):
            for path in ("/v1/models", "/metrics", "/v1/runs", "/openapi.json"):
                answer = await client.get(path, headers=headers)
                assert answer.status == 401
                assert answer.json["error"]["code"] == "invalid_api_key"
                assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert (await client.get("/health")).json["status"] == "ok"
        assert (await client.chat("hi", headers=_as(ADA))).status == 200


async def test_a_token_sees_only_its_own_models(tmp_path: Path) -> None:
    tokens = [_token("ada", ADA, models=(WITH_REPL,)), _token("bob", BOB, models=("other",))]
    async with server(tmp_path, tokens=tokens) as client:
        listed = await client.get("/v1/models", headers=_as(ADA))
        assert [each["id"] for each in listed.json["data"]] == [WITH_REPL]
        assert (await client.chat("hi", headers=_as(ADA))).status == 200
        assert (await client.chat("hi", MODEL, headers=_as(ADA))).status == 404
        assert (await client.chat("hi", headers=_as(BOB))).status == 404
        assert (await client.get(f"/v1/models/{WITH_REPL}", headers=_as(BOB))).status == 404


async def test_the_concurrent_requests_of_a_token_are_limited(tmp_path: Path) -> None:
    model = Held(rules=[("", "done")])
    tokens = [_token("ada", ADA, max_concurrent_runs=2), _token("bob", BOB)]
    async with server(tmp_path, model, tokens=tokens) as client:
        asked = [asyncio.create_task(client.chat("hi", headers=_as(ADA))) for _ in range(5)]
        await until_done(asked, 3)
        asked.append(asyncio.create_task(client.chat("hi", headers=_as(BOB))))
        model.gate.set()
        answers = await asyncio.gather(*asked)
    assert [answer.status for answer in answers[:5]].count(200) == 2
    refused = [answer for answer in answers if answer.status == 429]
    assert len(refused) == 3
    assert all(int(each.headers["Retry-After"]) >= 1 for each in refused)
    assert answers[5].status == 200


async def test_a_request_is_not_planned_before_it_may_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning stores contexts and checks schemas: too much work for requests that are refused."""
    planned: list[str] = []
    plan = Planner.plan

    async def counted(self: Planner, request: Any, token: Token) -> Any:
        planned.append(token.name)
        return await plan(self, request, token)

    monkeypatch.setattr(Planner, "plan", counted)
    model = Held(rules=[("", "done")])
    tokens = [_token("ada", ADA, max_concurrent_runs=2)]
    async with server(tmp_path, model, tokens=tokens) as client:
        asked = [asyncio.create_task(client.chat("hi", headers=_as(ADA))) for _ in range(20)]
        await until_done(asked, 18)
        model.gate.set()
        answers = await asyncio.gather(*asked)
    assert [answer.status for answer in answers].count(429) == 18
    assert planned == ["ada", "ada"]


async def test_background_runs_of_a_token_are_limited_while_they_are_planned(
    tmp_path: Path,
) -> None:
    model = Held(rules=[("", submits("done"))])
    tokens = [_token("ada", ADA, max_concurrent_runs=2)]
    async with server(tmp_path, model, tokens=tokens) as client:
        runs = [client.run(query="what?", context="x", headers=_as(ADA)) for _ in range(20)]
        answers = await asyncio.gather(*runs)
        model.gate.set()
    statuses = [answer.status for answer in answers]
    assert (statuses.count(202), statuses.count(429)) == (2, 18)


async def test_resumed_runs_of_a_token_are_limited_too(tmp_path: Path) -> None:
    """The server that starts resumes as many as the last one left; its clients may not."""
    model = Held(rules=[("", "never")])
    async with server(tmp_path, model, tokens=[_token("ada", ADA)]) as client:
        runs = [client.run(query="what?", context="x", headers=_as(ADA)) for _ in range(5)]
        ids = [answer.json["id"] for answer in await asyncio.gather(*runs)]
    limited = [_token("ada", ADA, max_concurrent_runs=2)]
    async with server(tmp_path, Held(), tokens=limited, resumes=False) as client:
        resumed = [
            client.ask("POST", f"/v1/runs/{run_id}/resume", headers=_as(ADA)) for run_id in ids
        ]
        statuses = [answer.status for answer in await asyncio.gather(*resumed)]
    assert (statuses.count(202), statuses.count(429)) == (2, 3)
    async with server(tmp_path, Held(), tokens=limited) as client:
        listed = await client.get("/v1/runs", headers=_as(ADA))
    assert [run["status"] for run in listed.json["data"]].count("interrupted") == 0


async def test_mistakes_are_answered_without_waiting_for_a_slot(tmp_path: Path) -> None:
    model = Held(rules=[("", "done")])
    async with server(tmp_path, model, max_concurrent_runs=1) as client:
        running = asyncio.create_task(client.chat("hi"))
        while not model.waiting:
            await asyncio.sleep(0.01)
        async with asyncio.timeout(30):  # Others wait for 60 s.
            unknown = await client.chat("hi", "no/such-model")
            wrong = await client.post("/v1/chat/completions", {"model": WITH_REPL})
        model.gate.set()
        await running
    assert (unknown.status, wrong.status) == (404, 400)


async def test_background_runs_that_arrive_together_stay_within_the_queue(tmp_path: Path) -> None:
    model = Held(rules=[("", submits("done"))])
    async with server(tmp_path, model, max_concurrent_runs=2, max_queued=3) as client:
        answers = await asyncio.gather(*(client.run(query="q", context="x") for _ in range(30)))
        model.gate.set()
    statuses = [answer.status for answer in answers]
    assert (statuses.count(202), statuses.count(429)) == (5, 25)


async def test_requests_that_did_not_run_do_not_change_retry_after(tmp_path: Path) -> None:
    admission = Admission(Settings(folder=tmp_path, max_concurrent_runs=1, max_queued=0))
    admission._seconds = 30.0
    for _ in range(50):
        (await admission.enter(ANYBODY)).release(has_run=False)
    await admission.enter(ANYBODY)
    with pytest.raises(ApiError) as refused:
        admission.check(ANYBODY)
    assert (refused.value.headers or {})["Retry-After"] == "30"


async def test_a_request_beyond_the_queue_limit_is_refused(tmp_path: Path) -> None:
    model = Held(rules=[("", "done")])
    async with server(tmp_path, model, max_concurrent_runs=2, max_queued=3) as client:
        asked = [asyncio.create_task(client.chat("hi")) for _ in range(20)]
        await until_done(asked, 15)
        model.gate.set()
        answers = await asyncio.gather(*asked)
    statuses = [answer.status for answer in answers]
    assert (statuses.count(200), statuses.count(429)) == (5, 15)
    assert model.max_in_flight <= 2
    assert {a.json["error"]["code"] for a in answers if a.status == 429} == {"queue_full"}


async def test_a_request_that_waits_too_long_gets_an_error(tmp_path: Path) -> None:
    model = Held(rules=[("", "done")])
    async with server(tmp_path, model, max_concurrent_runs=1, queue_seconds=0.05) as client:
        asked = [asyncio.create_task(client.chat("hi")) for _ in range(2)]
        await until_done(asked, 1)
        model.gate.set()
        answers = await asyncio.gather(*asked)
    assert sorted(answer.status for answer in answers) == [200, 503]


# -- budgets --------------------------------------------------------------------------------------


async def test_a_token_budget_holds_for_concurrent_requests(tmp_path: Path) -> None:
    model = ScriptedClient(
        rules=[("", "done")], delay_seconds=0.05, usage=lambda *_: Usage(60, 40, requests=1)
    )
    tokens = [_token("ada", ADA, max_tokens=1_000, per="total")]
    async with server(tmp_path, model, tokens=tokens) as client:
        statuses = []
        for _ in range(4):
            answers = await asyncio.gather(
                *(client.chat("hi", headers=_as(ADA), max_tokens=100) for _ in range(10))
            )
            statuses += [answer.status for answer in answers]
        used = client.service.ledger.used(tokens[0])
    assert used.tokens <= 1_000
    assert statuses.count(200) == used.tokens // 100
    assert set(statuses) == {200, 429}
    async with server(tmp_path, model, tokens=tokens) as client:
        again = client.service.ledger.used(tokens[0])
    assert again == used, "a restart forgets nothing"


async def test_a_client_that_leaves_early_pays_for_the_requests_made(tmp_path: Path) -> None:
    model = ScriptedClient(rules=[("", "never")], delay_seconds=60)
    tokens = [_token("ada", ADA, max_tokens=100_000, per="total")]
    async with server(tmp_path, model, tokens=tokens) as client:
        asked = asyncio.create_task(client.chat("hi", headers=_as(ADA), max_tokens=500))
        async with asyncio.timeout(60):
            while not model.in_flight:
                await asyncio.sleep(0.01)
        asked.cancel()
        async with asyncio.timeout(60):
            while client.service.admission.running:
                await asyncio.sleep(0.01)
        assert client.service.ledger.used(tokens[0]).tokens >= 500


async def test_a_money_budget_is_enforced(tmp_path: Path) -> None:
    model = ScriptedClient(rules=[("", submits("done"))], price=Price(1_000.0, 1_000.0))
    tokens = [_token("ada", ADA, max_cost_usd=20.0)]
    async with server(tmp_path, model, tokens=tokens) as client:
        statuses = []
        for _ in range(60):
            answer = await client.chat("hi", headers=_as(ADA), rlm={"context": "x"})
            statuses.append(answer.status)
            if answer.status == 429:
                break
        used = client.service.ledger.used(tokens[0])
    assert statuses.count(200) > 5
    assert statuses[-1] == 429
    assert answer.json["error"]["code"] == "insufficient_quota"
    assert 10 * 10**12 < used.picodollars <= 20 * 10**12


def test_a_money_budget_without_a_price_is_a_config_error(tmp_path: Path) -> None:
    async def start() -> None:
        async with server(tmp_path, tokens=[_token("ada", ADA, max_cost_usd=1.0)]):
            pass

    with pytest.raises(ConfigError, match="price of test/small is unknown"):
        asyncio.run(start())


def test_budget_held_by_a_killed_server_counts_as_used(tmp_path: Path) -> None:
    token = _token("ada", ADA, max_tokens=100, per="total")
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.hold(token, "one", Amount(tokens=30))
    ledger.hold(token, "two", Amount(tokens=40), background=True)
    ledger.close()
    ledger = Ledger(tmp_path / "ledger.sqlite")
    assert ledger.used(token).tokens == 70
    grant = ledger.hold(token, "two", Amount(tokens=40), background=True, continues=True)
    assert grant is not None, "the same run takes over what was held for it"
    assert ledger.used(token).tokens == 70
    ledger.settle(grant, Amount(tokens=10))
    assert ledger.used(token).tokens == 40
    again = ledger.hold(token, "two", None, continues=True)
    assert again is not None
    assert again.tokens == 60
    ledger.settle(again, Amount(tokens=20))
    assert ledger.used(token).tokens == 50, "a run that went on is not paid for twice"
    ledger.hold(token, "three", None)
    with pytest.raises(ApiError, match="reserved for requests"):
        ledger.hold(token, "four", Amount(tokens=1))
    ledger.close()


def test_an_unlimited_request_of_a_killed_server_uses_up_the_budget(tmp_path: Path) -> None:
    token = _token("ada", ADA, max_tokens=100, per="total")
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.hold(token, "one", None)
    ledger.close()
    ledger = Ledger(tmp_path / "ledger.sqlite")
    with pytest.raises(ApiError, match="used up"):
        ledger.hold(token, "two", Amount(tokens=1))
    ledger.close()


async def test_cancelling_a_waiter_as_it_gets_a_slot_passes_the_slot_on(tmp_path: Path) -> None:
    admission = Admission(Settings(folder=tmp_path, max_concurrent_runs=1))
    first = await admission.enter(ANYBODY)
    second = asyncio.create_task(admission.enter(ANYBODY))
    third = asyncio.create_task(admission.enter(ANYBODY))
    await asyncio.sleep(0)
    assert (admission.running, admission.queued) == (1, 2)
    first.release()
    second.cancel()
    place = await asyncio.wait_for(third, 60)
    assert second.cancelled()
    first.release()
    assert admission.running == 1, "a place is given back once"
    place.release()
    assert (admission.running, admission.queued) == (0, 0)


# -- files of tokens ------------------------------------------------------------------------------


def test_tokens_are_read_from_toml_and_json(tmp_path: Path) -> None:
    toml = tmp_path / "tokens.toml"
    toml.write_text(
        f'[[tokens]]\nname = "ada"\ntoken = "{ADA}"\nmax_tokens = 5\nper = "total"\n'
        f'[[tokens]]\nname = "bob"\ntoken_sha256 = "{hashlib.sha256(BOB.encode()).hexdigest()}"\n'
    )
    tokens = read_tokens(toml, ["third-token"])
    assert [token.name for token in tokens.all] == ["ada", "bob", "token-1"]
    assert tokens.find([f"Bearer {BOB}"]).name == "bob"
    assert tokens.find([f"bearer {ADA}"]).max_tokens == 5
    plain = tmp_path / "tokens.json"
    plain.write_text(json.dumps({"tokens": [{"name": "ada", "token": ADA}]}))
    assert read_tokens(plain).find([f"Bearer {ADA}"]).name == "ada"


@pytest.mark.parametrize(
    "entries",
    [
        [{"name": "ada"}],
        [{"name": "ada", "token": ADA, "token_sha256": "0" * 64}],
        [{"name": "ada", "token_sha256": "zz"}],
        [{"name": "a/b", "token": ADA}],
        [{"name": "ada", "token": "short"}],
        [{"name": "ada", "token": ADA, "max_tokns": 1}],
        [{"name": "ada", "token": ADA, "max_cost_usd": -1}],
        [{"name": "ada", "token": ADA}, {"name": "ada", "token": BOB}],
        [{"name": "ada", "token": ADA}, {"name": "bob", "token": ADA}],
        "nothing",
    ],
)
def test_errors_in_a_token_file_are_reported_without_the_token(
    tmp_path: Path, entries: Any
) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps({"tokens": entries}))
    with pytest.raises(ConfigError) as raised:
        read_tokens(path)
    assert ADA not in str(raised.value)


def test_a_server_listens_on_the_network_only_with_tokens() -> None:
    check_address("127.0.0.1", has_tokens=False)
    check_address("::1", has_tokens=False)
    check_address("0.0.0.0", has_tokens=True)
    with pytest.raises(ConfigError, match="--token"):
        check_address("0.0.0.0", has_tokens=False)


# -- pages in a browser ---------------------------------------------------------------------------


async def test_requests_of_other_websites_are_refused(tmp_path: Path) -> None:
    async with server(tmp_path, cors_origins=("https://mine.example",)) as client:
        for headers in (
            {"Host": "evil.example"},
            {"Origin": "https://evil.example"},
            {"Sec-Fetch-Site": "cross-site"},
        ):
            assert (await client.chat("hi", headers=headers)).status == 403
        allowed = await client.chat("hi", headers={"Origin": "https://mine.example"})
        assert allowed.status == 200
        assert allowed.headers["Access-Control-Allow-Origin"] == "https://mine.example"
    async with server(tmp_path, tokens=[_token("ada", ADA)]) as client:
        headers = {**_as(ADA), "Host": "my.example", "Origin": "https://any.example"}
        answer = await client.chat("hi", headers=headers)
        assert answer.status == 200
        assert "Access-Control-Allow-Origin" not in answer.headers
