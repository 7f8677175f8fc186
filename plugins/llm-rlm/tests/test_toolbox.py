"""`RLMToolbox`: by itself, and in llm's own loop of tool calls."""

import asyncio
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llm
import pytest
from llm_rlm import RLMToolbox
from llm_rlm.interpreter import ModelHost
from llm_rlm.toolbox import ToolboxError
from scripted_models import Said

from rlm.environments.wasm import WasmEnvironment
from rlm.errors import CallRefused

SMALL = "alpha\nbeta\nthe magic number is 42\ngamma"
SCRIPTED: dict[str, Any] = {"sub_model": "scripted"}
no_wasm = WasmEnvironment.problem()


@pytest.fixture
def box(said: Said) -> Iterator[RLMToolbox]:
    with RLMToolbox(context=SMALL, sub_model="scripted") as made:
        yield made


# -- the tools ------------------------------------------------------------------------------------


def test_it_has_two_tools_by_the_documented_names() -> None:
    assert [tool.name for tool in RLMToolbox.method_tools()] == [
        "RLMToolbox_execute_python",
        "RLMToolbox_submit_answer",
    ]
    code, answer = RLMToolbox.method_tools()
    assert list(code.input_schema["properties"]) == ["code", "context"]
    assert list(answer.input_schema["properties"]) == ["answer", "variable_name"]
    assert code.description is not None
    assert "llm_batch" in code.description
    assert "    " not in code.description


def test_an_instance_offers_the_same_tools(box: RLMToolbox) -> None:
    assert [tool.name for tool in box.tools()] == [tool.name for tool in box.method_tools()]


def test_variables_stay_between_calls(box: RLMToolbox) -> None:
    assert box.execute_python("x = 20") == "(no output; set: x)"
    assert box.execute_python("print(x + len(context))") == str(20 + len(SMALL))
    assert box.execute_python("x * 2") == "40"


def test_an_answer_of_earlier_code_is_not_submitted_again(box: RLMToolbox) -> None:
    handed_in = box.execute_python("answer['content'] = 'first'; answer['ready'] = True")
    assert handed_in.endswith("first")
    assert box.execute_python("print(2)") == "2"


def test_code_that_ends_with_a_quote_runs(box: RLMToolbox) -> None:
    assert box.execute_python('print("a" + "")') == "a"
    assert box.execute_python('"q"') == "'q'"


def test_an_error_is_reported_and_can_be_repaired(box: RLMToolbox) -> None:
    output = box.execute_python("import sympy")
    assert "ModuleNotFoundError: No module named 'sympy'" in output
    assert "SyntaxError" in box.execute_python("def (")
    assert box.execute_python("print('on')") == "on"


def test_long_output_is_cut_and_says_so(said: Said) -> None:
    with RLMToolbox(sub_model="scripted", max_output_chars=100) as box:
        output = box.execute_python("print('a' * 5_000 + 'z')")
        assert len(output) < 250
        assert "4,902 of 5,002 characters left out; print less" in output
        assert output.endswith("z")


def test_a_hundred_thousand_characters_are_shown(said: Said) -> None:
    with RLMToolbox(sub_model="scripted") as box:
        assert box.execute_python("print('a' * 99_999)") == "a" * 99_999
        output = box.execute_python("print('a' * 150_000)")
        assert 100_000 < len(output) < 100_200
        assert "left out; print less" in output


def test_the_first_call_may_give_the_context(said: Said) -> None:
    with RLMToolbox(sub_model="scripted") as box:
        box.prepare()
        assert box.execute_python("print(len(context), context_0)", context="abc") == "3 abc"
        assert box.execute_python("print(context)") == "abc"
        assert "already set" in box.execute_python("print(context)", context="other")
        assert box.execute_python("print(context)") == "abc"


def test_a_context_given_to_the_constructor_is_not_replaced(box: RLMToolbox) -> None:
    assert "already set" in box.execute_python("print(1)", context="other")
    assert box.execute_python("print('other' in context)") == "False"


def test_code_that_takes_too_long_is_interrupted_and_keeps_its_variables(said: Said) -> None:
    with RLMToolbox(sub_model="scripted", execution_timeout_ms=500) as box:
        output = box.execute_python("x = 1\nwhile True: pass")
        assert "0.5" in output
        assert box.execute_python("print(x)") == "1"


def test_sub_calls_go_to_a_model_of_llm(box: RLMToolbox, said: Said) -> None:
    said.to_calls = lambda prompt: prompt.upper()
    assert box.execute_python("r = await llm_query(prompt='hi')\nprint(r)") == "HI"
    output = box.execute_python("print(await llm_batch(prompts=['a', 'b', 'c']))")
    assert output == "['A', 'B', 'C']"
    assert SMALL not in said.text


def test_a_batch_runs_concurrently(box: RLMToolbox, said: Said) -> None:
    together = threading.Barrier(4, timeout=30)

    def reply(prompt: str) -> str:
        together.wait()
        return prompt

    said.to_calls = reply
    with RLMToolbox(sub_model="small") as blocking:
        output = blocking.execute_python("print(await llm_batch(prompts=list('abcd')))")
    assert output == "['a', 'b', 'c', 'd']"


def test_a_failed_sub_call_raises_in_the_code(box: RLMToolbox, said: Said) -> None:
    said.failure = ValueError("the provider is on holiday")
    output = box.execute_python("await llm_query(prompt='x')")
    assert "CallFailed" in output
    assert "on holiday" in output


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("rlm_query('x')", "only llm_query and llm_batch"),
        ("llm_query('x', model='gpt-4o')", "the only model here is 'scripted'"),
        ("llm_query('x', images=['a.png'])", "pictures"),
        ("call_tool('x')", "only llm_query and llm_batch"),
    ],
)
def test_unsupported_calls_from_code_are_refused(box: RLMToolbox, code: str, words: str) -> None:
    assert words in box.execute_python(code)


async def test_the_number_of_calls_is_limited(said: Said) -> None:
    host = ModelHost("scripted", max_calls=2)
    meta, texts = await host.answer("llm", {}, ["a", "b", "c"])
    assert texts == ["a reply", "a reply", ""]
    assert meta == {"failed": {"2": "all 2 calls of this toolbox are used"}}
    assert (await host.answer("budget", {}, ()))[0]["calls"] == 0
    with pytest.raises(CallRefused):
        await host.answer("stream", {}, ("", ""))


def test_an_answer_is_submitted_as_text_or_by_a_variable(box: RLMToolbox) -> None:
    assert box.answer is None
    assert "42" in box.submit_answer(answer="42")
    assert box.answer == "42"
    box.execute_python("found = [1, 2]")
    assert "[1, 2]" in box.submit_answer(variable_name="found")
    assert box.answer == "[1, 2]"
    assert "No variable is named 'nothing'" in box.submit_answer(variable_name="nothing")
    assert "not both" in box.submit_answer()
    assert "not both" in box.submit_answer(answer="a", variable_name="b")
    box.execute_python("FINAL('by code')")
    assert box.answer == "by code"


def test_arguments_of_other_types_are_converted_or_refused(box: RLMToolbox) -> None:
    tools: Any = box
    assert "must be a string" in tools.execute_python(5)
    assert "name of a variable" in tools.submit_answer(variable_name=5)
    assert tools.submit_answer(answer=0).endswith("0")
    assert tools.submit_answer(answer=[1, "a"]).endswith('[1, "a"]')
    assert box.answer == '[1, "a"]'


# -- setting up -----------------------------------------------------------------------------------


def test_preparing_twice_has_no_further_effect(box: RLMToolbox) -> None:
    box.prepare()
    box.execute_python("x = 1")
    box.prepare()
    assert box.execute_python("print(x)") == "1"


def test_a_closed_toolbox_says_so(said: Said) -> None:
    box = RLMToolbox(sub_model="scripted")
    box.prepare()
    box.close()
    box.close()
    with pytest.raises(ToolboxError, match="closed"):
        box.execute_python("1")


def test_code_that_kills_its_interpreter_does_not_break_the_toolbox(box: RLMToolbox) -> None:
    box.execute_python("x = 1")
    output = box.execute_python("import os\nos._exit(1)")
    assert output.startswith("Error: ")
    assert box.execute_python("print(len(context))") == str(len(SMALL))


def test_two_threads_run_their_code_one_after_the_other(box: RLMToolbox) -> None:
    box.execute_python("seen = []")
    code = "n = len(seen)\nimport time\ntime.sleep(0.05)\nseen.append(n)"
    threads = [threading.Thread(target=box.execute_python, args=(code,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert box.execute_python("print(seen)") == "[0, 1, 2, 3]"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sandbox": "moon"}, "one of auto, local, wasm"),
        ({"max_output_chars": 0}, "max_output_chars must be a positive integer"),
        ({"execution_timeout_ms": "1"}, "execution_timeout_ms must be a positive integer"),
        ({"execution_timeout_ms": True}, "execution_timeout_ms must be a positive integer"),
        ({"sub_model": "nobody"}, "llm has no model 'nobody'"),
        ({"context": "a", "context_file": "b"}, "not both"),
        ({"context": object()}, "must be text"),
        ({"context_file": ""}, "must be a path"),
        ({"context_file": "missing.log"}, "no such file or folder: missing.log"),
        ({"context": {"not_stored_chars": 9}}, "pass it again"),
    ],
)
def test_invalid_options_are_refused_at_once(said: Said, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ToolboxError, match=words):
        RLMToolbox(**{**SCRIPTED, **given})


def test_a_context_file_may_be_text_binary_or_a_folder_but_no_pipe(
    said: Said, tmp_path: Path
) -> None:
    (tmp_path / "text.log").write_text("line\n" * 1_000)
    (tmp_path / "data.bin").write_bytes(bytes(range(256)) * 10)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("A")
    for name, kind in {"text.log": "str", "data.bin": "bytes", "folder": "dict"}.items():
        with RLMToolbox(context_file=str(tmp_path / name), sub_model="scripted") as box:
            assert box.execute_python("print(type(context).__name__)") == kind
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ToolboxError, match="is a pipe"):
        RLMToolbox(context_file=str(tmp_path / "pipe"), sub_model="scripted")


def test_a_large_context_file_is_not_read_into_this_process(said: Said, tmp_path: Path) -> None:
    large = tmp_path / "large.log"
    with large.open("wb") as file:
        file.write(b"x" * 999 + b"\n")
        file.seek(300_000_000)
        file.write(b"\nthe end\n")
    with RLMToolbox(context_file=str(large), sub_model="scripted") as box:
        assert box.execute_python("print(context[-8:].strip(), len(context))") == (
            "the end 300000009"
        )


def test_the_default_sub_model_is_llms_default_model(said: Said, home: Path) -> None:
    (home / "default_model.txt").write_text("small")
    with RLMToolbox() as box:
        assert box.execute_python("print(llm_query('x'))") == "a reply"
    assert said.asked[0][0] == "small"


def test_on_other_systems_local_means_auto(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    from llm_rlm.chats import _environment

    from rlm.environments.wasm import WasmEnvironment

    assert (_environment(None), _environment("local"), _environment("docker")) == (
        *("auto", "local", "docker"),
    )
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr(WasmEnvironment, "problem", lambda: None)
    with pytest.warns(UserWarning, match="'auto' is used instead"):
        assert _environment("local") == "auto"
    with pytest.warns(UserWarning, match="'auto' is used instead"):
        assert RLMToolbox(sub_model="scripted", sandbox="local")._sandbox == "auto"


@pytest.mark.skipif(no_wasm is not None, reason=str(no_wasm))
def test_wasm_can_be_chosen_as_the_sandbox(said: Said) -> None:
    with RLMToolbox(context=SMALL, sub_model="scripted", sandbox="wasm") as box:
        assert box.execute_python("x = 1\nprint(len(context))") == str(len(SMALL))
        assert box.execute_python("print(x, await llm_query(prompt='a'))") == "1 a reply"


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="wasm works from Python 3.12 on")
def test_without_wasm_the_error_says_what_it_needs(said: Said) -> None:
    with pytest.raises(ToolboxError, match=r"sandbox='wasm' needs Python 3.12"):
        RLMToolbox(sub_model="scripted", sandbox="wasm")


# -- what llm keeps of it -------------------------------------------------------------------------


def test_the_context_is_not_logged_among_the_tools_arguments(said: Said) -> None:
    box = RLMToolbox(context=SMALL, sub_model="scripted")
    assert "magic" not in json.dumps(box._config)
    assert box._config["sub_model"] == "scripted"


# -- llm's loop -----------------------------------------------------------------------------------


class Caller(llm.Model):
    """A model that calls a list of tools in order, then returns the last result."""

    model_id = "caller"
    supports_tools = True

    def __init__(self, calls: list[tuple[str, dict[str, str]]]) -> None:
        self.calls = list(calls)

    def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any) -> Iterator[str]:
        if self.calls:
            name, arguments = self.calls.pop(0)
            response.add_tool_call(llm.ToolCall(f"RLMToolbox_{name}", arguments))
            yield ""
        else:
            yield prompt.tool_results[-1].output


class AsyncCaller(llm.AsyncModel):
    """The asynchronous form of `Caller`."""

    model_id = "caller"
    supports_tools = True

    def __init__(self, calls: list[tuple[str, dict[str, str]]]) -> None:
        self._blocking = Caller(calls)

    async def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any) -> Any:
        for text in self._blocking.execute(prompt, stream, response, conversation):
            yield text


CALLS = [
    ("execute_python", {"code": "import re\nn = re.search(r'number is (\\d+)', context).group(1)"}),
    ("submit_answer", {"variable_name": "n"}),
]


def test_llms_tool_loop_can_use_the_toolbox(box: RLMToolbox) -> None:
    assert Caller(CALLS).chain("Which number?", tools=[box]).text().endswith("42")
    assert box.answer == "42"


async def test_llms_async_tool_loop_is_not_blocked(box: RLMToolbox) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticking = asyncio.create_task(tick())
    slow = ("execute_python", {"code": "import time\ntime.sleep(0.3)"})
    chain = AsyncCaller([slow, *CALLS]).chain("Which number?", tools=[box])
    assert (await chain.text()).endswith("42")
    ticking.cancel()
    assert ticks > 10


async def test_blocking_methods_work_inside_a_running_loop(box: RLMToolbox) -> None:
    box.prepare()
    assert box.execute_python("print(1)") == "1"
