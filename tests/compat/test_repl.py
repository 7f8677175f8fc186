"""`LocalREPL`: the reference's methods over our sandbox."""

import threading
from pathlib import Path
from typing import Any

import pytest

from rlm.core.types import RLMChatCompletion, UsageSummary
from rlm.environments import SupportsPersistence, get_environment
from rlm.environments.local_repl import LocalREPL
from rlm.errors import ConfigError


@pytest.fixture(scope="module")
def repl() -> Any:
    with LocalREPL() as one:
        yield one


def test_output_errors_and_variables_are_returned(repl: LocalREPL) -> None:
    done = repl.execute_code("x = 6 * 7\nprint('out', x)")
    assert (done.stdout, done.stderr, done.final_answer) == ("out 42\n", "", None)
    assert (repl.locals["x"], done.locals["x"]) == (42, 42)
    assert done.execution_time is not None
    assert repl.execute_code("1 / 0").stderr == "\nZeroDivisionError: division by zero"
    assert "SyntaxError" in repl.execute_code("def broken(").stderr
    repl.execute_code("def f(n):\n    return n + x")
    assert repl.execute_code("print(f(1))").stdout == "43\n"
    assert repl.locals["f"].startswith("<function f")


def test_variables_keep_their_types(repl: LocalREPL) -> None:
    repl.execute_code(
        "data = {'t': (1, 2.5), 's': {3}, 'b': b'\\x00\\xff', 'n': None, (1, 2): [True]}\n"
        "big = 10**400\nnan = float('nan')\nodd = '\\ud800'\nmany = list(range(1_000_000))"
    )
    expected = {"t": (1, 2.5), "s": {3}, "b": b"\x00\xff", "n": None, (1, 2): [True]}
    assert repl.locals["data"] == expected
    assert repl.locals["nan"] == "nan"
    assert repl.locals["many"].startswith("[0, 1, 2")  # too large to copy: its repr, cut
    assert repl.execute_code("print(len(many))").stdout == "1000000\n"


def test_values_that_cannot_be_copied_become_texts(repl: LocalREPL) -> None:
    repl.execute_code(
        "class Odd:\n    def __repr__(self):\n        raise ValueError\n"
        "odd = Odd()\nloop = []\nloop.append(loop)"
    )
    assert repl.locals["odd"] == "<Odd>"
    assert isinstance(repl.locals["loop"], list)


def test_answers_can_be_submitted_repeatedly(repl: LocalREPL) -> None:
    ready = 'answer["content"] = {!r}\nanswer["ready"] = True'
    assert repl.execute_code('answer["content"] = "wip"').final_answer is None
    assert repl.execute_code(ready.format("one")).final_answer == "one"
    assert repl.execute_code("print(1)").final_answer is None
    assert repl.execute_code(ready.format([1, 2])).final_answer == "[1, 2]"
    assert repl.execute_code('answer = {"content": "bound", "ready": True}').final_answer == "bound"


def test_contexts_and_histories_can_be_added() -> None:
    with LocalREPL(context_payload={"k": [1, 2]}, setup_code="import math\nr = 2") as repl:
        assert isinstance(repl, SupportsPersistence)
        assert repl.add_context("second") == 1
        assert repl.get_context_count() == 2
        history = [{"role": "user", "content": "Hello"}]
        assert repl.add_history(history) == 0
        history[0]["content"] = "changed"
        done = repl.execute_code(
            "print(context['k'], context_0 == context, context_1, history[0]['content'], r)\n"
            "context = 'hijacked'\nllm_query = None"
        )
        assert done.stdout == "[1, 2] True second Hello 2\n"
        assert repl.locals["context"] == {"k": [1, 2]}
        assert repl.execute_code("print(context['k'])").stdout == "[1, 2]\n"
        assert repl.execute_code("print(llm_query('x'))").stdout == (
            "Error: No LM handler configured\n"
        )
        repl.setup()
        assert "NameError" in repl.execute_code("print(r)").stderr


def test_compaction_entries_become_the_history() -> None:
    with LocalREPL(compaction=True) as repl:
        repl.append_compaction_entry({"type": "summary", "content": "so far"})
        assert repl.execute_code("print(history[0]['content'])").stdout == "so far\n"


def test_tools_may_be_functions_or_values() -> None:
    def add(a: int, b: int = 1) -> int:
        return a + b

    tools = {"add": add, "RATE": 0.5, "told": {"tool": len, "description": "counts"}}
    with LocalREPL(custom_tools=tools) as repl:
        done = repl.execute_code("print(add(2), add(2, b=3), RATE, told([1, 2]))")
        assert done.stdout == "3 5 0.5 2\n"
        assert repl.locals["RATE"] == 0.5
    with pytest.raises(ConfigError, match="llm_query"):
        LocalREPL(custom_tools={"llm_query": add})


def completion(text: str) -> RLMChatCompletion:
    return RLMChatCompletion("m", "p", text, UsageSummary({}), 0.1)


def test_child_calls_go_to_the_programs_function() -> None:
    running, most = 0, 0
    lock = threading.Lock()

    def child(prompt: str, model: str | None) -> RLMChatCompletion:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if prompt == "bad":
            running -= 1
            raise RuntimeError("boom")
        with lock:
            running -= 1
        return completion(f"{prompt}/{model}")

    with LocalREPL(subcall_fn=child, max_concurrent_subcalls=2) as repl:
        done = repl.execute_code(
            "a = rlm_query('x', model='big')\nb = rlm_query_batched(['p', 'bad', 'q'])"
        )
        assert done.stderr == ""
        assert repl.locals["a"] == "x/big"
        assert repl.locals["b"] == ["p/None", "Error: RLM query failed - boom", "q/None"]
        assert [call.response for call in done.rlm_calls] == ["x/big", "p/None", "q/None"]
    assert most <= 2


def test_cleanup_ends_the_repl() -> None:
    repl = LocalREPL()
    folder = Path(repl.temp_dir)
    repl.execute_code("x = 1")
    assert folder.exists()
    repl.cleanup()
    assert (repl.locals, folder.exists()) == ({}, False)
    repl.cleanup()


def test_a_worker_that_dies_is_replaced() -> None:
    with LocalREPL(context_payload="kept", checkpoints=False) as repl:
        repl.execute_code("x = 1")
        died = repl.execute_code("import os\nos._exit(3)")
        assert "Session" in died.stderr
        assert repl.execute_code("print(context)").stdout == "kept\n"


@pytest.mark.parametrize(
    "trick",
    [
        "import json\njson.dumps = lambda *a, **k: '[' * 500_000",
        'import json\njson.dumps = lambda *a, **k: \'{"x": ["s", [["l", []]]]}\'',
        'import json\njson.dumps = lambda *a, **k: \'{"x": ["q", 1], "y": 2}\'',
        "import builtins\nbuiltins.repr = None\nbuiltins.print = None",
    ],
)
def test_a_cell_that_forges_the_copy_of_its_variables_affects_only_that_copy(trick: str) -> None:
    with LocalREPL() as repl:
        repl.execute_code("x = 1")
        repl.execute_code(f"{trick}\nx = 2")
        assert repl.locals["x"] in {1, 2}
        repl.setup()
        assert repl.execute_code("x = 3").locals["x"] == 3


def test_get_environment_makes_environments_by_name() -> None:
    repl = get_environment("agent", {"context_payload": "c"})
    assert repl.execute_code("print(context)").stdout == "c\n"
    with pytest.raises(ValueError, match="unknown environment 'locla'"):
        get_environment("locla", {})
