"""dspy's CodeInterpreter protocol: state, variables, tools, SUBMIT, and what is raised."""

import asyncio
import contextlib
import dataclasses
import datetime
import inspect
import json
import math
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import dspy
import pytest
from dspy.primitives.code_interpreter import (
    CodeExecutionError,
    CodeInterpreter,
    CodeInterpreterError,
    FinalOutput,
)
from dspy.utils.callback import BaseCallback
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from recursivelm_dspy import SandboxInterpreter
from recursivelm_dspy.interpreter import _outcome

from rlm import ConfigError
from rlm.results import CellResult, Submission


@pytest.fixture
def interpreter() -> Iterator[SandboxInterpreter]:
    with SandboxInterpreter() as opened:
        yield opened


def test_the_class_satisfies_dspys_interpreter_protocol_and_is_a_factory() -> None:
    assert isinstance(SandboxInterpreter(), CodeInterpreter)
    module = dspy.RLM("question -> answer", interpreter_factory=SandboxInterpreter)
    assert "sandbox without network" in module.generate_action.signature.instructions


def test_variables_persist_between_cells(interpreter: SandboxInterpreter) -> None:
    interpreter("import math\nx = 5\ndef double(n):\n    return 2 * n")
    assert interpreter("print(double(x) + math.floor(1.5))") == "11"
    assert interpreter("class A:\n    n = x\nA().n") == 5
    assert interpreter("x") == 5


def test_the_value_of_a_cell_is_its_output_or_last_expression(
    interpreter: SandboxInterpreter,
) -> None:
    assert interpreter("y = 1") is None
    assert interpreter("print('a')\nprint('b')") == "a\nb"
    assert interpreter("[1, (2, 3)]") == [1, [2, 3]]
    assert interpreter("{3, 1, 2}") == [1, 2, 3]
    assert interpreter("print('shown')\n7") == "shown\n7", "neither is lost"
    assert interpreter("import sys\nprint('warned', file=sys.stderr)") == "warned"
    assert interpreter("object").startswith("<class")
    assert interpreter("'x' * 3_000_000").endswith("… (3,000,000 characters)")
    assert interpreter("if __name__ == '__main__':\n    print('main')") == "main"
    assert interpreter("") is None


def test_names_of_the_engine_do_not_exist_in_cells(interpreter: SandboxInterpreter) -> None:
    for name in ("FINAL", "context", "rlm_query", "answer", "call_tool", "Cells"):
        with pytest.raises(CodeExecutionError, match=f"NameError: name '{name}' is not defined"):
            interpreter(name)
    assert interpreter("answer = {'content': 'x', 'ready': True}") is None, "an ordinary variable"


def test_errors_have_dspys_types_and_name_the_line(interpreter: SandboxInterpreter) -> None:
    with pytest.raises(SyntaxError, match=r"invalid syntax \(line 2\)"):
        interpreter("x = 1\nx +")
    with pytest.raises(
        CodeExecutionError, match=r"^ZeroDivisionError: division by zero \(line 3\)"
    ):
        interpreter("def f():\n    pass\n1 / 0")
    with pytest.raises(CodeExecutionError, match="SystemExit: 3"):
        interpreter("raise SystemExit(3)")
    interpreter("\n\n\ndef fail():\n    raise LookupError('far')")
    with pytest.raises(CodeExecutionError, match=r"LookupError: far \(line 2\)"):
        interpreter("x = 1\nfail()")
    assert interpreter("6 * 7") == 42, "it still works"


def test_submit_ends_the_cell_with_the_fields(interpreter: SandboxInterpreter) -> None:
    assert interpreter("SUBMIT('done')\nprint('never')") == FinalOutput({"output": "done"})
    interpreter.output_fields = [
        {"name": "answer", "type": "str"},
        {"name": "count", "type": "int"},
    ]
    wanted = FinalOutput({"answer": "a", "count": 2})
    for call in ("'a', 2", "answer='a', count=2", "'a', count=2"):
        assert interpreter(f"SUBMIT({call})") == wanted
    assert interpreter("try:\n    SUBMIT('a', 2)\nexcept BaseException:\n    pass") == wanted
    assert interpreter("def f():\n    SUBMIT('a', 2)\nf()") == wanted
    for call, message in (
        ("'a'", "is missing count"),
        ("'a', 2, 3", "takes 2 values, not 3"),
        ("'a', 2, more=3", "has no field 'more'"),
        ("'a', answer='b'", "got 'answer' twice"),
    ):
        with pytest.raises(CodeExecutionError, match=message):
            interpreter(f"SUBMIT({call})")
    got = interpreter("import datetime\nSUBMIT({1, 2}, datetime.date(2026, 1, 2))")
    assert got == FinalOutput({"answer": [1, 2], "count": "datetime.date(2026, 1, 2)"})
    with pytest.raises(CodeExecutionError, match="at most 5,000,000 are allowed: submit less"):
        interpreter("SUBMIT('x' * 6_000_000, 1)")


class Point(BaseModel):
    x: int


@dataclasses.dataclass
class Pair:
    left: str


def test_variables_of_every_kind_can_be_passed(interpreter: SandboxInterpreter) -> None:
    kinds: dict[str, Any] = {
        "text": "ünïcode \ud800 'quotes' \\n\n",
        "number": 12,
        "fraction": 1.5,
        "infinite": math.inf,
        "truth": True,
        "nothing": None,
        "items": [1, "two", [3]],
        "pair": (1, 2),
        "unique": {1, 2},
        "table": {1: "one", "two": {"$set": [3]}},
        "raw": b"\x00\xff",
        "context": "also a name of the engine",
        "json": "shadows nothing",
    }
    for name, value in kinds.items():
        wanted = "float('inf')" if name == "infinite" else repr(value)
        assert interpreter(f"{name} == {wanted}", {name: value}) is True, name
        assert interpreter(f"type({name}).__name__") == type(value).__name__
    objects = {"point": Point(x=1), "one": Pair("l"), "day": datetime.date(2026, 1, 2)}
    assert interpreter("[point, one, day]", objects) == [{"x": 1}, {"left": "l"}, "2026-01-02"]
    with pytest.raises(CodeInterpreterError, match="'bad', a object, has no JSON form"):
        interpreter("bad", {"bad": object()})
    for name in ("1x", "class", "SUBMIT", "a b"):
        with pytest.raises(CodeInterpreterError, match="name"):
            interpreter("1", {name: 1})
    assert interpreter("number") == 12, "such mistakes of the caller end nothing"


def test_given_variables_are_reset_before_each_cell(interpreter: SandboxInterpreter) -> None:
    given = {"text": "abc", "items": [1]}
    assert interpreter("text += 'd'\nitems.append(2)\n(text, items)", given) == ["abcd", [1, 2]]
    assert interpreter("(text, items)") == ["abcd", [1, 2]], "unless none are given"
    assert interpreter("(text, items)", given) == ["abc", [1]]
    assert interpreter("text", {"text": "other"}) == "other"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(value=JSON)
def test_any_json_goes_in_and_comes_back(interpreter: SandboxInterpreter, value: Any) -> None:
    interpreter.tools["echo"] = lambda value: value
    assert interpreter("SUBMIT([value, echo(value)])", {"value": value}) == FinalOutput(
        {"output": [value, value]}
    )


@given(
    text=st.text()
    | JSON.map(json.dumps)
    | st.dictionaries(st.sampled_from(["final", "value", "error", "syntax"]), JSON).map(json.dumps)
)
def test_any_cell_result_becomes_an_outcome_or_an_error_of_the_code(text: str) -> None:
    result = CellResult(submission=Submission(text, "FINAL"))
    with contextlib.suppress(CodeExecutionError, SyntaxError):
        _outcome(result)


# -- tools ----------------------------------------------------------------------------------------


def test_tools_take_arguments_by_position_and_by_name(interpreter: SandboxInterpreter) -> None:
    def area(width: int, height: int = 2) -> int:
        """The area."""
        return width * height

    def only_named(**given: Any) -> dict[str, Any]:
        return given

    vars(only_named)["__signature__"] = inspect.signature(area)
    interpreter.tools |= {"area": area, "tool": dspy.Tool(area), "named": only_named}
    assert interpreter("area(3), area(3, 4), area(width=3, height=5)") == [6, 12, 15]
    assert interpreter("tool(3), tool(3, 4), tool(width=3)") == [6, 12, 6]
    assert interpreter("named(3, 4)") == {"width": 3, "height": 4}
    with pytest.raises(CodeExecutionError, match=r"TypeError: .*too many positional"):
        interpreter("area(1, 2, 3)")
    assert interpreter("area.__name__") == "area"


def test_results_of_tools_keep_their_structure(interpreter: SandboxInterpreter) -> None:
    values = [Point(x=1), Pair("l"), None, {"a": [1]}, {3}, object, math.inf]
    interpreter.tools["next_value"] = lambda: values.pop(0)
    code = "[next_value() for _ in range(7)]"
    assert interpreter(code) == [
        *({"x": 1}, {"left": "l"}, None, {"a": [1]}, [3], "<class 'object'>", math.inf)
    ]


def test_errors_of_tools_are_exceptions_of_the_cell(interpreter: SandboxInterpreter) -> None:
    class Unusual(Exception):
        pass

    def fail(kind: str) -> None:
        raise {"value": ValueError("bad"), "key": KeyError("k"), "own": Unusual("odd")}[kind]

    interpreter.tools["fail"] = fail
    caught = "try:\n    fail('{}')\nexcept {} as error:\n    print(type(error).__name__, error)"
    assert interpreter(caught.format("value", "ValueError")) == "ValueError bad"
    assert interpreter(caught.format("key", "KeyError")) == "KeyError 'k'"
    assert interpreter(caught.format("own", "RuntimeError")) == "RuntimeError Unusual: odd"
    with pytest.raises(CodeExecutionError, match=r"ValueError: bad \(line 1\)"):
        interpreter("fail(kind='value')")
    with pytest.raises(CodeExecutionError, match="a function is not data"):
        interpreter("fail(lambda: 1)")


def test_tools_may_be_async_and_change_between_cells(interpreter: SandboxInterpreter) -> None:
    async def later(n: int) -> int:
        await asyncio.sleep(0)
        return n + 1

    interpreter.tools["later"] = later
    assert interpreter("later(1)") == 2
    interpreter.tools["later"] = lambda n: n * 10
    assert interpreter("later(2)") == 20
    del interpreter.tools["later"]
    with pytest.raises(CodeExecutionError, match="NameError: name 'later'"):
        interpreter("later(1)")
    interpreter.tools["class"] = len
    with pytest.raises(CodeInterpreterError, match="a tool needs a Python name"):
        interpreter("1")


def test_tools_run_with_the_settings_of_the_caller(interpreter: SandboxInterpreter) -> None:
    interpreter.tools["setting"] = lambda: dspy.settings.get("max_trace_size")
    for size in (11, 12):
        with dspy.context(max_trace_size=size):
            assert interpreter("setting()") == size


def test_an_interrupted_tool_interrupts_the_caller(interpreter: SandboxInterpreter) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    interpreter.tools["stop"] = stop
    interpreter("x = 1")
    with pytest.raises(KeyboardInterrupt):
        interpreter("stop()\nwhile True:\n    pass")
    assert interpreter("x") == 1


class Told(BaseCallback):
    def __init__(self) -> None:
        self.names: list[str] = []

    def on_interpreter_execute_start(self, call_id: str, instance: Any, inputs: Any) -> None:
        self.names.append("execute")

    def on_interpreter_tool_call_start(self, call_id: str, instance: Any, inputs: Any) -> None:
        self.names.append(inputs["tool_name"])

    def on_interpreter_shutdown_end(
        self, call_id: str, outputs: Any, exception: BaseException | None = None
    ) -> None:
        self.names.append("shut down")


def test_callbacks_are_called() -> None:
    told = Told()
    with SandboxInterpreter({"one": lambda: 1}, callbacks=[told]) as interpreter:
        interpreter("one()")
    assert told.names == ["execute", "one", "shut down"]


# -- ends -----------------------------------------------------------------------------------------


def test_a_closed_interpreter_says_so() -> None:
    interpreter = SandboxInterpreter()
    interpreter.start()
    interpreter.start()
    interpreter.shutdown()
    interpreter.shutdown()
    with pytest.raises(CodeInterpreterError, match=r"it was shut down\): create a new one"):
        interpreter("1")


def test_a_shutdown_ends_the_running_cell() -> None:
    interpreter = SandboxInterpreter()
    running = threading.Event()
    interpreter.tools["running"] = lambda: running.set()
    raised: list[BaseException] = []

    def run() -> None:
        try:
            interpreter("running()\nwhile True:\n    pass")
        except CodeInterpreterError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert running.wait(60)
    interpreter.shutdown()
    thread.join(60)
    assert len(raised) == 1


def test_a_cell_that_kills_its_process_does_not_end_the_program() -> None:
    with SandboxInterpreter() as interpreter:
        interpreter("x = 1")
        with pytest.raises(CodeInterpreterError) as caught:
            interpreter("import os\nos._exit(3)")
        if isinstance(caught.value, CodeExecutionError):
            assert interpreter("x") == 1, "continued from a checkpoint"
        else:
            with pytest.raises(CodeInterpreterError, match="has ended"):
                interpreter("x")


def test_options_are_checked_and_factories_can_be_pickled() -> None:
    with pytest.raises(ConfigError, match="execution_timeout must be greater than 0"):
        SandboxInterpreter(execution_timeout=0)
    with pytest.raises(ConfigError, match="unknown environment 'nowhere'"):
        SandboxInterpreter(environment="nowhere")
    with pytest.raises(CodeInterpreterError, match="a tool can't be called 'SUBMIT'"):
        SandboxInterpreter({"SUBMIT": print})
    made = SandboxInterpreter.factory(environment="local", execution_timeout=5)
    again = pickle.loads(pickle.dumps(made))
    assert repr(again) == "SandboxInterpreter.factory(environment='local', execution_timeout=5)"
    with again() as interpreter:
        assert interpreter("6 * 7") == 42
        assert interpreter.execution_timeout == 5


@pytest.mark.parametrize("environment", ["agent", "inprocess", "local"])
def test_other_environments_can_be_chosen_by_name(environment: str) -> None:
    made = SandboxInterpreter.factory(environment=environment, tools={"add": lambda a, b=1: a + b})
    with made() as interpreter:
        assert interpreter("x = 2\nprint(add(x))") == "3"
        assert interpreter("t[-1], add(x, b=5)", {"t": "abc" * 100_000}) == ["c", 7]
        with pytest.raises(CodeExecutionError, match="NameError"):
            interpreter("unknown")
        assert interpreter("SUBMIT(x)") == FinalOutput({"output": 2})
