"""One hostile tenant and an ordinary one, mixed: what each gets, in numbers and in order, not time.

`benchmarks/hostile_tenant.py` measures the same with real processes and a clock.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.hostile_tenant import PARTS, options_of
from tests.server.serving import WITH_REPL, Answer, Client, Held, server, submits
from tests.server.test_files import _upload
from tests.server.test_slow_clients import _connect
from tests.server.test_tokens import ADA, BOB, _as, _token

EVE, OTHERS = ADA, BOB
MEMORY = 40_000_000
QUOTA = 3_000_000
ORDINARY = 12
FLOOD = 60


def _bomb() -> bytes:
    asked = {"model": WITH_REPL, "messages": [{"role": "user", "content": "hi"}]}
    start = json.dumps({**asked, "rlm": {"context": []}}).encode().removesuffix(b"]}}")
    return start + b"[]," * 50_000 + b"[]]}}"


async def _hostile(client: Client, slow: list[asyncio.StreamWriter]) -> list["asyncio.Task[Any]"]:
    """Send everything at once, and wait for none of it."""
    json_body = {"Content-Type": "application/json", **_as(EVE)}
    rlm = {"context": "x", "run_id": "the-same-name"}
    work: list[Any] = []
    for _ in range(4):
        path = "/v1/chat/completions"
        work.append(client.ask("POST", path, data=_bomb(), headers=json_body))
        work.append(client.chat("hi", rlm=rlm, headers=_as(EVE)))
        work.append(client.run(query="hi", context="x", run_id="another", headers=_as(EVE)))
        work.append(_upload(client, b"x" * 1_000_000, **_as(EVE)))
        work.append(client.chat("hi", headers=_as("a forged token")))
    for _ in range(10):
        _, writer = await _connect(client)
        slow.append(writer)
        host = client.base.removeprefix("http://")
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9999999\r\n"
        writer.write(f"{head}Authorization: Bearer {EVE}\r\n\r\n{{".encode())
    return [asyncio.create_task(each) for each in work]


async def test_other_tenants_are_answered_in_order_while_one_is_hostile(tmp_path: Path) -> None:
    model = Held(rules=[("ordinary", "an ordinary answer"), ("", submits("done"))])
    held = model.gate
    tokens = [_token("eve", EVE, max_concurrent_runs=3, max_tokens=10**7), _token("others", OTHERS)]
    limits: dict[str, Any] = {"max_concurrent_runs": 6, "max_queued": 4, "max_memory_bytes": MEMORY}
    async with server(tmp_path, model, tokens=tokens, max_files_bytes=QUOTA, **limits) as client:
        slow: list[asyncio.StreamWriter] = []
        attack = await _hostile(client, slow)
        async with asyncio.timeout(60):
            while sum(task.done() for task in attack) < len(attack) // 2:
                await asyncio.sleep(0.01)
        order: list[int] = []

        async def ordinary(number: int) -> Answer:
            answer = await client.chat(f"ordinary {number}", headers=_as(OTHERS))
            order.append(number)
            return answer

        held.set()
        answers = [await ordinary(number) for number in range(ORDINARY)]
        assert [answer.status for answer in answers] == [200] * ORDINARY
        assert order == list(range(ORDINARY))
        assert (await _upload(client, b"x" * 1_000_000, **_as(OTHERS))).status == 200
        got = await asyncio.gather(*attack)
        statuses = [answer.status for answer in got]
        assert set(statuses) <= {200, 202, 401, 409, 413, 429, 503}
        assert statuses.count(401) == 4
        kept = (await client.get("/v1/files", headers=_as(EVE))).json["data"]
        assert sum(each["bytes"] for each in kept) <= QUOTA
        async with asyncio.timeout(60):
            while client.service.admission.running or client.service.bodies.memory.used:
                await asyncio.sleep(0.01)
        used = client.service.ledger.used(tokens[0])
        assert 0 <= used.tokens <= 10**7
        assert not client.service.ledger._is_held("eve"), "nothing stays held"
        for writer in slow:
            writer.close()


def test_the_load_test_is_bounded_by_default() -> None:
    options = options_of([])
    assert set(PARTS) == {"server", "gateway", "viewer"}
    assert options.requests <= 1_000
    assert options.seconds <= 60


@pytest.mark.parametrize("sender", [EVE, "a forged token"])
async def test_a_flood_of_one_tenant_does_not_go_before_others(
    tmp_path: Path, sender: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rlm.server")
    asked = json.dumps({"model": "no-such-model", "messages": [{"role": "user", "content": "hi"}]})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {len(asked)}\r\n"
    head += "Host: x\r\nContent-Type: application/json\r\nAuthorization: Bearer"
    async with server(tmp_path, tokens=[_token("eve", EVE), _token("others", OTHERS)]) as client:
        senders = [await _connect(client) for _ in range(FLOOD + 1)]
        for token, (_, writer) in zip([sender] * FLOOD + [OTHERS], senders, strict=True):
            writer.write(f"{head} {token}\r\n\r\n{asked}".encode())  # All arrive together.
        answers = [(await reader.readline()).split()[1] for reader, _ in senders]
        for _, writer in senders:
            writer.close()
    refused = b"404" if sender == EVE else b"401"
    assert answers == [refused] * FLOOD + [b"404"]
    order = [line.split()[-2] for line in caplog.messages if line.startswith("POST /v1/chat")]
    assert len(order) == FLOOD + 1
    assert order.index("others") < FLOOD // 4
