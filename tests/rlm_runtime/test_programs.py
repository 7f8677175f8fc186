"""What programs for rlm-runtime do: adapters of their own, names in cells, errors at limits."""

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import pytest

import rlm
import rlm_runtime
from rlm import ConfigError, LimitExceededError, ModelError
from rlm_runtime import RLM, Context, ModelResponse, Policy, Usage, policy, prompts
from rlm_runtime.adapters import FakeAdapter, base
from tests.shape.tree import ROOT

TEXT = "Here it begins. The key term is: oolong. Here it ends."
ERRORS = ("MaxStepsExceeded", "MaxSubcallsExceeded", "MaxRecursionExceeded", "MaxTokensExceeded")


# -- adapters --------------------------------------------------------------------------------------


class Script:
    """What the adapters below answer, one reply after the other."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.seen: list[Any] = []

    def next_reply(self, *given: Any) -> Any:
        self.seen.append(given)
        reply = self.script.pop(0)
        if isinstance(reply, str):
            return ModelResponse(text=reply, usage=Usage(100, 2, 102), model_id="mine")
        return reply


class Adapter(Script):
    def complete(
        self, messages: list[dict[str, str]], *, max_tokens: int = 512, temperature: float = 0.0
    ) -> Any:
        return self.next_reply(messages, max_tokens, temperature)


class OnlyMessages(Script):
    def complete(self, messages: Any) -> Any:
        return self.next_reply(messages)


class AnyOptions(Script):
    def complete(self, messages: Any, **options: Any) -> Any:
        assert options.keys() == {"max_tokens", "temperature"}
        return self.next_reply(messages, options)


class NoDefaults(Script):
    def complete(self, messages: Any, max_tokens: int, temperature: float) -> Any:
        return self.next_reply(messages, max_tokens, temperature)


class OfPrompts(Script):
    def complete(self, prompt: str) -> Any:
        assert isinstance(prompt, str)
        return self.next_reply(prompt)


class Asynchronous(Script):
    async def complete(self, messages: Any, **options: Any) -> Any:
        await asyncio.sleep(0)
        return self.next_reply(messages, options)


FORMS = [Adapter, OnlyMessages, AnyOptions, NoDefaults, OfPrompts, Asynchronous]


@pytest.mark.parametrize("form", FORMS)
def test_an_adapter_with_only_complete_is_a_model(form: type[Script]) -> None:
    adapter = form("x = llm_query('Summarize: ' + peek(4))", "a summary", "FINAL_VAR: x")
    answer, trace = RLM(adapter=adapter).run("Summarize.", Context.from_text(TEXT))
    assert answer == "a summary"
    assert [step.kind for step in trace.steps] == ["root_call", "subcall", "repl_exec", "root_call"]
    used = [step.usage for step in trace.steps if step.usage]
    assert [(each.input_tokens, each.output_tokens) for each in used] == [(100, 2)] * 3


def test_an_adapter_gets_messages_and_the_output_cap() -> None:
    adapter = Adapter("FINAL: 1")
    RLM(adapter=adapter, max_tokens=300).run("What?", TEXT)
    messages, cap, temperature = adapter.seen[0]
    assert [each["role"] for each in messages] == ["system", "user"]
    assert (cap, temperature) == (300, 0.0)


def test_sub_calls_may_use_another_adapter() -> None:
    root, sub = Adapter("x = llm_query('Say it')", "FINAL_VAR: x"), OnlyMessages("from the other")
    assert RLM(adapter=root, subcall_adapter=sub).run("Do it.", TEXT)[0] == "from the other"


@pytest.mark.parametrize(
    "reply",
    [
        ModelResponse("FINAL: 7"),
        SimpleNamespace(text="FINAL: 7", usage=None),
        SimpleNamespace(text="FINAL: 7", usage={"prompt_tokens": 3, "completion_tokens": 1}),
        {"text": "FINAL: 7"},
        {"choices": [{"message": {"role": "assistant", "content": "FINAL: 7"}}]},
    ],
)
def test_what_an_adapter_may_return(reply: Any) -> None:
    assert RLM(adapter=Adapter(reply)).run("What?", TEXT)[0] == "7"


@pytest.mark.parametrize(
    "reply",
    [None, 7, SimpleNamespace(text=None), SimpleNamespace(text="x", usage={"prompt_tokens": -1})],
)
def test_any_other_return_value_is_an_error_that_names_complete(reply: Any) -> None:
    with pytest.raises((ModelError, LimitExceededError), match="complete"):
        RLM(adapter=Adapter(*[reply] * 9)).run("What?", TEXT)


def test_a_setting_that_an_adapter_does_not_accept_is_reported() -> None:
    with pytest.raises((ConfigError, LimitExceededError), match="top_k"):
        RLM(adapter=Adapter("FINAL: 1"), sampling={"top_k": 3}).run("What?", TEXT)


def test_the_engine_accepts_adapters_too() -> None:
    adapter: Any = Adapter("FINAL(9)")
    with rlm.RLM(adapter) as engine:
        assert engine.ask("What?", TEXT).answer == "9"


def test_usage_can_be_estimated() -> None:
    assert base.estimate_usage("12345678", "12345").to_dict() == {
        "prompt_tokens": 2,
        "completion_tokens": 2,
        "total_tokens": 4,
    }


# -- names in cells --------------------------------------------------------------------------------


def shown(code: str, *, reply: str = "a reply", context: Any = TEXT) -> tuple[str, FakeAdapter]:
    adapter = FakeAdapter(script=[f"```repl\n{code}\n```", "FINAL: nothing"])
    adapter.add_rule("You are a sub-LLM", reply)
    answer, _ = RLM(adapter=adapter).run("Do it.", context)
    return answer, adapter


def asked(adapter: FakeAdapter) -> list[str]:
    subs = [r for r in adapter.requests if "sub-LLM" in str(r.messages[0].content)]
    return sorted(str(request.messages[-1].content) for request in subs)


def test_ask() -> None:
    answer, adapter = shown("FINAL(ask('Which?', 'a text', max_tokens=9))")
    assert answer == "a reply"
    assert asked(adapter) == ["a text\n\n---\nUse only the text above. Which?"]


@pytest.mark.parametrize(
    ("call", "caps"),
    [
        ("llm_query('q', max_tokens=9)", [9]),
        ("ask('Q', 'a', max_tokens=10)", [10]),
        ("ask_chunk('Q', 'a', max_tokens=11)", [11]),
        ("ask_chunks('Q', ['a', 'b'], max_tokens=12)", [12, 12]),
        ("ask_chunks_first('Q', ['a', 'b'], max_tokens=13)", [13]),
        ("llm_query_batch(['a', 'b'], max_tokens=14)", [14, 14]),
        ("llm_query_batched(['a'], max_tokens=15)", [15]),
        ("llm_query('q', max_tokens=10**9)", [4_096]),  # never more than the run allows
        ("llm_query('q')", [4_096]),
    ],
)
def test_max_tokens_caps_each_reply(call: str, caps: list[int]) -> None:
    _, adapter = shown(f"FINAL(str({call}))")
    subs = [r for r in adapter.requests if "sub-LLM" in str(r.messages[0].content)]
    assert [request.max_output_tokens for request in subs] == caps


@pytest.mark.parametrize("wrong", ["0", "-1", "1.5", "True", "'9'"])
def test_a_wrong_max_tokens_is_an_error_in_the_cell_and_nothing_is_sent(wrong: str) -> None:
    code = (
        f"try:\n    llm_query('q', max_tokens={wrong})\nexcept ValueError as e:\n    FINAL(str(e))"
    )
    answer, adapter = shown(code)
    assert answer.startswith("max_tokens must be an integer of at least 1, not ")
    assert asked(adapter) == []


@pytest.mark.parametrize(
    "call",
    [
        "ask_chunks('Q', ['a', 'b', 'a'])",
        "ask_chunks('Q', [(0, 1, 'a'), (1, 2, 'b'), (2, 3, 'a')], parallel=True)",
        "ask_chunked('Q', 'aba', chunk_size=1)",
        "llm_query_batch(['a', 'b', 'a'], 'Q')",
        "llm_query_batch('Q', ['a', 'b', 'a'])",
        "llm_query_batch(['a', 'b', 'a'], question='Q', max_tokens=64)",
    ],
)
def test_chunks_are_asked_once_each_and_answered_in_order(call: str) -> None:
    answer, adapter = shown(f"FINAL({call})")
    assert answer == str(["a reply"] * 3)
    assert asked(adapter) == [f"{text}\n\n---\nUse only the text above. Q" for text in "ab"]


def test_a_batch_without_a_question_sends_the_texts() -> None:
    answer, adapter = shown("FINAL([llm_query_batch(ctx, chunk_size=30), llm_query_batch([])])")
    assert answer == str([["a reply"] * 2, []])
    assert len(asked(adapter)) == 2


def test_the_first_usable_answer() -> None:
    replies = ["NO_ANSWER", "", "```\\nx\\n```", "y" * 81, "Answer: oolong", "later"]
    assert shown(f"FINAL(pick_first_answer({replies!r}))")[0] == "oolong"
    assert shown("FINAL(str(pick_first_answer([])))")[0] == "None"
    answer, adapter = shown("FINAL(ask_chunks_first('Q', ['a', 'b']))", reply="found it")
    assert (answer, len(asked(adapter))) == ("found it", 1)
    answer, adapter = shown("FINAL(str(ask_chunks_first('Q', ['a', 'b'])))", reply="NO_ANSWER")
    assert (answer, len(asked(adapter))) == ("None", 2)


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("'The key term is:'", "oolong"),
        ("'no such marker'", "None"),
        ("'it ends.'", "None"),
        ("'The key term is:', max_len=3", "oo"),
    ],
)
def test_extract_after(call: str, found: str) -> None:
    assert shown(f"FINAL(str(extract_after({call})))")[0] == found


def test_metadata_of_one_text() -> None:
    answer, _ = shown("FINAL([ctx.num_documents(), ctx.metadata(), ctx.len_chars()])")
    one = Context.from_text(TEXT)
    assert answer == str([1, one.metadata(), len(TEXT)])


def test_helpers_exist_in_every_cell_and_in_child_runs() -> None:
    adapter = FakeAdapter(
        script=["ask = None\nx = rlm_query('Count.', context='The total is: 12.')", "FINAL_VAR: x"]
    )
    adapter.add_rule("a str of 17 characters", "```repl\nFINAL(extract_after('is:'))\n```")
    runtime = RLM(adapter=adapter, policy=Policy(max_recursion_depth=2), setup_code="own = 5")
    assert runtime.run("Go.", TEXT)[0] == "12"


def test_setup_code_of_the_caller_runs_after_ours() -> None:
    script = ["FINAL(extract_after(marker))"]
    adapter = FakeAdapter(script=[f"```repl\n{each}\n```" for each in script])
    own = {"setup_code": "marker = 'is:'"}
    assert RLM(adapter=adapter, environment_kwargs=own).run("Go.", TEXT)[0] == "oolong"


def test_the_engines_own_prompt_does_not_mention_the_helpers() -> None:
    adapter = FakeAdapter(script=["FINAL(1)"])
    with rlm.RLM(adapter) as engine:
        engine.ask("What?", TEXT)
    words = set(re.findall(r"\w+", str(adapter.requests[0].messages[0].content)))
    assert not words & {"ask_chunks", "extract_after", "llm_query_batch", "num_documents"}


# -- limits and prompts ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ERRORS)
def test_errors_can_be_imported_from_policy(name: str) -> None:
    error = getattr(rlm_runtime, name)
    assert getattr(policy, name) is error
    assert issubclass(error, policy.PolicyError)
    assert issubclass(error, RuntimeError)
    assert issubclass(error, LimitExceededError)


def test_a_program_can_handle_an_exceeded_policy() -> None:
    adapter = FakeAdapter(script=["print(1)"] * 9)
    adapter.add_rule("no more code", "as far as I came")
    with pytest.raises(rlm_runtime.PolicyError) as raised:
        RLM(adapter=adapter, policy=Policy(max_steps=2)).run("Go on.", TEXT)
    assert type(raised.value) is rlm_runtime.MaxStepsExceeded


@pytest.mark.parametrize("name", ["LLAMA_SYSTEM_PROMPT", "TINYLLAMA_SYSTEM_PROMPT"])
def test_prompts_for_small_models(name: str) -> None:
    prompt = getattr(prompts, name)
    script = ["found = extract_after('The key term is:')", "FINAL_VAR: found"]
    adapter = FakeAdapter(script=script)
    runtime = RLM(adapter=adapter, system_prompt=prompt, require_repl_before_final=True)
    assert runtime.run("What is the key term?", Context.from_text(TEXT))[0] == "oolong"
    assert adapter.requests[0].messages[0].content == prompt


def test_prompts_are_part_of_the_package() -> None:
    folder = ROOT / "src" / "rlm_runtime"
    assert {path.stem for path in folder.glob("*.md")} == {"llama", "tinyllama"}
