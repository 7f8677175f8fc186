"""The adapters over real HTTP: any schema, the right headers, time-outs and retries."""

import re
import threading
from typing import Any

import pytest

from rlm.errors import ConfigError, ModelError
from rlm_runtime import RLM, Context
from rlm_runtime.adapters import FakeAdapter, GenericChatAdapter, OpenAICompatAdapter
from tests.endpoint import endpoint
from tests.rlm_runtime.json_server import json_server

LOOK = "word = peek(5)\nreply = llm_query('Repeat: ' + word)"
TEXT = Context.from_text("Hello from a text that stays where it is.")


def scripted(system: str) -> str:
    """What a model says that keeps to the protocol: code first, then the variable."""
    if system.startswith("You are a sub-LLM"):
        return "repeated"
    return "FINAL_VAR: reply"


# -- a schema that is not OpenAI's -----------------------------------------------------------------


def build(
    messages: list[dict[str, str]], max_tokens: int, temperature: float, model: str | None
) -> dict[str, Any]:
    """Build a request for a server that knows neither `messages` nor `choices`."""
    turns = [[message["role"].upper(), message["content"]] for message in messages]
    config = {"len": max_tokens, "heat": temperature}
    return {"engine": model, "dialogue": turns, "config": config}


def parse(data: dict[str, Any]) -> tuple[str, dict[str, int]]:
    cost = data["billing"]
    return data["out"][0]["t"], {"prompt_tokens": cost["in"], "completion_tokens": cost["out"]}


def oddly(body: dict[str, Any]) -> tuple[int, object]:
    turns = body["dialogue"]
    said = LOOK if len(turns) == 2 and "sub-LLM" not in turns[0][1] else scripted(turns[0][1])
    return 200, {"out": [{"t": said}], "billing": {"in": 70, "out": 7}}


def test_an_endpoint_with_its_own_schema() -> None:
    with json_server(oddly) as server:
        adapter = GenericChatAdapter(
            endpoint=f"{server.url}/v2/talk",
            model="odd-1",
            api_key="secret-key",
            headers={"X-Tenant": "seven"},
            payload_builder=build,
            response_parser=parse,
        )
        runtime = RLM(adapter=adapter)
        answer, trace = runtime.run("Repeat the first word.", TEXT)
        runtime.close()
    assert answer == "repeated"
    assert {request.path for request in server.requests} == {"/v2/talk"}
    assert {request.headers["authorization"] for request in server.requests} == {
        "Bearer secret-key"
    }
    assert {request.headers["x-tenant"] for request in server.requests} == {"seven"}
    first, sub_call = server.requests[0].body, server.requests[1].body
    assert first.keys() == {"engine", "dialogue", "config"}
    assert first["engine"] == "odd-1"
    assert first["config"]["len"] > 0
    assert first["dialogue"][0][0] == "SYSTEM"
    assert sub_call["dialogue"][0][1].startswith("You are a sub-LLM")
    assert sub_call["dialogue"][1] == ["USER", "Repeat: Hello"]
    assert [step.usage.input_tokens for step in trace.steps if step.usage] == [70, 70, 70]
    assert "secret-key" not in trace.to_json()


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"out": []}, "response_parser: KeyError"),
        ({"out": [{"t": None}], "billing": {"in": 1, "out": 1}}, "NoneType, not a string"),
        ([1, 2], "malformed"),
    ],
)
def test_an_unexpected_response_is_described(payload: object, words: str) -> None:
    with json_server(lambda _: (200, payload)) as server:
        adapter = GenericChatAdapter(
            endpoint=server.url, payload_builder=build, response_parser=parse, max_retries=0
        )
        runtime = RLM(adapter=adapter)
        with pytest.raises(ModelError, match=words):
            runtime.run("Anything?", TEXT)
        runtime.close()
    assert len(server.requests) == 1


# -- OpenAI's dialect, and what is not sent --------------------------------------------------------


def chat(body: dict[str, Any]) -> str:
    messages = body["messages"]
    is_first = len(messages) == 2 and "sub-LLM" not in messages[0]["content"]
    return LOOK if is_first else scripted(messages[0]["content"])


def test_no_auth_header_is_sent_without_a_key() -> None:
    with endpoint(chat) as server:
        runtime = RLM(adapter=OpenAICompatAdapter("llama", base_url=server.url))
        assert runtime.run("Repeat the first word.", TEXT)[0] == "repeated"
        runtime.close()
    assert server.keys == [None, None, None]
    assert {body["model"] for body in server.bodies} == {"llama"}


@pytest.mark.parametrize(
    ("variables", "key"),
    [
        ({"OPENAI_API_KEY": "sk-open"}, "Bearer sk-open"),
        ({"OPENAI_API_KEY": "sk-open", "LLM_API_KEY": "sk-llm"}, "Bearer sk-llm"),
        ({"LLM_API_KEY": ""}, None),
    ],
)
def test_key_and_address_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], key: str | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with endpoint(chat) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
        monkeypatch.setenv("LLM_BASE_URL", server.url)
        runtime = RLM(adapter=OpenAICompatAdapter("gpt-x"))
        runtime.run("Repeat the first word.", TEXT)
        runtime.close()
        monkeypatch.delenv("LLM_BASE_URL")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        runtime = RLM(adapter=OpenAICompatAdapter("gpt-x"))
        runtime.run("Repeat the first word.", TEXT)
        runtime.close()
    assert set(server.keys) == {key}
    assert len(server.keys) == 6


def test_base_url_and_path_make_the_endpoint() -> None:
    said = {"choices": [{"message": {"content": "FINAL: 4"}}]}
    with json_server(lambda _: (200, said)) as server:
        adapter = GenericChatAdapter(base_url=f"{server.url}/api/", path="say")
        runtime = RLM(adapter=adapter)
        assert runtime.run("2 + 2?", TEXT)[0] == "4"
        runtime.close()
    assert [request.path for request in server.requests] == ["/api/say"]


def test_temporary_failures_are_retried_max_retries_times() -> None:
    with json_server(lambda _: (503, {"error": {"message": "busy"}})) as server:
        runtime = RLM(adapter=GenericChatAdapter(endpoint=server.url, max_retries=2))
        with pytest.raises(ModelError, match="busy"):
            runtime.run("Anything?", TEXT)
        runtime.close()
    assert len(server.requests) == 3


def test_a_slow_server_times_out() -> None:
    release = threading.Event()

    def wait(_: dict[str, Any]) -> tuple[int, object]:
        release.wait(30)
        return 200, {}

    with json_server(wait) as server:
        adapter = GenericChatAdapter(endpoint=server.url, timeout=0.05, max_retries=0)
        runtime = RLM(adapter=adapter)
        with pytest.raises(ModelError, match=r"within 0\.05 s"):
            runtime.run("Anything?", TEXT)
        release.set()
        runtime.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "the base URL must start with http"),
        ({"endpoint": "http://127.0.0.1:1", "timeout": 0.0}, "positive timeout"),
        ({"endpoint": "http://127.0.0.1:1", "max_retries": -1}, "at least one attempt"),
    ],
)
def test_wrong_settings_are_refused_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        GenericChatAdapter(**options)


def test_differently_configured_adapters_have_different_cache_identities() -> None:
    def other(*given: Any) -> dict[str, Any]:
        return {**build(*given), "persona": "pirate"}

    url = "http://127.0.0.1:1"
    usual: dict[str, Any] = {"endpoint": url, "model": "a", "payload_builder": build}
    changes: list[dict[str, Any]] = [
        *({}, {"endpoint": f"{url}/v2"}, {"model": "b"}, {"payload_builder": other}),
        *({"headers": {"X-Tenant": "seven"}}, {"response_parser": parse}),
    ]
    adapters = [GenericChatAdapter(**{**usual, **changed}) for changed in changes]
    assert len({adapter.identity for adapter in adapters}) == len(adapters)
    same = GenericChatAdapter(**usual, api_key="who pays does not matter")
    assert same.identity == adapters[0].identity


# -- the fake --------------------------------------------------------------------------------------


def test_rules_are_tried_before_the_script() -> None:
    prompts = ["say-1", "say-22", "SAY-3", "say-four"]
    code = f"answers = [llm_query(prompt) for prompt in {prompts}]"
    adapter = FakeAdapter(script=[code, "by the script", "FINAL_VAR: answers"])
    adapter.add_rule(r"say-\d\d$", "by a regex", regex=True)
    adapter.add_rule(re.compile(r"(?i)say-3$"), "by a compiled regex")
    adapter.add_rule("exactly.\nsay-1", "by a substring")
    answer, _ = RLM(adapter=adapter).run("Which rules?", TEXT)
    assert answer == str(["by a substring", "by a regex", "by a compiled regex", "by the script"])


def test_a_used_up_script_is_reported() -> None:
    with pytest.raises(ModelError, match="the script for FakeAdapter is exhausted"):
        RLM(adapter=FakeAdapter()).run("Anything?", TEXT)
