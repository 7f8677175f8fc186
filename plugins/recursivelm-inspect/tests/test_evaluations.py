"""The real Inspect with the engine as solver and as agent: scores, logs, roles, limits."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import Task
from inspect_ai import eval as inspect_eval
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog, list_eval_logs, read_eval_log
from inspect_ai.model import Model, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes, match
from inspect_ai.solver import Solver
from recursivelm_inspect import bench_dataset, rlm_agent, rlm_bench, rlm_solver

from rlm import ConfigError

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "fake_model.py"
SECONDS = 300
TASKS = 20
TEXT = "filler words\n" * 20_000 + "the colour is teal\n" + "filler words\n" * 20_000


def cell(code: str) -> str:
    return f"```repl\n{code}\n```"


def scripted(*answers: str) -> Model:
    outputs = [ModelOutput.from_content("mockllm/model", answer) for answer in answers]
    for output in outputs:  # without a usage, Inspect downloads a tokenizer to count
        output.usage = ModelUsage(input_tokens=100, output_tokens=10, total_tokens=110)
    return get_model("mockllm/model", custom_outputs=outputs, memoize=False)


def evaluate(
    folder: Path, model: Model, solver: Any = None, context: Any = TEXT, **options: Any
) -> EvalLog:
    sample = Sample(input="Which colour?", target="teal", metadata={"context": context})
    task = Task(dataset=[sample], solver=solver or rlm_solver(), scorer=includes())
    [log] = inspect_eval(task, model=model, log_dir=str(folder), display="none", **options)
    return log


def events(log: EvalLog, kind: str) -> list[Any]:
    assert log.samples
    return [event for event in log.samples[0].events if event.event == kind]


def test_inspect_eval_solves_twenty_generated_tasks(tmp_path: Path) -> None:
    program = str(Path(sys.executable).parent / "inspect")
    command = (
        program,
        "eval",
        "recursivelm_inspect/rlm_bench",
        "--model",
        "openai-api/fake/policy",
    )
    options = ("-T", "tasks=s-niah/single", "-T", f"n={TASKS}", "--log-dir", "logs")
    done = subprocess.run(
        (sys.executable, str(EXAMPLE), *command, *options, "--display", "plain"),
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"rlm_bench ({TASKS} samples)" in done.stdout
    assert "mean          1.000" in done.stdout
    [file] = list_eval_logs(str(tmp_path / "logs"))
    log = read_eval_log(file)
    assert log.samples
    calls = [[e for e in sample.events if e.event == "model"] for sample in log.samples]
    assert [len(each) for each in calls] == [2] * TASKS, "one step and one call, nothing else"


def test_every_request_and_cell_is_in_the_log(tmp_path: Path) -> None:
    model = scripted(
        cell("where = context.find('colour')\nprint(llm_query('say hi'))"),
        "hi",
        cell("FINAL(context[where:where + 14])"),
    )
    log = evaluate(tmp_path, model)
    assert log.status == "success"
    assert log.results
    assert log.results.scores[0].metrics["accuracy"].value == 1.0
    assert len(events(log, "model")) == 3
    spans = [event.name for event in events(log, "span_begin") if event.type == "rlm"]
    assert spans == ["rlm step 1: step", "rlm step 1: llm", "rlm step 2: step"]
    told = [event.data for event in events(log, "info") if event.source == "rlm"]
    assert [each["stdout"] for each in told if "stdout" in each] == ["hi\n"]
    assert told[-1]["stop_reason"] == "answer"
    assert log.samples
    assert log.samples[0].store["rlm"]["requests"] == 3
    assert log.samples[0].output.completion == "colour is teal"


def test_calls_use_the_model_with_the_role_sub(tmp_path: Path) -> None:
    sub = scripted("teal")
    model = scripted(cell("FINAL(llm_query('colour?'))"))
    log = evaluate(tmp_path, model, model_roles={"sub": sub})
    assert [event.role for event in events(log, "model")] == [None, "sub"]
    assert log.samples
    assert log.samples[0].output.completion == "teal"


def test_limits_of_the_engine_and_of_inspect_are_enforced(tmp_path: Path) -> None:
    looks = [cell("print(1)")] * 30
    log = evaluate(tmp_path, scripted(*looks[:3], "teal"), rlm_solver(max_steps=3))
    assert log.samples
    assert log.samples[0].store["rlm"]["limit"] == "steps"
    log = evaluate(tmp_path, scripted(*looks), message_limit=4)
    assert log.samples
    limit = log.samples[0].limit
    assert limit is not None
    assert limit.type == "message"
    assert len(events(log, "model")) < 5


def test_an_agent_answers_over_its_own_context(tmp_path: Path) -> None:
    model = scripted(cell("FINAL(context[-4:])"))
    solver: Any = rlm_agent(context="the colour is teal")
    log = evaluate(tmp_path, model, solver, context=None)
    assert log.samples
    assert log.samples[0].output.completion == "teal"


def test_task_names_in_untrusted_metadata_load_nothing(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('loaded')")
    about = {"task": f"{tmp_path}/evil.py:Task", "size": 1000, "seed": 0, "gold": []}
    sample = Sample(input="Which?", target="x", metadata={"rlm_bench": about})
    task = Task(dataset=[sample], solver=rlm_solver(), scorer=match())
    model = scripted(cell("FINAL('context' in globals() and context)"))
    [log] = inspect_eval(task, model=model, log_dir=str(tmp_path), display="none")
    assert log.status == "success"


def test_datasets_are_those_of_rlm_bench() -> None:
    first, again = (bench_dataset("s-niah", "8k", 2, seed=3) for _ in range(2))
    assert [sample.id for sample in first] == [sample.id for sample in again]
    assert len(first) == 8, "two of each of four variants"
    assert all(len(str(sample.model_dump())) < 2_000 for sample in first), "no context in it"
    assert rlm_bench(n=1).dataset.name == "s-niah 8k"
    with pytest.raises(ConfigError, match="1 to 100,000 samples"):
        bench_dataset(n=0)


def test_the_solver_satisfies_inspects_protocol() -> None:
    assert isinstance(rlm_solver(), Solver)
