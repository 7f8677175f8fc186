"""What the server tells of itself: health, figures, and its interface as it really is."""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rlm.messages import Price, Usage
from rlm.server.openapi import OPERATIONS
from rlm.server.routes import make_app
from rlm.testing.scripted import ScriptedClient
from tests.server.serving import LARGE, WITH_REPL, server, submits

jsonschema = pytest.importorskip("jsonschema")


async def test_health_says_when_the_server_closes(tmp_path: Path) -> None:
    async with server(tmp_path) as client:
        answer = await client.get("/health")
        assert (answer.status, answer.json["status"]) == (200, "ok")
        client.service.begin_to_close()
        answer = await client.get("/health")
        assert (answer.status, answer.json["status"]) == (503, "closing")
        refused = await client.chat("hi")
        assert (refused.status, refused.json["error"]["code"]) == (503, "shutting_down")
        assert refused.headers["Retry-After"]


async def test_figures_are_those_of_what_happened(tmp_path: Path) -> None:
    model = ScriptedClient(
        ["hi", submits("done"), RuntimeError("no")],
        price=Price(1_000.0, 1_000.0),
        usage=lambda *_: Usage(60, 12, requests=1),
    )
    async with server(tmp_path, model) as client:
        await client.chat("hi")
        await client.chat(LARGE)
        await client.chat("fails")
        await client.get("/v1/unknown/place")
        answer = await client.get("/metrics")
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            labels = ",".join(sample.labels[name] for name in sorted(sample.labels))
            found[f"{sample.name}[{labels}]"] = sample.value
    assert found["rlm_requests_total[POST,/v1/chat/completions,200]"] == 2
    assert found["rlm_requests_total[POST,/v1/chat/completions,502]"] == 1
    assert found["rlm_requests_total[GET,other,404]"] == 1
    assert found["rlm_runs_total[answer,direct]"] == 1
    assert found["rlm_runs_total[answer,rlm]"] == 1
    assert found["rlm_runs_total[error,direct]"] == 1
    assert found["rlm_tokens_total[input]"] == 120
    assert found["rlm_tokens_total[output]"] == 24
    assert found["rlm_cost_usd_total[]"] == pytest.approx(0.144)
    assert found["rlm_runs_in_flight[]"] == found["rlm_requests_queued[]"] == 0
    assert found["rlm_run_seconds_count[rlm]"] == 1


async def test_the_document_names_every_address_and_no_other(tmp_path: Path) -> None:
    async with server(tmp_path) as client:
        document = (await client.get("/openapi.json")).json
        app: Any = make_app(client.service)
        routes = {
            (method.lower(), route.path.replace(":path", ""))
            for route in app._app._app.routes
            for method in route.methods - {"HEAD"}
        }
    assert document["openapi"] == "3.1.0"
    described = {(m, path) for path, item in document["paths"].items() for m in item}
    assert described == routes == {(each.method, each.path) for each in OPERATIONS}


async def test_replies_are_as_the_document_says(tmp_path: Path) -> None:
    async with server(tmp_path, ScriptedClient(rules=[("", submits("x"))])) as client:
        document = (await client.get("/openapi.json")).json
        run = await client.run(query="what?")
        replies = {
            "Completion": await client.chat("hello"),
            "ModelList": await client.get("/v1/models"),
            "ModelObject": await client.get(f"/v1/models/{WITH_REPL}"),
            "Health": await client.get("/health"),
            "RunObject": run,
            "ErrorReply": await client.get("/v1/nothing"),
        }
    for name, answer in replies.items():
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        jsonschema.Draft202012Validator(schema).validate(answer.json)
