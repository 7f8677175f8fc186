"""What the server reports about itself: health, metrics, and its OpenAPI document."""

import gc
import socket
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rlm.messages import Price, Usage
from rlm.server import serving
from rlm.server.openapi import OPERATIONS
from rlm.server.routes import make_app
from rlm.testing.scripted import ScriptedClient
from rlm.web.serving import WebServer, open_socket
from tests.server.serving import LARGE, WITH_REPL, server, submits

jsonschema = pytest.importorskip("jsonschema")


async def test_health_reports_that_the_server_is_closing(tmp_path: Path) -> None:
    async with server(tmp_path) as client:
        answer = await client.get("/health")
        assert (answer.status, answer.json["status"]) == (200, "ok")
        client.service.begin_to_close()
        answer = await client.get("/health")
        assert (answer.status, answer.json["status"]) == (503, "closing")
        refused = await client.chat("hi")
        assert (refused.status, refused.json["error"]["code"]) == (503, "shutting_down")
        assert refused.headers["Retry-After"]


async def test_what_is_loaded_is_not_searched_for_garbage_during_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[int] = []
    searched: list[bool] = []

    async def serve_nobody(_server: WebServer, _bound: socket.socket) -> None:
        searched.append(any(each is loaded for each in gc.get_objects()))

    monkeypatch.setattr(serving, "serve_until_signal", serve_nobody)
    async with server(tmp_path) as client:
        await serving.serve(client.service, open_socket("127.0.0.1", 0))
    assert searched == [False]


async def test_metrics_count_what_happened(tmp_path: Path) -> None:
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


async def test_the_openapi_document_names_exactly_the_routes(tmp_path: Path) -> None:
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


async def test_replies_match_the_openapi_document(tmp_path: Path) -> None:
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
