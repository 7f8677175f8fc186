"""A `BaseLM` is a model, `get_client` returns one, and programs' tests can replace it."""

import asyncio
from typing import Any
from unittest.mock import Mock, patch

import pytest

import rlm.core.rlm as reference_module
from rlm import RLM, BudgetExceededError, ConfigError
from rlm.clients import get_client
from rlm.clients.base_lm import BaseLM
from rlm.clients.openai import OpenAIClient
from rlm.core.lm_handler import LMHandler
from rlm.core.types import ModelUsageSummary, UsageSummary
from rlm.environments.local_repl import LocalREPL
from rlm.errors import ModelError
from rlm.testing.fake_server import FakeServer
from tests.compat.models import ScriptedLM
from tests.fakes import PlanEnvironment, cell

DONE = "```repl\nanswer['content'] = 'done'\nanswer['ready'] = True\n```"


def test_a_base_lm_can_be_a_model() -> None:
    lm = ScriptedLM(cell(["llm", 1], ["batch", 2]), "a", "b", "c", cell(["final", "done"]))
    with RLM(lm, environment=PlanEnvironment()) as one:
        done = one.completion("c", root_prompt="What?")
    assert (done.response, done.root_model) == ("done", "scripted")
    assert done.usage_summary.model_usage_summaries["scripted"].total_calls == 5
    assert done.usage_summary.total_input_tokens == 500
    assert done.usage_summary.total_output_tokens == 10
    steps, calls = lm.prompts[0], lm.prompts[1]
    assert [message["role"] for message in steps] == ["system", "user"]
    assert calls == "piece 0"  # a call is its prompt, as in the reference


@pytest.mark.parametrize("spelling", ["object", "class", "sub-model"])
def test_a_base_lm_can_be_given_in_every_place(spelling: str) -> None:
    keywords: dict[str, Any] = {"environment": PlanEnvironment()}
    script = [cell(["final", "done"])]
    one: Any = RLM
    if spelling == "object":
        made = one(backend=ScriptedLM(*script), **keywords)
    elif spelling == "class":
        made = one(backend=Named, backend_kwargs={"model_name": "mine"}, **keywords)
        assert made.config.model == "mine"
    else:
        made = one(ScriptedLM(*script), sub_model=ScriptedLM("x", name="sub"), **keywords)
        assert (made.config.model, made.config.sub_model) == ("scripted", "sub")
    assert made.completion("c").response == "done"


class Named(ScriptedLM):
    def __init__(self, model_name: str) -> None:
        super().__init__(cell(["final", "done"]), name=model_name)


def test_async_only_and_failing_base_lms() -> None:
    class Async(ScriptedLM):
        def completion(self, prompt: Any) -> str:
            raise NotImplementedError

        async def acompletion(self, prompt: Any) -> str:
            await asyncio.sleep(0)
            return super().completion(prompt)

    one = RLM(Async(cell(["final", "later"])), environment=PlanEnvironment())
    assert one.completion("c").response == "later"
    wrong: Any = [None]
    with pytest.raises(ModelError, match="returned NoneType, not a str"):
        RLM(ScriptedLM(*wrong), environment=PlanEnvironment()).completion("c")
    unfinished: Any = BaseLM
    with pytest.raises(TypeError, match="abstract"):
        unfinished("m")


def test_the_cost_counted_by_a_base_lm_is_limited() -> None:
    looks = [cell(["print", n]) for n in range(9)]
    lm = ScriptedLM(*looks, cost=0.04)
    keywords: dict[str, Any] = {"environment": PlanEnvironment(), "max_budget": 0.1}
    one: Any = RLM
    with pytest.raises(BudgetExceededError) as stopped:
        one(lm, backend_kwargs=None, **keywords, prices={"scripted": (0, 0)}).completion("c")
    assert len(lm.prompts) == 3
    assert stopped.value.spent == pytest.approx(0.12)


def test_earlier_usage_of_a_base_lm_is_not_billed_again() -> None:
    lm = ScriptedLM("x", cell(["final", "1"]), cell(["final", "2"]))
    lm.completion("before")
    for _ in range(2):
        done = RLM(lm, environment=PlanEnvironment()).completion("c")
        assert done.usage_summary.total_input_tokens == 100


def test_get_client_answers_texts_and_messages_and_counts() -> None:
    counted = {"reply": "one", "usage": {"input_tokens": 7, "output_tokens": 3}}
    with FakeServer([counted, "two"]) as server:
        kwargs = {"model_name": "gpt-4o", "base_url": server.openai_url, "api_key": "k"}
        client = get_client("openai", {**kwargs, "sampling_args": {"temperature": 0}})
        assert client.completion("hello") == "one"
        last = client.get_last_usage()
        assert (last.total_calls, last.total_input_tokens, last.total_output_tokens) == (1, 7, 3)
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
        assert asyncio.run(client.acompletion(messages)) == "two"
        bodies = [each.asked.body for each in server.requests if each.asked]
    assert [message["role"] for message in bodies[1]["messages"]] == ["system", "user"]
    assert {body["temperature"] for body in bodies} == {0}
    assert client.get_usage_summary().model_usage_summaries["gpt-4o"].total_calls == 2
    assert client.model_name == "gpt-4o"


def test_a_client_can_ask_another_model_of_its_backend() -> None:
    with FakeServer(["a", "b"]) as server:
        client = OpenAIClient(api_key="k", model_name="gpt-4o", base_url=server.openai_url)
        client.completion("x")
        client.completion("y", model="gpt-4o-mini")
        assert [each.asked.model for each in server.requests if each.asked] == [
            "gpt-4o",
            "gpt-4o-mini",
        ]
    assert set(client.get_usage_summary().model_usage_summaries) == {"gpt-4o", "gpt-4o-mini"}


@pytest.mark.parametrize(
    ("backend", "kwargs", "words"),
    [
        ("opanai", {"model_name": "m"}, "there is no provider 'opanai'"),
        ("opnai", {}, "there is no provider 'opnai'; did you mean 'openai'?"),
        ("nowhere", {}, "there is no provider 'nowhere'; providers: .*openai"),
        ("openai", {}, "needs a model"),
        ("openai", {"model_name": "m", "colour": 1}, "has no option 'colour'"),
    ],
)
def test_an_impossible_client_is_refused(backend: str, kwargs: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        get_client(backend, kwargs)
    assert isinstance(error.value, ConfigError)


def mock_of(*replies: str) -> Mock:
    """A model as programs' tests for the reference make them."""
    mock = Mock()
    mock.model_name = "mock"
    mock.completion.side_effect = list(replies)
    used = ModelUsageSummary(total_calls=1, total_input_tokens=100, total_output_tokens=50)
    mock.get_usage_summary.return_value = UsageSummary(model_usage_summaries={"mock": used})
    return mock


def test_a_programs_tests_may_replace_get_client() -> None:
    keywords: dict[str, Any] = {"backend": "openai", "backend_kwargs": {"model_name": "test"}}
    with patch.object(reference_module, "get_client") as factory:
        factory.return_value = mock = mock_of("```repl\nx = 6 * 7\nprint(x)\n```", DONE)
        with RLM(**keywords, persistent=True) as one:
            assert one.completion("Compute it").response == "done"
            mock.completion.side_effect = ["```repl\nprint(x + 1)\n```", DONE]
            done = one.completion("Go on")
    assert (done.response, done.root_model) == ("done", "test")
    assert factory.call_args.args == ("openai", {"model_name": "test"})
    assert "43" in str(mock.completion.call_args.args[0])


def test_a_handler_answers_the_calls_of_a_repl() -> None:
    lm = ScriptedLM(lambda prompt: f"re:{prompt}")
    other = ScriptedLM("from the other", name="other")
    handler = LMHandler(lm, other_backend_client=None)
    handler.register_client("other", other)
    with handler, LocalREPL(lm_handler_address=handler.address) as repl:
        repl.execute_code("a = llm_query('x')\nb = llm_query_batched(['y', 'z'])")
        done = repl.execute_code("c = llm_query('q', model='other')")
        assert (repl.locals["a"], repl.locals["b"]) == ("re:x", ["re:y", "re:z"])
        assert repl.locals["c"] == "from the other"
        assert [call.response for call in done.rlm_calls] == ["from the other"]
        handler.stop()
        repl.execute_code("d = llm_query('x')")
        assert "no LMHandler" in repl.locals["d"]
    assert handler.get_usage_summary().total_input_tokens == 400
