"""`rlm_runtime.RLM`: replies in every shape, policies that hold, replay, guards, one engine."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlm import LimitExceededError, ReplyCache
from rlm.worker.repl_names import REPL_NAMES
from rlm_runtime import (
    LLAMA_SYSTEM_PROMPT,
    RLM,
    Context,
    MaxStepsExceeded,
    MaxTokensExceeded,
    Policy,
)
from rlm_runtime.adapters import FakeAdapter
from tests.shape.tree import ONE_PROCESS, ROOT, SOURCE, load_modules

MAX_LINES = 400
TEXT = Context.from_text("RLMs treat long prompts as environment state.")
ASK = "answer = llm_query('Summarize: ' + peek(4))"


def fake(*script: str, sub: str = "fake summary") -> FakeAdapter:
    adapter = FakeAdapter(script=script)
    adapter.add_rule("You are a sub-LLM", sub)
    return adapter


# -- replies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [ASK, f"```python\n{ASK}\n```", f"I look.\n```repl\n{ASK}\n```"])
@pytest.mark.parametrize(
    "end", ["FINAL_VAR: answer", "```\nFINAL_VAR: answer\n```", "FINAL_VAR(answer)"]
)
def test_code_and_finals_with_and_without_fences(code: str, end: str) -> None:
    assert RLM(adapter=fake(code, end)).run("Summarize.", TEXT)[0] == "fake summary"


def test_a_labelled_final_ends_the_run() -> None:
    adapter = fake("print(lenP())", "FINAL: it has\n45 characters")
    assert RLM(adapter=adapter).run("How long?", TEXT)[0] == "it has\n45 characters"


def test_cells_can_use_the_text_and_its_helpers() -> None:
    code = "FINAL([P[:4], peek(4), tail(6), lenP(), ctx.find('long')[0], ctx.slice(-5, 4)])"
    answer, _ = RLM(adapter=fake(f"```repl\n{code}\n```")).run("What is there?", TEXT)
    assert answer == str(["RLMs", "RLMs", "state.", 45, (11, 15, "long"), "RLMs"])


def test_cells_can_use_several_documents_and_their_text() -> None:
    code = (
        "FINAL([P, lenP(), len(context), ctx.num_documents(), ctx.get_document(1), ctx.metadata()])"
    )
    several = Context.from_documents(["one", "three"])
    answer, _ = RLM(adapter=fake(f"```repl\n{code}\n```")).run("Which?", several)
    assert answer == str([several.text, len(several.text), 2, 2, "three", several.metadata()])


def test_the_text_is_not_in_any_message_unless_code_printed_it() -> None:
    adapter = fake("x = lenP()", "FINAL: done")
    RLM(adapter=adapter).run("Do it.", TEXT)
    assert not [r for r in adapter.requests if "environment state" in str(r.messages)]


def test_sub_calls_can_go_to_another_adapter() -> None:
    root, sub = fake(ASK, "FINAL_VAR: answer"), FakeAdapter(script=["from the other"])
    root.rules.clear()
    assert RLM(adapter=root, subcall_adapter=sub).run("Do it.", TEXT)[0] == "from the other"
    assert str(sub.requests[0].messages[0].content).startswith("You are a sub-LLM")


async def test_run_and_arun_work_inside_a_loop_and_concurrently() -> None:
    runtime = RLM(adapter=FakeAdapter(script=["FINAL: same"] * 6))
    answers = await asyncio.gather(*(runtime.arun("Say it.", TEXT) for _ in range(5)))
    assert [answer for answer, _ in answers] == ["same"] * 5
    assert (await asyncio.to_thread(runtime.run, "Say it.", "a mere text"))[0] == "same"


# -- policies --------------------------------------------------------------------------------------


def test_the_defaults_of_a_policy() -> None:
    policy = Policy()
    assert (policy.max_steps, policy.max_subcalls) == (40, 200)
    assert (policy.max_recursion_depth, policy.max_total_tokens) == (1, 200_000)


def test_the_step_limit_is_enforced() -> None:
    adapter = FakeAdapter(script=[f"print({n})" for n in range(9)])
    with pytest.raises(MaxStepsExceeded) as raised:
        RLM(adapter=adapter, policy=Policy(max_steps=3)).run("Go on.", TEXT)
    trace = raised.value.trace
    assert (trace.stop_reason, trace.limit) == ("steps", "steps")
    assert sum(step.kind == "repl_exec" for step in trace.steps) == 3
    assert raised.value.partial_answer == "2"


MANY = "replies = []\nfor n in range(50):\n    replies.append(llm_query(f'Number {n}'))"


@pytest.mark.parametrize(
    ("policy", "sent"), [(Policy(max_subcalls=4), 4), (Policy(max_recursion_depth=0), 0)]
)
def test_the_sub_call_limit_is_enforced_and_a_policy_can_be_reused(
    policy: Policy, sent: int
) -> None:
    for _ in range(2):
        adapter = fake(MANY, "FINAL_VAR: len(replies)", "FINAL: enough")
        _, trace = RLM(adapter=adapter, policy=policy).run("Ask on.", TEXT)
        asked = [r for r in adapter.requests if "sub-LLM" in str(r.messages[0].content)]
        assert len(asked) == sent
        cell = next(step for step in trace.steps if step.kind == "repl_exec")
        assert (cell.error or "").startswith("MaxSubcallsExceeded: ")
        assert "max_calls" in (cell.error or "")


def test_cells_can_catch_the_limit_by_its_name_or_as_a_failed_call() -> None:
    code = """
caught = []
for error in (MaxSubcallsExceeded, CallFailed, RuntimeError):
    try:
        llm_query("one more")
    except error as found:
        caught.append(type(found).__name__)
batch = llm_query_batch(["a", "b"])
caught += [type(each).__name__ for each in batch] + [each.limit for each in batch]
FINAL(caught)
"""
    policy = Policy(max_subcalls=0)
    answer, _ = RLM(adapter=fake(f"```repl{code}```"), policy=policy).run("Ask on.", TEXT)
    assert answer == str(["MaxSubcallsExceeded"] * 3 + ["FailedReply"] * 2 + ["calls"] * 2)


def test_each_run_of_one_object_has_the_whole_policy() -> None:
    adapter = fake(*[MANY, "FINAL: enough"] * 2)
    runtime = RLM(adapter=adapter, policy=Policy(max_subcalls=4))
    for _ in range(2):
        _, trace = runtime.run("Ask on.", TEXT)
        answered = [s for s in trace.steps if s.kind == "subcall" and not s.error]
        assert len(answered) == 4


def test_the_token_limit_is_checked_before_sending() -> None:
    policy = Policy(max_total_tokens=20_000)
    adapter = fake(*["print('x' * 9_000)"] * 40, sub="short")
    with pytest.raises(MaxTokensExceeded, match="max_tokens") as raised:
        RLM(adapter=adapter, policy=policy).run("Read on.", TEXT)
    trace = raised.value.trace
    assert trace.limit == "tokens"
    used = sum(step.usage.total_tokens for step in trace.steps if step.usage)
    assert 0 < used <= 20_000


def test_a_token_limit_too_small_for_any_answer_sends_nothing() -> None:
    adapter = fake("FINAL: 1")
    with pytest.raises(LimitExceededError, match=r"need [\d,]+ tokens \(max_tokens"):
        RLM(adapter=adapter, policy=Policy(max_total_tokens=100)).run("Anything?", TEXT)
    assert adapter.requests == []


@pytest.mark.parametrize(("depth", "kinds"), [(1, {"subcall"}), (2, {"recursive_subcall"})])
def test_recursion_is_limited_by_the_policy(depth: int, kinds: set[str]) -> None:
    adapter = fake("answer = rlm_query('Count.', context='abc')", "FINAL_VAR: answer", sub="plain")
    adapter.add_rule("a str of 3 characters", "```repl\nFINAL(len(context))\n```")
    answer, trace = RLM(adapter=adapter, policy=Policy(max_recursion_depth=depth)).run("Go.", TEXT)
    assert answer == ("plain" if depth == 1 else "3")
    assert {step.kind for step in trace.steps if "subcall" in step.kind} == kinds
    if depth == 2:
        assert {"sub_root_call", "sub_repl_exec"} <= {step.kind for step in trace.steps}


# -- guards and prompts ----------------------------------------------------------------------------


def test_an_answer_before_any_code_can_be_refused() -> None:
    script = ["FINAL: a guess", "print(peek(4))", "FINAL: looked"]
    assert RLM(adapter=fake(*script)).run("What?", TEXT)[0] == "a guess"
    adapter = fake(*script)
    strict = RLM(adapter=adapter, system_prompt=LLAMA_SYSTEM_PROMPT, require_repl_before_final=True)
    assert strict.run("What?", TEXT)[0] == "looked"
    assert adapter.requests[0].messages[0].content == LLAMA_SYSTEM_PROMPT


def test_the_strict_prompt_names_only_existing_functions() -> None:
    known = {name.name for name in REPL_NAMES}
    calls = set(re.findall(r"(?<![.\w])([A-Za-z]\w*)\(", LLAMA_SYSTEM_PROMPT)) - {"print"}
    assert calls == {"peek", "tail", "lenP", "llm_query"}
    assert calls | {"P", "ctx", "FINAL", "FINAL_VAR"} <= known


def test_an_unknown_keyword_is_reported_at_once() -> None:
    with pytest.raises(TypeError, match="max_stepz"):
        RLM(adapter=fake(), max_stepz=3)


def test_max_tokens_caps_each_reply() -> None:
    adapter = fake("FINAL: 1")
    RLM(adapter=adapter, max_tokens=512).run("What?", TEXT)
    assert adapter.requests[0].max_output_tokens == 512


# -- replay ----------------------------------------------------------------------------------------


def ask(adapter: FakeAdapter, cache: Any) -> tuple[str, list[bool]]:
    runtime = RLM(adapter=adapter, cache=cache)
    answer, trace = runtime.run("Summarize.", TEXT)
    runtime.close()
    return answer, [step.cache_hit for step in trace.steps if step.kind == "subcall"]


def test_cached_sub_calls_are_not_repeated_and_the_script_continues(tmp_path: Path) -> None:
    script = (ASK, "FINAL_VAR: answer")
    assert ask(fake(*script), tmp_path) == ("fake summary", [False])
    adapter = fake(*script)
    assert ask(adapter, str(tmp_path)) == ("fake summary", [True])
    assert len(adapter.requests) == 2  # the steps were requested, the sub-call was not


def test_the_cache_keeps_replies_of_different_models_apart(tmp_path: Path) -> None:
    script = (ASK, "FINAL_VAR: answer")
    assert ask(fake(*script, sub="of A"), tmp_path) == ("of A", [False])
    assert ask(fake(*script, sub="of B"), tmp_path) == ("of B", [False])
    assert ask(fake(*script, sub="of A"), tmp_path) == ("of A", [True])


def test_a_reply_cache_of_the_caller_is_used_unchanged(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path, always=True)
    script = (ASK, "FINAL_VAR: answer")
    ask(fake(*script), cache)
    adapter = fake(*script)
    assert ask(adapter, cache) == ("fake summary", [True])
    assert adapter.requests == []


# -- thinness --------------------------------------------------------------------------------------


@ONE_PROCESS
def test_the_package_is_small_and_has_no_loop_of_its_own() -> None:
    modules = load_modules(SOURCE, "rlm_runtime")
    lines = sum(len(each.path.read_text("utf-8").splitlines()) for each in modules.values())
    assert lines <= MAX_LINES
    texts = "\n".join(each.path.read_text("utf-8") for each in modules.values())
    assert "while " not in texts
    assert not re.search(r"from rlm\.(engine|calls\.(calls|sending))\b", texts)


def test_the_minimal_example() -> None:
    example = [sys.executable, str(ROOT / "examples" / "minimal.py")]
    done = subprocess.run(example, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "fake summary\n", "")
