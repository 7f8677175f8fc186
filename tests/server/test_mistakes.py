"""What is answered to requests that are wrong: a status, OpenAI's form, and the field."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlm.errors import ModelError
from rlm.limits import Limits
from rlm.testing.scripted import ScriptedClient
from tests.server.serving import WITH_REPL, Answer, server

ASKED = {"role": "user", "content": "hi"}


def _check(answer: Answer, status: int, param: str | None = None) -> dict[str, Any]:
    assert answer.status == status, answer.text
    error: dict[str, Any] = answer.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param, error
    return error


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"max_tokens": "many"}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"n": 2}, "n"),
        ({"temperature": 3}, "temperature"),
        ({"stream": "yes"}, "stream"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "messages[0].role"),
        ({"messages": [ASKED, {"content": "x"}]}, "messages[1].role"),
        ({"messages": [{"role": "user", "content": [{"type": "sound"}]}]}, None),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"rlm": {"contxt": "x"}}, "rlm.contxt"),
        ({"rlm": {"limits": {"max_steps": -1}}}, "rlm.limits.max_steps"),
        ({"rlm": {"limits": {"max_steps": 7}}}, "rlm.limits.max_steps"),
        ({"rlm": {"environment": "inprocess"}}, "rlm.environment"),
        ({"rlm": {"file_ids": ["file-x"]}}, "rlm.file_ids"),
        ({"rlm": {"route": "direct", "context": "x"}}, "rlm.route"),
        ({"rlm": {"run_id": "../etc/passwd"}}, "rlm.run_id"),
    ],
)
async def test_a_wrong_field_is_named(
    tmp_path: Path, more: dict[str, Any], param: str | None
) -> None:
    async with server(tmp_path) as client:
        body = {"model": WITH_REPL, "messages": [ASKED], **more}
        answer = await client.post("/v1/chat/completions", body)
    if "sound" in json.dumps(more):
        assert answer.json["error"]["param"].startswith("messages[0].content")
    else:
        _check(answer, 404 if "file_ids" in json.dumps(more) else 400, param)


async def test_a_missing_field_is_named_once(tmp_path: Path) -> None:
    async with server(tmp_path) as client:
        answer = await client.post("/v1/chat/completions", {"model": WITH_REPL})
    error = _check(answer, 400, "messages")
    assert (error["message"], error["code"]) == (
        "messages is missing",
        "missing_required_parameter",
    )


@pytest.mark.parametrize(
    ("path", "more", "told"),
    [
        ("chat/completions", {"rlm": {"contxt": "x"}}, "did you mean 'context'?"),
        ("chat/completions", {"rlm": {"limits": {"max_step": 1}}}, "did you mean 'max_steps'?"),
        ("chat/completions", {"n": 2}, "Invalid enum value 2 at n; it can only be 1"),
        (
            "chat/completions",
            {"messages": [{"role": "boss", "content": "x"}]},
            "at messages[0].role; choose one of ",
        ),
        ("responses", {"messages": None, "input": "x", "background": True}, "can only be false"),
        ("chat/completions", {"rlm": {"route": "x"}}, "at rlm.route; choose one of auto, "),
        ("runs", {"messages": None, "qery": "x"}, "did you mean 'query'?"),
        ("runs", {"messages": None, "query": "x", "zzz": 1}, "choose one of model, query, context"),
    ],
)
async def test_an_unknown_field_or_value_gets_a_suggestion(
    tmp_path: Path, path: str, more: dict[str, Any], told: str
) -> None:
    async with server(tmp_path) as client:
        given = {"model": WITH_REPL, "messages": [ASKED], **more}
        body = {name: value for name, value in given.items() if value is not None}
        answer = await client.post(f"/v1/{path}", body)
    assert answer.status == 400
    assert told in answer.json["error"]["message"]


async def test_a_base_url_without_v1_is_explained(tmp_path: Path) -> None:
    async with server(tmp_path) as client:
        wrong = await client.post("/chat/completions", {"model": WITH_REPL, "messages": [ASKED]})
        listed = await client.get("/models")
        nothing = await client.get("/elsewhere")
    for answer in (wrong, listed):
        assert "end the client's base URL in /v1" in _check(answer, 404)["message"]
    assert _check(nothing, 404)["message"].startswith("there is nothing at this address")


async def test_a_limit_above_the_operators_is_reported(tmp_path: Path) -> None:
    async with server(tmp_path, limits=Limits(max_steps=5)) as client:
        answer = await client.chat("x", rlm={"limits": {"max_steps": 50}})
    error = _check(answer, 400, "rlm.limits.max_steps")
    assert "at most 5" in error["message"]
    assert error["code"] == "limit_too_high"


async def test_unknown_parameters_of_openai_are_ignored(tmp_path: Path) -> None:
    async with server(tmp_path) as client:
        answer = await client.chat("hi", logprobs=True, service_tier="auto", user="me")
    assert answer.status == 200


async def test_an_unknown_model_is_not_found(tmp_path: Path) -> None:
    async with server(tmp_path) as client:
        error = _check(await client.chat("hi", model="rlm/gpt-9"), 404, "model")
        assert error["code"] == "model_not_found"
        _check(await client.get("/v1/models/nobody/knows"), 404, "model")


async def test_unknown_addresses_and_methods(tmp_path: Path) -> None:
    async with server(tmp_path) as client:
        _check(await client.get("/v1/unknown"), 404)
        _check(await client.get("/v1/models/"), 404, "model")
        answer = await client.get("/v1/chat/completions")
        _check(answer, 405)
        assert answer.headers["Allow"] == "POST"


async def test_bodies_that_are_no_json(tmp_path: Path) -> None:
    async with server(tmp_path) as client:
        path, headers = "/v1/chat/completions", {"Content-Type": "application/json"}
        for data in (b"{", b"", b"\xff\xfe", b"[" * 100_000):
            _check(await client.ask("POST", path, data=data, headers=headers), 400)
        _check(await client.ask("POST", path, data=b"model=x"), 415)


async def test_a_body_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async with server(tmp_path, max_body_bytes=10_000) as client:
        error = _check(await client.chat("x" * 20_000), 413)
        assert "/v1/files" in error["message"]

        async def endless() -> Any:
            while True:
                yield b" " * 1_000

        headers = {"Content-Type": "application/json"}
        answer = await client.ask("POST", "/v1/chat/completions", data=endless(), headers=headers)
        _check(answer, 413)


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (ModelError("slow down", status=429, retry_after_seconds=7), 429, "model_overloaded"),
        (ModelError("no top_k here", status=400), 400, "model_refused"),
        (ModelError("wrong key", status=401), 502, "model_failed"),
        (ModelError("no answer", status=504), 504, "model_timeout"),
        (RuntimeError("/srv/data/secret"), 502, "model_failed"),
    ],
)
async def test_what_the_model_failed_with(
    tmp_path: Path, failure: Exception, status: int, code: str
) -> None:
    async with server(tmp_path, ScriptedClient([failure])) as client:
        answer = await client.chat("hi")
    error = _check(answer, status)
    assert error["code"] == code
    assert "secret" not in answer.text
    if status == 429:
        assert answer.headers["Retry-After"] == "7"


async def test_a_long_name_is_not_repeated(tmp_path: Path) -> None:
    body = {"model": "rlm/m", "query": "q", "limits": {"x" * 500_000: 1}}
    async with server(tmp_path) as client:
        answer = await client.post("/v1/runs", body)
    error = answer.json["error"]
    assert answer.status == 400
    assert "limits" in error["message"]
    assert len(answer.text) < 20_000
