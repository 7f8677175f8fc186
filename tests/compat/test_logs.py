"""What the reference tells of a run: `metadata`, the rows of `RLMLogger`, and `verbose`."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, ConfigError
from rlm.core.types import RLMIteration, RLMMetadata
from rlm.logger import RLMLogger, VerbosePrinter
from rlm.testing.fake_server import FakeServer
from tests.compat.models import ScriptedLM
from tests.fakes import PlanEnvironment, cell

ITERATION = {
    *("type", "iteration", "timestamp", "prompt", "response", "code_blocks", "final_answer"),
    "iteration_time",
}
RESULT = {"stdout", "stderr", "locals", "execution_time", "rlm_calls", "final_answer"}
METADATA = {
    *("root_model", "max_depth", "max_iterations", "backend", "backend_kwargs"),
    *("environment_type", "environment_kwargs", "other_backends"),
}
STEPS = [
    cell(["batch", 2], ["print", "looked"]),
    "first",
    "second",
    cell(["fail"]),
    cell(["final", "42"]),
]


def reference(server: FakeServer, **keywords: Any) -> RLM:
    kwargs = {"model_name": "gpt-4o", "base_url": server.openai_url, "api_key": "sk-secret-key"}
    keywords.setdefault("environment", PlanEnvironment())
    return RLM(backend="openai", backend_kwargs=kwargs, **keywords)


def test_metadata_has_the_structure_of_the_reference() -> None:
    with FakeServer(STEPS) as server:
        done = reference(server, logger=RLMLogger()).completion("c", root_prompt="Which?")
    assert done.metadata is not None
    about, rows = done.metadata["run_metadata"], done.metadata["iterations"]
    assert about.keys() == METADATA
    assert (about["root_model"], about["backend"], about["max_iterations"]) == (
        *("gpt-4o", "openai"),
        30,
    )
    assert "sk-secret-key" not in json.dumps(done.metadata)
    assert [row.keys() for row in rows] == [ITERATION] * 3
    assert [row["final_answer"] for row in rows] == [None, None, "42"]
    first, failed, last = (row["code_blocks"][0]["result"] for row in rows)
    assert first.keys() == failed.keys() == RESULT
    assert first["stdout"].endswith("looked\n")
    assert failed["stderr"] == "\nValueError: told to fail"
    assert last["final_answer"] == "42"
    assert [call["response"] for call in first["rlm_calls"]] == ["first", "second"]
    assert first["rlm_calls"][0]["root_model"] == "gpt-4o"
    assert first["rlm_calls"][0]["usage_summary"]["model_usage_summaries"]["gpt-4o"]
    assert [message["role"] for message in rows[0]["prompt"]] == ["system", "user"]
    assert len(rows[2]["prompt"]) == 6
    assert all(row["iteration_time"] > 0 for row in rows)
    json.dumps(done.to_dict())


def test_a_child_run_is_nested_in_its_call() -> None:
    script = [cell(["rlm", 1]), cell(["final", "of the child"]), cell(["final", "done"])]
    with FakeServer(script) as server:
        done = reference(server, logger=RLMLogger(), max_depth=2).completion("c")
    assert done.metadata is not None
    (call,) = done.metadata["iterations"][0]["code_blocks"][0]["result"]["rlm_calls"]
    assert (call["response"], call["prompt"]) == ("of the child", "piece 0")
    assert call["metadata"]["run_metadata"]["root_model"] == "gpt-4o"
    assert call["metadata"]["iterations"][0]["final_answer"] == "of the child"
    assert call["usage_summary"]["model_usage_summaries"]["gpt-4o"]["total_calls"] == 1


def test_a_final_answer_that_was_requested_is_an_iteration() -> None:
    with FakeServer([cell(["print", 1]), "It is 7."]) as server:
        done = reference(server, logger=RLMLogger(), max_iterations=1).completion("c")
    assert done.metadata is not None
    last = done.metadata["iterations"][-1]
    assert (last["response"], last["final_answer"], last["code_blocks"]) == (
        *("It is 7.", "It is 7."),
        [],
    )


def test_without_a_logger_there_is_no_metadata() -> None:
    with FakeServer([cell(["final", 1])]) as server:
        assert reference(server).completion("c").metadata is None


# -- locals -------------------------------------------------------------------------------------


def told_locals(code: str, **keywords: Any) -> dict[str, Any]:
    """What `locals` hold after a cell in the real sandbox."""
    script = [f"```repl\n{code}\n```", "```repl\nFINAL(1)\n```"]
    with FakeServer(script) as server:
        keywords.setdefault("logger", RLMLogger())
        one = reference(server, environment="local", **keywords)
        with one:
            done = one.completion("the context", root_prompt="What?")
        assert done.metadata is not None
        told: dict[str, Any] = done.metadata["iterations"][0]["code_blocks"][0]["result"]["locals"]
        assert one.cell_values is not None
        assert not one.cell_values._kept  # nothing stays behind
    json.dumps(told)
    return told


def test_locals_have_the_form_of_the_reference() -> None:
    code = (
        "import string\nn, x, t, nothing = 3, 0.5, 'text', None\npair = (1, [2, {'k': (3,)}])\n"
        "found = {5}\nraw = b'ab'\ndef f(): pass\nclass Thing:\n    pass\n_hidden = 1"
    )
    told = told_locals(code)
    assert told == {
        "context": "the context",
        "context_0": "the context",
        "n": 3,
        "x": 0.5,
        "t": "text",
        "nothing": None,
        "pair": [1, [2, {"k": [3]}]],
        "found": "{5}",
        "raw": "b'ab'",
        "string": "<module 'string'>",
        "f": "<function 'f'>",
        "Thing": "<type 'Thing'>",
        "answer": {"content": "", "ready": False},
    }


def test_long_values_are_truncated() -> None:
    told = told_locals(
        "t = 'x' * 5_000_000\nmany = list(range(10**6))\ndeep = []\n"
        "for _ in range(5_000): deep = [deep]\nbig = 10**5000\n"
        "rows = {i: 'y' * 10_000 for i in range(10**4)}"
    )
    assert told["t"].startswith("x" * 2_000)
    assert told["t"].endswith("… (5,000,000 characters)")
    assert told["many"] == list(range(100))
    assert len(json.dumps(told)) < 300_000


HOSTILE = [
    "class Bad:\n    def __repr__(self): raise SystemExit\nbad = Bad()",
    pytest.param(
        "class Slow:\n    def __repr__(self):\n        while True: pass\nslow = Slow()",
        marks=pytest.mark.heavy,
    ),
    "class D(dict):\n    def items(self): raise KeyboardInterrupt\nd = D()",
    "import builtins\nbuiltins.print = lambda *a, **k: None",
]


@pytest.mark.parametrize("code", HOSTILE)
def test_an_error_while_copying_variables_loses_only_the_copy(code: str) -> None:
    """The run goes on; its log has types and sizes instead, or the values that could be read."""
    assert isinstance(told_locals(code), dict)


def test_rows_in_files_contain_values_too(tmp_path: Path) -> None:
    logger = RLMLogger(log_dir=tmp_path)
    assert told_locals("n = 41 + 1", logger=logger)["n"] == 42
    first = rows_of(logger.log_file_path)[1]
    assert first["code_blocks"][0]["result"]["locals"]["n"] == 42


def test_variables_are_copied_only_for_a_logger_in_the_references_spelling() -> None:
    with FakeServer([cell(["final", 1])]) as server:
        assert reference(server).runner.resources.after_cell is None
    ours = RLM(ScriptedLM(cell(["final", 1])), environment=PlanEnvironment(), logger=RLMLogger())
    assert ours.runner.resources.after_cell is None


# -- files ----------------------------------------------------------------------------------------


def rows_of(path: str | None) -> list[dict[str, Any]]:
    assert path is not None
    return [json.loads(line) for line in Path(path).read_text("utf-8").splitlines()]


def test_reference_rows_go_to_one_file_whose_path_is_known_at_once(tmp_path: Path) -> None:
    logger = RLMLogger(log_dir=str(tmp_path), file_name="mine", format="reference")
    path = logger.log_file_path
    assert path is not None
    assert Path(path).name.startswith("mine_")
    with FakeServer([*STEPS, cell(["final", "again"])]) as server:
        one = reference(server, logger=logger)
        assert [row["type"] for row in rows_of(path)] == ["metadata"]
        one.completion("c")
        assert logger.iteration_count == 3
        done = one.completion("c")
    assert logger.log_file_path == path
    kinds = [(row["type"], row.get("iteration")) for row in rows_of(path)]
    assert kinds == [("metadata", None), *(("iteration", n) for n in (1, 2, 3, 1))]
    assert rows_of(path)[0].keys() == {"type", "timestamp", *METADATA}
    assert rows_of(path)[1].keys() == ITERATION
    told = logger.get_trajectory()
    assert told is not None
    assert [row["final_answer"] for row in told["iterations"]] == ["again"]
    assert done.metadata is not None
    assert done.metadata["iterations"][0]["response"] == told["iterations"][0]["response"]
    logger.clear_iterations()
    assert logger.iteration_count == 0
    assert [each.name for each in tmp_path.iterdir()] == [Path(path).name]


def test_the_default_format_depends_on_the_spelling(tmp_path: Path) -> None:
    """A program of the reference finds its rows, at the path that it read before any run."""
    logger = RLMLogger(log_dir=tmp_path / "theirs")
    path = logger.log_file_path
    assert path is not None
    assert Path(path).parent == tmp_path / "theirs"
    assert not Path(path).exists()
    with FakeServer([cell(["final", 1])] * 2) as server:
        one = reference(server, logger=logger)
        assert [row["type"] for row in rows_of(path)] == ["metadata"]
        one.completion("c")
        assert (logger.log_file_path, logger.needs_context_hash) == (path, False)
        assert [row["type"] for row in rows_of(path)] == ["metadata", "iteration"]
        ours = RLMLogger(log_dir=tmp_path / "ours")
        two = RLM(ScriptedLM(cell(["final", 1])), environment=PlanEnvironment(), logger=ours)
        assert (ours.log_file_path, ours.needs_context_hash) == (None, True)
        two.ask("q", "c")
        kinds = [row["type"] for row in rows_of(ours.log_file_path)]
        assert (kinds[0], kinds[-1]) == ("run_started", "run_ended")


def test_an_explicit_format_is_kept(tmp_path: Path) -> None:
    logger = RLMLogger(log_dir=tmp_path, format="events")
    assert logger.log_file_path is None
    with FakeServer([cell(["final", 1])]) as server:
        reference(server, logger=logger).completion("c")
    kinds = [row["type"] for row in rows_of(logger.log_file_path)]
    assert (kinds[0], kinds[-1]) == ("run_started", "run_ended")
    wrong: Any = "rows"
    with pytest.raises(ConfigError, match="unknown format 'rows'"):
        RLMLogger(format=wrong)


class Telling(RLMLogger):
    """A logger as programs subclass it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.told: list[Any] = []

    def log_metadata(self, metadata: Any) -> None:
        self.told.append(metadata)
        super().log_metadata(metadata)

    def log(self, iteration: Any) -> None:
        self.told.append(iteration)
        super().log(iteration)


@pytest.mark.parametrize("options", [{}, {"format": "reference"}])
def test_overridden_methods_are_called_once_each(options: dict[str, Any]) -> None:
    logger = Telling(**options)
    with FakeServer(STEPS) as server:
        one = reference(server, logger=logger)
        assert [type(each) for each in logger.told] == [RLMMetadata]
        one.completion("c")
    first, *steps = logger.told
    assert first.root_model == "gpt-4o"
    assert [type(step) for step in steps] == [RLMIteration] * 3
    assert [step.final_answer for step in steps] == [None, None, "42"]
    assert [call.response for call in steps[0].code_blocks[0].result.rlm_calls] == [
        "first",
        "second",
    ]
    assert steps[1].code_blocks[0].result.stderr.endswith("told to fail")


def test_overridden_methods_are_called_in_our_spelling_too() -> None:
    logger = Telling()
    one = RLM(ScriptedLM(cell(["final", 1])), environment=PlanEnvironment(), logger=logger)
    one.ask("q", "c")
    assert [type(each) for each in logger.told] == [RLMMetadata, RLMIteration]
    assert logger.told[0].backend_kwargs == {"model_name": "scripted"}


def test_an_object_with_the_references_methods_is_a_logger() -> None:
    told: list[str] = []

    class Plain:
        def log_metadata(self, metadata: RLMMetadata) -> None:
            told.append(metadata.root_model)

        def log(self, iteration: RLMIteration) -> None:
            told.append(iteration.response)

    with FakeServer([cell(["final", 1])]) as server:
        plain: Any = Plain()
        done = reference(server, logger=plain).completion("c")
    assert told == ["gpt-4o", cell(["final", 1])]
    assert done.metadata is not None


def test_an_unwritable_log_does_not_end_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logger = RLMLogger(log_dir=tmp_path / "logs", format="reference")
    (tmp_path / "logs").rmdir()
    with FakeServer([cell(["final", 1])]) as server:
        assert reference(server, logger=logger).completion("c").response == "1"
    assert "the run continues" in caplog.text


# -- verbose --------------------------------------------------------------------------------------


def test_verbose_shows_responses_code_and_output(capsys: pytest.CaptureFixture[str]) -> None:
    script = [cell(["llm", 1], ["print", "what was found"]), "reply of the call", *STEPS[3:]]
    with FakeServer(script) as server:
        reference(server, verbose=True).completion("c")
    out, err = capsys.readouterr()
    assert out == ""
    for words in (
        *("Backend", "openai", "gpt-4o", "Max Iterations", "Iteration 1", "LLM Response"),
        *('[["llm", 1]', "Code Execution", "what was found", "told to fail", "1 sub-call(s)"),
        *("LLM Sub-call: gpt-4o", "Prompt: piece 0", "Response: reply of the call"),
        *("Iteration 3", "Final Answer", "42", "Total Time", "Input Tokens"),
    ):
        assert words in err, words
    assert "sk-secret-key" not in err
    assert err.isascii()  # not a terminal: plain


def test_verbose_shows_which_limit_ended_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeServer([cell(["fail"])] * 3) as server, pytest.raises(Exception, match="failed"):
        reference(server, verbose=True, max_errors=2).completion("c")
    assert "Error Threshold Exceeded" in capsys.readouterr().err


def test_control_characters_of_a_reply_do_not_reach_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J[bold red]markup[/] \u202eback\r\n\x9b31m"
    reply = cell(["print", hostile], ["final", hostile])
    with FakeServer([f"{hostile}\n{reply}"]) as server:
        reference(server, verbose=True).completion("c")
    err = capsys.readouterr().err
    assert not set(err) & set("\x1b\x07\u202e\x9b\r")
    assert "[bold red]markup[/]" in err
    assert "\\x1b" in err


def test_a_disabled_printer_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    printer = VerbosePrinter(enabled=False)
    printer.print_iteration_start(1)
    printer.print_completion("x")
    printer.print_final_answer("x")
    printer.print_summary(1, 1.0, {})
    printer.print_compaction_status(1, 2, 3)
    assert capsys.readouterr() == ("", "")


def test_every_method_of_the_printer_shows_something(capsys: pytest.CaptureFixture[str]) -> None:
    printer = VerbosePrinter()
    printer.print_header("openai", "gpt-4o", "local", 30, 2, ["vllm"])
    printer.print_subcall("m", "p" * 300, "r", 0.5, {"iterations": [1, 2]})
    printer.print_budget_exceeded(0.5, 0.4)
    printer.print_limit_exceeded("novel", "details")
    printer.print_compaction_status(5, 10, 20)
    printer.print_compaction()
    err = capsys.readouterr().err
    for words in (
        *("Sub-models", "vllm", "RLM Sub-call", "Iterations: 2", "more characters"),
        *("Budget Exceeded", "$0.500000", "Novel Limit Exceeded", "5 / 10", "Compaction"),
    ):
        assert words in err, words
