"""`backend_kwargs` does what it says, in every dialect; `max_budget` holds where it can."""

import logging
from typing import Any

import pytest

from rlm import RLM, BudgetExceededError, ConfigError, ModelError
from rlm.errors import UnknownPriceError
from rlm.limits import Limits
from rlm.testing.fake_server import Answer, FakeServer, Received
from tests.endpoint import endpoint
from tests.fakes import PlanEnvironment, cell

DONE = "FINAL(done)"
HEAVY = pytest.mark.heavy

BACKENDS = {
    "openai": {"model_name": "gpt-4o"},
    "openai /responses": {"model_name": "gpt-5-pro"},
    "vllm": {"model_name": "Qwen/Qwen3-8B"},
    "openrouter": {"model_name": "openai/gpt-5-mini"},
    "portkey": {"model_name": "@openai/gpt-4o"},
    "vercel": {"model_name": "openai/gpt-4o"},
    "groq": {"model_name": "llama-3.3-70b-versatile"},
    "azure_openai": {"model_name": "our-gpt", "api_version": "2024-10-21"},
    "anthropic": {"model_name": "claude-sonnet-4-5"},
    "gemini": {"model_name": "gemini-2.5-flash"},
}


def made(server: FakeServer, backend: str, **kwargs: Any) -> RLM:
    name = backend.partition(" ")[0]
    own = name in {"anthropic", "gemini", "azure_openai"}
    address = {"azure_endpoint" if name == "azure_openai" else "base_url": server.openai_url}
    if own:
        address = dict.fromkeys(address, server.url)
    options: dict[str, Any] = {**BACKENDS[backend], **address, "api_key": "k", **kwargs}
    keywords = options.pop("keywords", {})
    return RLM(name, options, environment=PlanEnvironment(), **keywords)


def asked(server: FakeServer) -> tuple[Received, dict[str, Any]]:
    (request,) = server.requests
    assert request.asked is not None
    return request, request.asked.body


@pytest.mark.parametrize("backend", BACKENDS)
def test_headers_query_and_extra_body_are_sent(backend: str) -> None:
    extra = {"body": {"extra_body": {"vendor_option": {"deep": 1}}}, "query": {"tenant": "a b"}}
    with FakeServer([DONE]) as server:
        one = made(
            server,
            backend,
            default_headers={"X-Team": "reading"},
            default_query=extra["query"],
            organization="org-7",
            sampling_args=extra["body"],
        )
        assert one.completion("c").response == "done"
        request, body = asked(server)
    headers = {name.lower(): value for name, value in request.headers.items()}
    assert headers["x-team"] == "reading"
    assert headers["openai-organization"] == "org-7"
    assert request.query["tenant"] == "a b"
    assert body["vendor_option"] == {"deep": 1}
    assert "extra_body" not in body


@pytest.mark.parametrize("backend", BACKENDS)
def test_sampling_and_the_output_cap_reach_the_body(backend: str) -> None:
    with FakeServer([DONE]) as server:
        one = made(server, backend, sampling_args={"temperature": 0.5}, max_tokens=9_999)
        one.completion("c")
        request, body = asked(server)
    assert request.asked is not None
    assert request.asked.max_output_tokens == 9_999
    assert 0.5 in (body.get("temperature"), body.get("generationConfig", {}).get("temperature"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_max_retries_does_not_count_the_first_attempt(backend: str) -> None:
    down = Answer(status=500, error="down", times=9, headers={"retry-after-ms": "1"})
    for retries, requests in ((0, 1), (1, 2)):
        with FakeServer([down]) as server:
            with pytest.raises(ModelError, match="HTTP 500"):
                made(server, backend, max_retries=retries).completion("c")
            assert server.count == requests


@pytest.mark.parametrize(
    "backend",
    [
        each if each in {"openai", "anthropic", "gemini"} else pytest.param(each, marks=HEAVY)
        for each in BACKENDS
    ],
)
def test_a_timeout_ends_one_attempt(backend: str) -> None:
    # On a busy machine, an attempt may end before the server sees it, or before its answer comes.
    with FakeServer([Answer(behaviour="never"), *[DONE] * 9]) as server:
        one = made(server, backend, timeout=0.3)
        assert one.completion("c").response == "done"
        assert server.count >= 2
    with FakeServer([Answer(behaviour="never", times=9)]) as server:
        with pytest.raises(ModelError, match=r"0\.3 s"):
            made(server, backend, timeout=0.3, max_retries=0).completion("c")
        assert server.count <= 1


def test_extra_headers_and_query_may_come_with_a_request() -> None:
    given = {"extra_headers": {"X-One": "1"}, "extra_query": {"two": "2"}}
    with FakeServer([DONE]) as server:
        made(server, "openai", sampling_args=given).completion("c")
        request, body = asked(server)
    assert {name.lower(): v for name, v in request.headers.items()}["x-one"] == "1"
    assert request.query == {"two": "2"}
    assert not body.keys() & given.keys()


def test_extra_body_cannot_override_the_cap() -> None:
    with FakeServer([DONE]) as server:
        given = {"extra_body": {"max_tokens": 64_000, "messages": [], "model": "other"}}
        made(server, "openai", keywords={"sampling_args": given}).completion("c")
        request, body = asked(server)
    assert request.asked is not None
    assert request.asked.max_output_tokens == Limits().step_output_tokens
    assert (body["model"], bool(body["messages"])) == ("gpt-4o", True)


def test_steps_and_calls_may_have_different_sampling() -> None:
    """Without a backend of their own, calls are sampled like steps, as in the reference."""
    for others, of_calls in (({}, 0.1), ({"sub_sampling_args": {"temperature": 0.9}}, 0.9)):
        script = [cell(["llm", 1]), "reply", DONE]
        with FakeServer(script) as server:
            keywords = {"sampling_args": {"temperature": 0.1}, **others}
            made(server, "openai", keywords=keywords).completion("c")
            bodies = [each.asked.body for each in server.requests if each.asked]
        assert [body["temperature"] for body in bodies] == [0.1, of_calls, 0.1]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            {"colour": "red"},
            "openai/gpt-4o has no option 'colour'; options: .*timeout, .*max_attempts, ",
        ),
        ({"timeuot": 3}, "has no option 'timeuot'; did you mean 'timeout'?"),
        ({"max_retrys": 3}, "has no option 'max_retrys'; did you mean 'max_retries'?"),
        (
            {"price": (1, 2)},
            r"has no option 'price'; pass prices=\{'openai/gpt-4o': \(IN, OUT\)\} to RLM",
        ),
        ({"max_retries": -1}, "max_retries must be at least 0"),
        ({"timeout": "soon"}, "timeout_seconds"),
        ({"timeout": 0}, "timeout_seconds"),
        ({"sampling_args": "hot"}, "sampling_args must be a dict"),
        ({"default_headers": {"X": "a\nb"}}, "line break"),
        ({"default_headers": {"X": 1}}, "must be a string"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_sent(
    wrong: dict[str, Any], words: str
) -> None:
    with FakeServer([DONE]) as server, pytest.raises(ConfigError, match=words):
        made(server, "openai", **wrong)


def test_options_of_native_clients_work_the_same_way() -> None:
    down = Answer(status=500, error="down", times=9, headers={"retry-after-ms": "1"})
    with FakeServer([down]) as server:
        options = {"base_url": server.openai_url, "max_attempts": 2, "query": {"a": 1}}
        one = RLM("vllm/m", environment=PlanEnvironment(), client_options={"vllm/m": options})
        with pytest.raises(ModelError):
            one.ask("q", "c")
        assert [each.query for each in server.requests] == [{"a": "1"}] * 2


# -- money ----------------------------------------------------------------------------------------


def on(url: str, backend: str, **keywords: Any) -> RLM:
    kwargs = {"model_name": "some/new-model", "base_url": url, "api_key": "k"}
    keywords.setdefault("environment", PlanEnvironment())
    return RLM(backend=backend, backend_kwargs=kwargs, **keywords)


def test_openrouters_own_cost_counts_against_max_budget() -> None:
    looks = iter([cell(["print", n]) for n in range(9)])
    with endpoint(lambda _: next(looks), cost=0.04) as server:
        with pytest.raises(BudgetExceededError) as stopped:
            on(server.url, "openrouter", max_budget=0.1).completion("c")
        assert len(server.bodies) == 3  # 0.12 is more than 0.1
    assert stopped.value.spent == pytest.approx(0.12)
    assert stopped.value.budget == 0.1
    with endpoint(lambda _: DONE, cost=0.04) as server:
        done = on(server.url, "openrouter", max_budget=0.1).completion("c")
    assert done.usage_summary.total_cost == 0.04


def test_a_local_server_is_free_unless_priced(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "rlm")
    with endpoint(lambda _: DONE) as server:
        done = on(server.url, "vllm", max_budget=0.000001).completion("c")
        assert (done.response, done.usage_summary.total_cost) == ("done", None)
        assert "max_budget" not in caplog.text
        prices = {"vllm/some/new-model": (5.0, 5.0)}
        priced = on(server.url, "vllm", max_budget=0.000001, prices=prices)
        with pytest.raises(BudgetExceededError):
            priced.completion("c")


def test_other_models_of_unknown_price_are_warned_about_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "rlm")
    one = on("http://models.invalid/v1", "openai", max_budget=1.0, max_tokens=50)
    warned = [each for each in caplog.messages if "max_budget" in each]
    assert len(warned) == 1
    assert "prices={'openai/some/new-model': (input, output)}" in warned[0]
    assert one.max_budget == 1.0
    assert one.max_tokens == 50  # still held


def test_our_own_limit_stays_strict() -> None:
    with endpoint(lambda _: DONE) as server:
        strict = on(server.url, "vllm", limits=Limits(max_cost_usd=1.0))
        with pytest.raises(UnknownPriceError):
            strict.completion("c")
        assert server.bodies == []
