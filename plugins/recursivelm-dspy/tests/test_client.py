"""Models of dspy drive the engine's loop."""

import dspy
import pytest
from recursivelm_dspy import DspyClient
from scripted import by_rule, cell, scripted, text_of

from rlm import RLM, ConfigError
from rlm.errors import ModelError
from rlm.messages import Message, Request, ToolSpec
from rlm.testing.fake_server import FakeServer


def test_a_model_drives_a_run() -> None:
    lm, asked = scripted(cell("print(len(context))"), cell("FINAL(llm_query('hi'))"), "hello")
    with RLM(DspyClient(lm)) as rlm:
        result = rlm.ask("What?", "text")
    assert (result.answer, result.steps, len(asked)) == ("hello", 2, 3)
    assert (result.usage.total.input_tokens, result.usage.total.requests) == (300, 3)
    assert text_of(asked[0]) != text_of(asked[1])


async def test_settings_reach_the_model_and_unknown_ones_are_refused() -> None:
    lm, asked = scripted("one", "two")
    lm.kwargs |= {"temperature": 0.7, "max_tokens": 50, "rollout_id": 3}
    client = DspyClient(lm)
    request = Request(
        model="m",
        messages=(Message("system", "rules"), Message("user", "hi")),
        max_output_tokens=100,
        sampling={"temperature": 0.5, "stop": "END", "seed": 1},
        tools=(ToolSpec("python", "runs code", {"type": "object", "properties": {}}),),
    )
    assert (await client.complete(request, timeout_seconds=5)).text == "one"
    config = asked[0].config
    assert (config.max_tokens, config.temperature, config.seed) == (50, 0.5, 1)
    assert config.stop == ("END",)
    assert [tool.name for tool in asked[0].tools] == ["python"]
    plain = Request(model="m", messages=(Message("user", "hi"),), max_output_tokens=20)
    await client.complete(plain, timeout_seconds=5)
    assert (asked[1].config.max_tokens, asked[1].config.temperature) == (20, 0.7)
    bad = Request(
        model="m", messages=(Message("user", "hi"),), max_output_tokens=1, sampling={"typo": 1}
    )
    with pytest.raises(ConfigError, match="no setting for 'typo'; options: frequency_penalty"):
        await client.complete(bad, timeout_seconds=5)


def test_only_dspy_retries_and_not_the_engine() -> None:
    lm, asked = scripted(*[dspy.LMServerError("overloaded", model="scripted/model")] * 9)
    client = DspyClient(lm)
    with RLM(client) as rlm, pytest.raises(ModelError, match="overloaded"):
        rlm.ask("What?", "text")
    assert len(asked) == 1, "num_retries is 0 here"
    assert isinstance(client.failure, dspy.LMServerError)


def test_a_real_provider_is_reached_with_its_own_address_and_key() -> None:
    with FakeServer([cell("FINAL(len(context))")]) as server:
        lm = dspy.LM("openai/gpt-5-mini", api_base=server.openai_url, api_key="fake", cache=False)
        client = DspyClient(lm)
        assert client.info("gpt-5-mini").window_tokens
        with RLM(client) as rlm:
            result = rlm.ask("How long is it?", "12345")
        assert (result.answer, server.count) == ("5", 1)
        assert result.usage.total.output_tokens > 0
        assert len(lm.history) == 1


def test_an_older_model_class_with_forward_works() -> None:
    class Old(dspy.BaseLM):
        def forward(
            self, prompt: object = None, messages: object = None, **given: object
        ) -> object:
            from dspy.dsp.utils.utils import dotdict

            message = dotdict(content="FINAL(ok)", tool_calls=None)
            choice = dotdict(message=message, finish_reason="stop")
            return dotdict(
                choices=[choice],
                usage=dotdict(prompt_tokens=3, completion_tokens=1, total_tokens=4),
                model="old",
            )

    with pytest.warns(DeprecationWarning, match="custom LMs"), RLM(DspyClient(Old("old"))) as rlm:
        assert rlm.ask("What?").answer == "ok"


def test_an_object_that_is_not_a_model_is_refused() -> None:
    for wrong in (None, "openai/gpt-5-mini", print):
        with pytest.raises(ConfigError, match=r"a dspy model must be a dspy\.LM, not"):
            DspyClient(wrong)


def test_dspys_cache_answers_the_same_question_once() -> None:
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    lm, asked = by_rule(lambda _: "FINAL(ok)")
    for _ in range(2):
        with RLM(DspyClient(lm)) as rlm:
            assert rlm.ask("What?").answer == "ok"
    assert len(asked) == 1
