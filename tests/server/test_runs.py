"""Background runs: they answer, can be watched, cancelled and resumed, and outlive their server."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rlm.limits import Limits
from rlm.server.requests import RunRequest
from rlm.server.run_records import RunRow, RunStore
from rlm.server.tokens import Token
from rlm.testing.scripted import ScriptedClient
from rlm.web.responses import json_bytes
from tests.server.serving import WITH_REPL, Client, Held, server, submits
from tests.server.test_tokens import ADA, BOB, _as, _token

GOES_ON = "```repl\nprint('still reading')\n```"


async def _until(client: Client, run_id: str, *states: str, **options: Any) -> Any:
    async with asyncio.timeout(60):
        while True:
            answer = await client.get(f"/v1/runs/{run_id}", **options)
            assert answer.status == 200, answer.text
            if answer.json["status"] in states:
                return answer.json
            await asyncio.sleep(0.02)


async def test_a_background_run_continues_without_a_connection(tmp_path: Path) -> None:
    model = ScriptedClient([GOES_ON, "```repl\nFINAL(context[:5])\n```"])
    async with server(tmp_path, model) as client:
        created = await client.run(query="how does it begin?", context="hello world")
        assert created.status == 202, created.text
        run_id = created.json["id"]
        assert created.json["status"] in {"queued", "running"}
        run = await _until(client, run_id, "completed", "failed")
        listed = await client.get("/v1/runs")
    assert (run["answer"], run["query"], run["model"]) == ("hello", "how does it begin?", WITH_REPL)
    assert run["rlm"]["steps"] == 2
    assert run["usage"]["total_tokens"] > 0
    assert [each["id"] for each in listed.json["data"]] == [run_id]


async def test_sampling_options_apply_to_steps_and_not_to_calls(
    tmp_path: Path,
) -> None:
    asks = "```repl\nprint(llm_query('a part'))\n```"
    options: dict[str, Any] = {"temperature": 0.3, "top_p": 0.5, "seed": 7}
    for way in ("runs", "chat"):
        model = ScriptedClient([asks, "a note", submits("one two three four")])
        async with server(
            tmp_path, model, engine={"sampling": {"temperature": 1.0, "top_k": 9}}
        ) as client:
            if way == "runs":
                created = await client.run(query="what?", context="text", **options)
                run = await _until(client, created.json["id"], "completed", "failed")
                assert run["answer"] == "one two three four"
            else:
                options |= {"stop": ["three"], "max_tokens": 60}
                given = {"context": "text"}
                answer = await client.chat("what?", rlm=given, **options)
                assert answer.json["choices"][0]["message"]["content"] == "one two "
        step, call, last = (request.sampling for request in model.requests)
        assert step == last == {"temperature": 0.3, "top_p": 0.5, "seed": 7, "top_k": 9}
        assert call == {}
        assert model.requests[0].max_output_tokens > 60


async def test_wrong_sampling_is_refused(tmp_path: Path) -> None:
    async with server(tmp_path, ScriptedClient([])) as client:
        for name, value in (("temperature", 3), ("top_p", -1), ("seed", "x"), ("stop", ["a"])):
            refused = await client.run(query="what?", **{name: value})
            assert (refused.status, name in refused.text) == (400, True), refused.text


async def test_typed_answers_are_returned_as_values(tmp_path: Path) -> None:
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    async with server(tmp_path, ScriptedClient([submits({"n": 3})])) as client:
        created = await client.run(query="count", response_format=wanted)
        run = await _until(client, created.json["id"], "completed", "failed")
    assert run["answer"] == {"n": 3}


async def test_events_are_streamed_and_resumed_without_loss(tmp_path: Path) -> None:
    model = ScriptedClient([GOES_ON, GOES_ON, submits("done")], delay_seconds=0.1)
    async with server(tmp_path, model) as client:
        created = await client.run(query="what?", context="text", run_id="watched")
        address = f"/v1/runs/{created.json['id']}/events"
        first: list[dict[str, str]] = []
        async with client.stream(address) as events:
            async for event in events:
                if "id" in event:
                    first.append(event)
                if len(first) == 4:
                    break  # The connection is lost.
        seen = {"Last-Event-ID": first[-1]["id"]}
        async with client.stream(address, headers=seen) as events:
            rest = [event async for event in events if "data" in event]
        async with client.stream(address) as events:
            whole = [event async for event in events if "data" in event]
        refused = await client.get(address, headers={"Last-Event-ID": "../1"})
    end = rest.pop()
    assert end["event"] == "end"
    assert json.loads(end["data"])["answer"] == "done"
    assert [e["id"] for e in first + rest] == [e["id"] for e in whole[:-1]]
    told = [json.loads(each["data"]) for each in whole[:-1]]
    assert [told[0]["type"], told[-1]["type"]] == ["run_started", "run_ended"]
    assert "settings" not in told[0], "the operator's settings are nobody's business"
    assert str(tmp_path) not in json.dumps(told)
    assert refused.status == 400


async def test_a_run_can_be_cancelled(tmp_path: Path) -> None:
    model = ScriptedClient(rules=[("", GOES_ON)], delay_seconds=0.05)
    limits = Limits(max_steps=1_000, max_seconds=60)
    async with server(tmp_path, model, limits=limits) as client:
        created = await client.run(query="what?", context="text")
        run_id = created.json["id"]
        async with asyncio.timeout(30):
            while len(model.requests) < 2:
                await asyncio.sleep(0.01)
        answer = await client.ask("POST", f"/v1/runs/{run_id}/cancel")
        assert answer.json["status"] == "cancelled"
        count = len(model.requests)
        again = await client.ask("POST", f"/v1/runs/{run_id}/cancel")
        assert again.json["status"] == "cancelled"
        await asyncio.sleep(0.2)
        assert len(model.requests) == count
        assert client.service.admission.running == 0


async def test_a_queued_run_can_be_cancelled(tmp_path: Path) -> None:
    model = Held(rules=[("", submits("done"))])
    async with server(tmp_path, model, max_concurrent_runs=1) as client:
        first = await client.run(query="first")
        second = await client.run(query="second")
        assert second.json["status"] == "queued"
        answer = await client.ask("POST", f"/v1/runs/{second.json['id']}/cancel")
        assert answer.json["status"] == "cancelled"
        model.gate.set()
        assert (await _until(client, first.json["id"], "completed"))["answer"] == "done"
        assert len(model.requests) == 1


async def test_a_run_that_reached_a_limit_can_continue_with_a_higher_one(tmp_path: Path) -> None:
    model = ScriptedClient([GOES_ON, "no answer yet", GOES_ON, submits("found")])
    async with server(tmp_path, model) as client:
        created = await client.run(query="what?", context="text", limits={"max_steps": 1})
        run_id = created.json["id"]
        run = await _until(client, run_id, "incomplete", "completed")
        assert run["status"] == "incomplete"
        resumed = await client.post(f"/v1/runs/{run_id}/resume", {"limits": {"max_steps": 4}})
        assert resumed.status == 202
        run = await _until(client, run_id, "incomplete", "completed")
        again = await client.ask("POST", f"/v1/runs/{run_id}/resume")
        too_high = {"limits": {"call_output_tokens": 10**9}}
        refused = await client.post(f"/v1/runs/{run_id}/resume", too_high)
    assert (refused.status, refused.json["error"]["param"]) == (400, "limits.call_output_tokens")
    assert (run["status"], run["answer"]) == ("completed", "found")
    assert again.json["answer"] == "found", "an answer is not looked for twice"


async def test_limits_in_a_chunked_body_apply_to_a_resumed_run(tmp_path: Path) -> None:
    """A client that does not know the length of a body in advance sends it in chunks."""

    async def chunks(text: str) -> AsyncIterator[bytes]:
        for start in range(0, len(text), 8):
            yield text[start : start + 8].encode()

    json_body = {"Content-Type": "application/json"}
    model = ScriptedClient([GOES_ON, "no answer yet", GOES_ON, submits("found")])
    async with server(tmp_path, model) as client:
        created = await client.run(query="what?", context="text", limits={"max_steps": 1})
        path = f"/v1/runs/{created.json['id']}/resume"
        await _until(client, created.json["id"], "incomplete")
        more_steps = '{"limits": {"max_steps": 4}}'
        for text, headers, status in (
            ('{"limits": {"call_output_tokens": 1000000000}}', json_body, 400),
            (more_steps, {"Content-Type": "text/plain"}, 415),
            (more_steps, json_body, 202),
        ):
            answer = await client.ask("POST", path, data=chunks(text), headers=headers)
            assert answer.status == status, answer.text
        run = await _until(client, created.json["id"], "completed", "incomplete")
        without_body = await client.ask("POST", path, data=chunks(""))
    assert (run["status"], run["answer"]) == ("completed", "found")
    assert without_body.status == 202


async def test_background_runs_survive_a_restart(tmp_path: Path) -> None:
    """Stopped in the middle, started again: nothing is lost, and nothing is paid for twice."""

    def then_nothing(_: object) -> str:
        first.gate.clear()
        return GOES_ON

    first = Held([then_nothing, "never said"])
    first.gate.set()
    async with server(tmp_path, first, max_concurrent_runs=1) as client:
        running = (await client.run(query="running", context="one")).json["id"]
        waiting = (await client.run(query="waiting", context="two")).json["id"]
        async with asyncio.timeout(30):
            while not (first.requests and first.waiting):
                await asyncio.sleep(0.01)
    second = ScriptedClient(
        rules=[("waiting", "```repl\nFINAL('waited for ' + context)\n```")],
        script=[submits("went on")],
    )
    async with server(tmp_path, second) as client:
        run = await _until(client, running, "completed", "failed", "incomplete")
        other = await _until(client, waiting, "completed", "failed", "incomplete")
    assert run["answer"] == "went on"
    assert other["answer"] == "waited for two"
    assert len(second.requests) == 2, "the first step was paid for, and is not asked for again"


async def test_runs_that_are_not_resumed_automatically_can_be_resumed_on_request(
    tmp_path: Path,
) -> None:
    slow = ScriptedClient(rules=[("", "never")], delay_seconds=60)
    async with server(tmp_path, slow) as client:
        run_id = (await client.run(query="what?", context="text")).json["id"]
        async with asyncio.timeout(30):
            while not slow.requests:
                await asyncio.sleep(0.01)
    async with server(tmp_path, ScriptedClient([submits("later")]), resumes=False) as client:
        assert (await client.get(f"/v1/runs/{run_id}")).json["status"] == "interrupted"
        await client.ask("POST", f"/v1/runs/{run_id}/resume")
        assert (await _until(client, run_id, "completed"))["answer"] == "later"


async def test_runs_are_visible_only_to_their_own_token(tmp_path: Path) -> None:
    tokens: list[Token] = [_token("ada", ADA), _token("bob", BOB)]
    async with server(tmp_path, ScriptedClient([submits("hers")]), tokens=tokens) as client:
        created = await client.run(query="mine?", run_id="hers", headers=_as(ADA))
        await _until(client, "hers", "completed", headers=_as(ADA))
        for method, path in (
            ("GET", "/v1/runs/hers"),
            ("GET", "/v1/runs/hers/events"),
            ("POST", "/v1/runs/hers/cancel"),
            ("POST", "/v1/runs/hers/resume"),
            ("GET", "/v1/runs?after=hers"),
        ):
            answer = await client.ask(method, path, headers=_as(BOB))
            assert answer.status == 404, path
        listed = await client.get("/v1/runs", headers=_as(BOB))
        assert listed.json["data"] == []
        taken = await client.run(query="mine?", run_id="hers", headers=_as(BOB))
        assert taken.status == 409
        rlm = {"context": "x", "run_id": "hers"}
        assert (await client.chat("mine?", rlm=rlm, headers=_as(BOB))).status == 409
    assert created.status == 202


async def test_a_named_run_can_be_repeated_only_with_its_own_token(tmp_path: Path) -> None:
    tokens: list[Token] = [_token("ada", ADA), _token("bob", BOB)]
    rlm = {"context": "x", "run_id": "named"}
    async with server(tmp_path, ScriptedClient([submits("hers")]), tokens=tokens) as client:
        assert (await client.chat("what?", rlm=rlm, headers=_as(ADA))).status == 200
        answer = await client.chat("what?", rlm=rlm, headers=_as(BOB))
    assert answer.status == 409
    assert "hers" not in answer.text


async def test_lists_are_paginated(tmp_path: Path) -> None:
    model = ScriptedClient(rules=[("", submits("done"))])
    async with server(tmp_path, model) as client:
        ids = [(await client.run(query=f"number {n}")).json["id"] for n in range(5)]
        for run_id in ids:
            await _until(client, run_id, "completed")
        first = (await client.get("/v1/runs?limit=2")).json
        second = (await client.get(f"/v1/runs?limit=2&after={first['last_id']}")).json
        last = (await client.get(f"/v1/runs?limit=2&after={second['last_id']}")).json
        wrong = await client.get("/v1/runs?limit=none")
    assert [e["id"] for p in (first, second, last) for e in p["data"]] == ids[::-1]
    assert [page["has_more"] for page in (first, second, last)] == [True, True, False]
    assert wrong.status == 400


async def test_the_queue_limit_applies_to_background_runs_too(tmp_path: Path) -> None:
    model = Held(rules=[("", submits("done"))])
    async with server(tmp_path, model, max_concurrent_runs=1, max_queued=2) as client:
        answers = [await client.run(query="what?") for _ in range(5)]
        assert [answer.status for answer in answers] == [202, 202, 202, 429, 429]
        model.gate.set()
        for answer in answers[:3]:
            await _until(client, answer.json["id"], "completed")


async def test_a_list_of_runs_reads_no_requests(tmp_path: Path) -> None:
    """A request may have megabytes, of which a list shows the beginning of the query."""
    query = "q" * 400_000
    model = ScriptedClient([GOES_ON, "no answer yet", submits("found")])
    async with server(tmp_path, model) as client:
        given = {"query": query, "instructions": query, "context": "text"}
        created = await client.run(**given, limits={"max_steps": 1})
        run_id = created.json["id"]
        await _until(client, run_id, "incomplete")
        store = client.service.runs._store
        read: list[str] = []
        store._database.set_trace_callback(read.append)
        listed = (await client.get("/v1/runs")).json["data"]
        store._database.set_trace_callback(None)
        assert [(each["id"], each["query"]) for each in listed] == [(run_id, query[:2_000])]
        assert read
        assert not [each for each in read if "requests" in each]
        (size,) = store._database.execute("select length(request) from requests").fetchone()
        assert size < 10_000
        await client.post(f"/v1/runs/{run_id}/resume", {"limits": {"max_steps": 4}})
        assert (await _until(client, run_id, "completed"))["answer"] == "found"


@pytest.mark.parametrize("instructions", ["Answer in capitals.", "Answer in capitals. " * 2_000])
async def test_a_queued_run_keeps_its_instructions_over_a_restart(
    tmp_path: Path, instructions: str
) -> None:
    """Its journal has no request yet that could tell them."""
    first = Held(["never"])
    given = {"query": "What?", "instructions": instructions, "context": "text"}
    async with server(tmp_path, first, max_concurrent_runs=1) as client:
        created = [await client.run(**given) for _ in range(2)]
        async with asyncio.timeout(20):
            while not first.waiting:
                await asyncio.sleep(0.01)
    second = ScriptedClient([submits("found")] * 2)
    async with server(tmp_path, second) as client:
        for each in created:
            assert (await _until(client, each.json["id"], "completed"))["answer"] == "found"
    shown = (
        "Answer in capitals." if len(instructions) < 100 else "Instructions that you must follow"
    )
    assert [shown in str(each.messages) for each in second.requests] == [True, True]


async def test_long_answers_make_a_page_shorter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedClient([submits(f"{number}" * 1_000) for number in range(5)])
    async with server(tmp_path, model) as client:
        for number in range(5):
            created = await client.run(query="q", context="x", run_id=f"run-{number}")
            await _until(client, created.json["id"], "completed")
        whole = (await client.get("/v1/runs")).json
        assert [each["id"] for each in whole["data"]] == [f"run-{n}" for n in (4, 3, 2, 1, 0)]
        assert whole["data"] == [
            (await client.get(f"/v1/runs/{each['id']}")).json for each in whole["data"]
        ]
        monkeypatch.setattr("rlm.server.runs.MAX_PAGE_BYTES", 4_000)
        seen, after = [], ""
        while True:
            page = (await client.get(f"/v1/runs?limit=4{after}")).json
            assert 1 <= len(page["data"]) <= 2
            assert (page["first_id"], page["last_id"]) == tuple(
                page["data"][at]["id"] for at in (0, -1)
            )
            seen += page["data"]
            if not page["has_more"]:
                break
            after = f"&after={page['last_id']}"
    assert seen == whole["data"]


def test_the_table_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    request = RunRequest(model="rlm/m", query="What?", run_id="one")
    rows = [
        ("one", "ada", 1.0, "rlm/m", json_bytes(request), None, None),
        ("two", "ada", 2.0, "rlm/m", b'{"unknown": 1}', 3.0, b"{}"),
        ("three", "ada", 3.0, "rlm/m", b"", None, None),
    ]
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(
            "create table runs (run_id text primary key, token text not null, created real, "
            "model text, request blob, ended real, reply blob)"
        )
        database.execute("create index by_token on runs (token, created)")
        database.executemany("insert into runs values (?, ?, ?, ?, ?, ?, ?)", rows)
    for _ in range(2):
        store = RunStore(path)
        assert store.get("one") == RunRow("one", "ada", 1.0, "rlm/m", "What?", True)
        assert store.request_of("one") == request
        assert [row.run_id for row in store.of_token("ada", 9, None)] == ["three", "two", "one"]
        assert [row.run_id for row in store.unended()] == ["one", "three"]
        assert store.get("two") == RunRow("two", "ada", 2.0, "rlm/m", "", True, 3.0, b"{}")
        store.close()
